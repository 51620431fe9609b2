package relay_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// playedClient is a stream of a client, which accepts or rejects what it is sent.
type playedClient struct {
	t     testing.TB
	delta bool
	node  *corepb.Node
	ctx   context.Context
	link  *link
	// loads is the stream of load reports, or nil.
	loads *link
	stop  func()
	ended bool
	// wants are the subscriptions by type and word, and has is what the client has, by type and name.
	wants map[string]map[string]*discoverypb.ResourceLocator
	has   map[string]string
	// answers are the last responses of SotW, by type.
	answers map[string]*discoverypb.DeltaDiscoveryResponse
	// rejection is the error with which it rejects responses, if it does.
	rejection *statuspb.Status
}

// send changes the subscription to a type. -a unsubscribes, has:a=x says that a delta client has a resource, and version:7 that a SotW
// client has that version.
func (c *playedClient) send(short string, words []string) {
	typeURL := typeOf(c.t, short)
	wants := c.wants[typeURL]
	if wants == nil {
		wants = map[string]*discoverypb.ResourceLocator{}
		c.wants[typeURL] = wants
	}
	req := &discoverypb.DeltaDiscoveryRequest{Node: c.node, TypeUrl: typeURL}
	for _, text := range words {
		if name, ok := strings.CutPrefix(text, "has:"); ok {
			w := word.FindStringSubmatch(name)
			r, err := controlplane.NewResource(&discoverypb.Resource{Name: fullName(w[2]), Resource: bodyOf(c.t, typeURL, fullName(w[2]), w[4])})
			xdstest.NoError(c.t, err)
			req.InitialResourceVersions = map[string]string{r.Name(): r.Version()}
			continue
		}
		if version, ok := strings.CutPrefix(text, "version:"); ok {
			c.answers[typeURL] = &discoverypb.DeltaDiscoveryResponse{SystemVersionInfo: version}
			continue
		}
		w := word.FindStringSubmatch(text)
		l := &discoverypb.ResourceLocator{Name: fullName(w[2])}
		located := strings.Contains(text, "{")
		if located {
			l.DynamicParameterConstraints = xdstest.Constraints(strings.Fields(strings.ReplaceAll(w[3], ",", " "))...).ToProto()
		}
		key := strings.TrimPrefix(text, "-")
		switch left := w[1] != ""; {
		case left && located:
			req.ResourceLocatorsUnsubscribe = append(req.ResourceLocatorsUnsubscribe, l)
		case left:
			req.ResourceNamesUnsubscribe = append(req.ResourceNamesUnsubscribe, l.Name)
		case located:
			req.ResourceLocatorsSubscribe = append(req.ResourceLocatorsSubscribe, l)
		default:
			req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, l.Name)
		}
		if wants[key] = l; w[1] != "" {
			delete(wants, key)
		}
	}
	if c.delta {
		c.request(req)
	} else {
		c.list(typeURL, nil)
	}
}

// list sends a SotW request, with an error if the last response is rejected.
func (c *playedClient) list(typeURL string, rejected *statuspb.Status) {
	last := c.answers[typeURL]
	req := &discoverypb.DiscoveryRequest{Node: c.node, TypeUrl: typeURL, VersionInfo: last.GetSystemVersionInfo(), ResponseNonce: last.GetNonce(), ErrorDetail: rejected}
	for _, key := range slices.Sorted(maps.Keys(c.wants[typeURL])) {
		if l := c.wants[typeURL][key]; strings.Contains(key, "{") {
			req.ResourceLocators = append(req.ResourceLocators, l)
		} else {
			req.ResourceNames = append(req.ResourceNames, l.Name)
		}
	}
	c.request(req)
}

func (c *playedClient) request(m proto.Message) {
	data, err := proto.Marshal(m)
	xdstest.NoError(c.t, err)
	c.link.up.send(mem.BufferSlice{mem.SliceBuffer(data)})
}

// sent answers the responses that have arrived, and returns what they say. That is the same however they are divided.
func (c *playedClient) sent() (texts []string) {
	news := map[string]bool{}
	for c.link.down.pending() > 0 {
		full, resp := c.receive(c.link.down.take())
		typeURL := resp.GetTypeUrl()
		seen := map[string]bool{}
		put := func(name, text string) {
			key := textOfType(typeURL) + ":" + name
			seen[key] = true
			if again := c.has[key] == text; !again {
				news[text], c.has[key] = true, text
				if _, _, failed := strings.Cut(key, "!"); !failed {
					delete(c.has, textOfType(typeURL)+":"+shortName(strings.Split(name, "map[")[0])+"!")
				}
			} else if !full {
				news[text+"(again)"] = true
			}
		}
		for _, r := range resp.GetResources() {
			put(r.GetName()+fmt.Sprint(r.GetDynamicParameters()), textOfType(typeURL)+":"+textOfResource(c.t, r))
		}
		for _, e := range resp.GetResourceErrors() {
			name := textOfName(c.t, e.GetResourceName())
			text := textOfType(typeURL) + ":" + name + "!" + codes.Code(e.GetErrorDetail().GetCode()).String()
			if dialect.SaysUnreachable(e.GetErrorDetail()) {
				text += "(away)"
			}
			put(name+"!", text)
		}
		for _, name := range resp.GetRemovedResources() {
			c.drop(news, typeURL, name, textOfType(typeURL)+":-"+shortName(name))
		}
		for _, name := range resp.GetRemovedResourceNames() {
			c.drop(news, typeURL, name.GetName(), textOfType(typeURL)+":-"+textOfName(c.t, name))
		}
		for key := range c.has {
			if full && strings.HasPrefix(key, textOfType(typeURL)) && !strings.HasSuffix(key, "!") && !seen[key] {
				news["-"+c.has[key]] = true
				delete(c.has, key)
			}
		}
		if len(resp.GetResources())+len(resp.GetResourceErrors())+len(resp.GetRemovedResources())+len(resp.GetRemovedResourceNames()) == 0 {
			news[textOfType(typeURL)+":nothing"] = true
		}
	}
	texts = slices.Sorted(maps.Keys(news))
	if !c.link.isOpen() && !c.ended {
		c.ended = true
		if c.link.mu.Lock(); c.link.err != nil && c.link.client.Err() == nil {
			texts = append(texts, fmt.Sprintf("the stream ends: %v: %s", status.Code(c.link.err), status.Convert(c.link.err).Message()))
		}
		c.link.mu.Unlock()
	}
	return texts
}

// drop forgets what a delta client has under a name.
func (c *playedClient) drop(news map[string]bool, typeURL, name, text string) {
	news[text] = true
	maps.DeleteFunc(c.has, func(key, _ string) bool {
		return strings.HasPrefix(key, textOfType(typeURL)+":"+name+"map[") || key == textOfType(typeURL)+":"+shortName(name)+"!"
	})
}

// receive decodes a response, and answers it. full says that it has all resources of the type.
func (c *playedClient) receive(data []byte) (full bool, resp *discoverypb.DeltaDiscoveryResponse) {
	resp = responseOf(c.delta, data)
	if c.delta {
		c.request(&discoverypb.DeltaDiscoveryRequest{TypeUrl: resp.TypeUrl, ResponseNonce: resp.Nonce, ErrorDetail: c.rejection})
		return false, resp
	}
	c.answers[resp.TypeUrl] = resp
	c.list(resp.TypeUrl, c.rejection)
	return resp.TypeUrl == typeurl.Cluster || resp.TypeUrl == typeurl.Listener, resp
}

// shortTypes are the types of transcripts.
var shortTypes = map[string]string{"cds": typeurl.Cluster, "rds": typeurl.RouteConfiguration, "eds": typeurl.Endpoints, "dpds": dynparam.MapTypeURL}

func typeOf(t testing.TB, short string) string {
	t.Helper()
	if shortTypes[short] == "" {
		t.Fatalf("%q is no type", short)
	}
	return shortTypes[short]
}

func textOfType(typeURL string) string {
	for short, long := range shortTypes {
		if long == typeURL {
			return short
		}
	}
	return typeURL
}

// fullName is the name for a text: one with a slash is a new-style one.
func fullName(text string) string {
	if strings.Contains(text, "/") {
		return member(text)
	}
	return text
}

func shortName(name string) string { return strings.TrimPrefix(name, member("")) }

func pairs(text string) map[string]string {
	parameters := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			parameters[key] = value
		}
	}
	return parameters
}

// codeOf is an error with a code; "away" is that of a relay that does not reach its control plane.
func codeOf(t testing.TB, name string) *status.Status {
	if name == "away" {
		st, err := status.New(codes.Unavailable, "away").WithDetails(dialect.Unreachable())
		xdstest.NoError(t, err)
		return st
	}
	for code := range codes.Code(17) {
		if code.String() == name {
			return status.New(code, "error")
		}
	}
	t.Fatalf("%q is no code", name)
	return nil
}

// bodyOf is a message of any type, with the name in field 1.
func bodyOf(t testing.TB, typeURL, name, text string) *anypb.Any {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(&clusterpb.Cluster{Name: name, AltStatName: text})
	xdstest.NoError(t, err)
	return &anypb.Any{TypeUrl: typeURL, Value: data}
}

func textOfResource(t testing.TB, r *discoverypb.Resource) string {
	text := shortName(r.GetName())
	if len(r.GetDynamicParameters()) > 0 {
		text += fmt.Sprint(strings.ReplaceAll(fmt.Sprint(r.GetDynamicParameters()), ":", "="))[3:]
	}
	switch {
	case r.GetResource() == nil:
		return text + "=(heartbeat)"
	case r.GetResource().GetTypeUrl() == dynparam.MapTypeURL:
		return text + "=(constraints)"
	}
	var c clusterpb.Cluster
	xdstest.NoError(t, proto.Unmarshal(r.GetResource().GetValue(), &c))
	text += "=" + c.GetAltStatName()
	if r.GetTtl() != nil {
		text += "(expiring)"
	}
	if r.GetCacheControl().GetDoNotCache() {
		text += "(private)"
	}
	return text
}

func textOfConstraints(c dynparam.Constraints) string {
	if c.IsZero() {
		return ""
	}
	return strings.NewReplacer(" in [", "=", "] or [", "|", "]", "", ", ", ",").Replace(c.String())
}

func textOfName(t testing.TB, of *discoverypb.ResourceName) string {
	t.Helper()
	c, err := dynparam.FromProto(of.GetDynamicParameterConstraints())
	xdstest.NoError(t, err)
	return shortName(of.GetName()) + textOfConstraints(c)
}
