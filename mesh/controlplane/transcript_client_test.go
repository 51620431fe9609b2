package controlplane

// The clients of transcripts.

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// playedClient is one stream, with the responses that it was sent.
type playedClient struct {
	testStream
	sent []playedResponse
	// ended says that the end of the stream was noted.
	ended bool
	// accepted are the versions that the client has accepted, by type.
	accepted map[string]string
	// contents are those of the resources that the client has received, by version.
	contents map[string]string
	// explained counts the texts for absent names.
	explained map[string]int
}

type playedResponse struct{ typeURL, nonce, version string }

func (p *player) open(t testing.TB, protocol string) {
	c := &playedClient{accepted: map[string]string{}, contents: map[string]string{}, explained: map[string]int{}}
	id := uint64(len(p.clients) + 1)
	opts := p.setup.opts
	opts.NodeConstraints = func(*corepb.Node) dynparam.ByType { return p.setup.moved }
	if p.setup.denied != "" {
		opts.Authorize = func(_ context.Context, _ *corepb.Node, _, name string) error {
			if p.reach(t, "authorize") {
				p.notes = p.outcome(t)
			}
			if name == fullName(p.setup.denied) {
				return status.Error(codes.PermissionDenied, "denied")
			}
			return nil
		}
	}
	if p.setup.explains {
		opts.Absence = c.explain
	}
	if p.setup.hears {
		opts.OnACK = func(typeURL string, changed time.Time) {
			text := fmt.Sprintf("%d accepts %s", id, shortType(typeURL))
			if !changed.IsZero() {
				text += fmt.Sprintf(", of a change %v ago", time.Since(changed))
			}
			p.notes = append(p.notes, text)
		}
		opts.OnNACK = func(r Rejection) {
			p.notes = append(p.notes, fmt.Sprintf("%d, %v with node %s, rejects %s %s: %v", r.Stream, r.Peer, r.Node.GetId(), shortType(r.TypeURL), r.NACK.Version, r.NACK.Err.Message()))
		}
	}
	from := &peer.Peer{Addr: &net.UnixAddr{Name: fmt.Sprint("client ", id)}}
	held, err := p.quotas.open(from, p.setup.names)
	xdstest.NoError(t, err)
	ctx := peer.NewContext(t.Context(), from)
	c.testStream = openTestStream(ctx, id, map[string]Protocol{"SotW": ProtocolSotW, "delta": ProtocolDelta}[protocol], p.store, &opts, held)
	p.clients = append(p.clients, c)
}

// explain is Options.Absence, which has nothing to say of a resource "plain".
func (c *playedClient) explain(typeURL, name string, allowed func(string) bool) string {
	if name == "plain" {
		return ""
	}
	text := "no " + name
	if !allowed("b") {
		text += ", and b is denied"
	}
	if c.explained[typeURL+name]++; c.explained[typeURL+name] > 1 {
		text += ", again"
	}
	return text
}

func (c *playedClient) end() {
	if !c.released {
		c.stream.end().release(c.stream)
	}
}

// due returns what the client is sent.
func (c *playedClient) due(t testing.TB, p *player) (texts []string) {
	select {
	case <-c.retention.timer.C:
		c.endRetention()
	default:
	}
	for len(c.wake) > 0 && c.failed() == nil {
		texts = append(texts, c.sendPart(t, p)...)
	}
	if err := c.failed(); err != nil && !c.ended {
		c.ended = true
		texts = append(texts, fmt.Sprintf("the stream ends: %v: %s", status.Code(err), status.Convert(err).Message()))
	}
	return texts
}

// sendPart has the client sent one part of what is due.
func (c *playedClient) sendPart(t testing.TB, p *player) (texts []string) {
	select {
	case <-c.wake:
	default:
		return nil
	}
	err := c.push(func(r *discoverypb.DeltaDiscoveryResponse) error {
		if err := c.failed(); err != nil {
			return err
		}
		texts = append(texts, c.read(t, p, r))
		p.reach(t, "response")
		return nil
	})
	if c.failed() == nil {
		xdstest.NoError(t, err)
	}
	return texts
}

// request sends a request, which answers a response unless that has no nonce.
func (p *player) request(t testing.TB, c *playedClient, to playedResponse, rejected bool, words []string) {
	t.Helper()
	var detail *statuspb.Status
	if rejected {
		detail = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: "no"}
	} else if to.version != "" {
		c.accepted[to.typeURL] = to.version
	}
	var names, leaves []string
	var locators, leftLocators []*discoverypb.ResourceLocator
	has := map[string]string{}
	for _, word := range words {
		if claim, ok := strings.CutPrefix(word, "has:"); ok {
			name, _, version := p.claimed(t, to.typeURL, claim)
			has[name] = version
			continue
		}
		left := strings.HasPrefix(word, "-")
		name, constraints, located := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(word, "-"), "}"), "{")
		locator := &discoverypb.ResourceLocator{Name: fullName(name), DynamicParameterConstraints: constraintsOfWord(t, constraints).ToProto()}
		switch {
		case located && left:
			leftLocators = append(leftLocators, locator)
		case located:
			locators = append(locators, locator)
		case left:
			leaves = append(leaves, fullName(name))
		default:
			names = append(names, fullName(name))
		}
	}
	node := &corepb.Node{Id: fmt.Sprint(c.id), UserAgentName: p.setup.agent}
	if p.setup.accepts {
		node.ClientFeatures = append(node.ClientFeatures, wrapFeature)
	}
	if p.setup.feature != "" {
		node.ClientFeatures = append(node.ClientFeatures, p.setup.feature)
	}
	if _, greeted := c.greeting(); greeted {
		node = &corepb.Node{Id: "ignored"} // the first request counts
	}
	var err error
	if c.sotw != nil {
		err = c.sotw.handleRequest(&discoverypb.DiscoveryRequest{
			Node: node, TypeUrl: to.typeURL, ResourceNames: names, ResourceLocators: locators,
			VersionInfo: cmp.Or(c.accepted[to.typeURL], p.setup.resumes), ResponseNonce: to.nonce, ErrorDetail: detail,
		})
	} else {
		err = c.delta.handleRequest(&discoverypb.DeltaDiscoveryRequest{
			Node: node, TypeUrl: to.typeURL, ResourceNamesSubscribe: names, ResourceNamesUnsubscribe: leaves,
			ResourceLocatorsSubscribe: locators, ResourceLocatorsUnsubscribe: leftLocators,
			InitialResourceVersions: has, ResponseNonce: to.nonce, ErrorDetail: detail,
		})
	}
	if err != nil {
		c.fail(err)
	}
}

// claimed reads a=x, which is the version of a resource with these bytes, and a, which is another one.
func (p *player) claimed(t testing.TB, typeURL, claim string) (name, content, version string) {
	name, parameters, content := splitWord(claim)
	if content == "" {
		return name, content, "another"
	}
	of, err := dynparam.NewParameters(parameters)
	xdstest.NoError(t, err)
	r, err := newResource(name, of.Map(), &anypb.Any{TypeUrl: typeURL, Value: []byte(claim)})
	xdstest.NoError(t, err)
	return name, content, r.version
}

// lastOf returns the last response of a type, without its version.
func (c *playedClient) lastOf(typeURL string) (last playedResponse) {
	for _, r := range c.sent {
		if r.typeURL == typeURL {
			last = playedResponse{typeURL: typeURL, nonce: r.nonce}
		}
	}
	return last
}

// read notes a response, and returns its text.
func (c *playedClient) read(t testing.TB, p *player, r *discoverypb.DeltaDiscoveryResponse) string {
	if r.GetNonce() == "" || r.GetSystemVersionInfo() == "" || p.nonces[r.GetNonce()] {
		t.Errorf("a response of version %q has the nonce %q, empty or as before", r.GetSystemVersionInfo(), r.GetNonce())
	}
	p.nonces[r.GetNonce()] = true
	c.sent = append(c.sent, playedResponse{r.GetTypeUrl(), r.GetNonce(), r.GetSystemVersionInfo()})
	var texts, failed []string
	for _, m := range r.GetResources() {
		c.contents[m.GetVersion()] = textOfResource(m)
		texts = append(texts, textOfResource(m))
	}
	for _, name := range r.GetRemovedResources() {
		texts = append(texts, "-"+shortName(name))
	}
	for _, name := range r.GetRemovedResourceNames() {
		texts = append(texts, "-"+textOfName(t, name))
	}
	for _, e := range r.GetResourceErrors() {
		text := textOfName(t, e.GetResourceName()) + "!" + codes.Code(e.GetErrorDetail().GetCode()).String()
		if more, ok := strings.CutPrefix(e.GetErrorDetail().GetMessage(), "no "+e.GetResourceName().GetName()); ok {
			text += "/explained" + more
		}
		failed = append(failed, text)
	}
	slices.Sort(failed)
	texts = append(texts, failed...)
	if c.delta != nil {
		// An absence and its text go together.
		if items := len(r.GetResources()) + max(len(r.GetRemovedResources()), len(r.GetResourceErrors())); items > 1 && proto.Size(r) > c.opts.MaxResponseSize {
			t.Errorf("a response of %d items has %d bytes", items, proto.Size(r))
		}
		xdstest.Equal(t, "system_version_info", formatVersion(p.store.Version()), r.GetSystemVersionInfo())
	}
	return strings.TrimSuffix(fmt.Sprintf("%d %s: %s", len(c.sent), shortType(r.GetTypeUrl()), strings.Join(texts, " ")), ": ")
}

// statusText is what Server.Clients says of a type.
func (c *playedClient) statusText(typeURL string) string {
	all := c.status(1000)
	if all.ID != c.id || all.Protocol != c.protocol || all.Peer.String() != fmt.Sprint("client ", c.id) || all.Node.GetId() != fmt.Sprint(c.id) {
		return fmt.Sprintf("is that of another client: %+v", all)
	}
	for _, of := range all.Types {
		if of.TypeURL != typeURL {
			continue
		}
		text := fmt.Sprintf("%q %v", of.Names, of.Reply)
		if of.Wildcard {
			text += ", wildcard"
		}
		for _, r := range of.Sent {
			text += ", sent " + cmp.Or(c.contents[r.Version], "another version of "+r.Name)
		}
		if after := of.SentAt.Sub(all.Since); after > 0 {
			text += fmt.Sprintf(", sent after %v, silent since %v", after, of.SilentSince.Sub(all.Since))
		}
		if of.ACKedVersion != "" {
			text += ", accepted version " + of.ACKedVersion
		}
		if of.NACK != nil {
			text += fmt.Sprintf(", rejected version %s, still %v", of.NACK.Version, of.Refusing)
		}
		for _, e := range of.Errors {
			text += fmt.Sprintf(", %s!%v", shortName(e.Name), e.Err.Code())
		}
		if len(of.Kept) > 0 {
			text += fmt.Sprintf(", kept %q", of.Kept)
		}
		return text
	}
	return "not asked for"
}
