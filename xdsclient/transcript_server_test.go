package xdsclient

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// transcriptServer is a server of a transcript, with the stream that the client has to it, or nil.
type transcriptServer struct {
	*script
	delta bool
	// ttl is that of all resources.
	ttl    time.Duration
	stream transcriptStream
	// last has what was last requested of each type on the stream.
	last map[string]*transcriptRequest
}

// transcriptStream is a stream of either protocol.
type transcriptStream interface {
	// next takes the next request, or returns nil.
	next() *transcriptRequest
	context() context.Context
	// sendMessage sends a response, which may be a twin of xRFC TP2.
	sendMessage(m proto.Message)
	endWith(err error)
}

// transcriptRequest is a request of either protocol.
type transcriptRequest struct {
	typeURL, version, nonce string
	node                    bool
	nack                    string
	names, unsubscribe      []string
	initial                 map[string]string
}

// hasNode reports whether a request has the node of the bootstrap.
func hasNode(r interface{ GetNode() *corev3.Node }) bool {
	return r.GetNode().GetId() == "node-1" && len(r.GetNode().GetClientFeatures()) > 0
}

// nackOf returns the text of a NACK. The protobuf runtime varies its white space on purpose.
func nackOf(r interface{ GetErrorDetail() *statuspb.Status }) string {
	if detail := r.GetErrorDetail(); detail != nil && codes.Code(detail.GetCode()) != codes.InvalidArgument {
		return fmt.Sprint("with another code than INVALID_ARGUMENT: ", detail)
	}
	return strings.ReplaceAll(r.GetErrorDetail().GetMessage(), "\u00a0", " ")
}

// requestOf reads a request.
func requestOf(t testing.TB, delta bool, read func(any) error) (*transcriptRequest, error) {
	if !delta {
		r := new(discoverypb.DiscoveryRequest)
		if err := read(r); err != nil {
			return nil, err
		}
		checkLocators(t, r.GetResourceLocators(), r.GetResourceNames())
		return &transcriptRequest{
			typeURL: r.GetTypeUrl(), version: r.GetVersionInfo(), nonce: r.GetResponseNonce(), node: hasNode(r),
			nack: nackOf(r), names: locatorsOr(r.GetResourceLocators(), r.GetResourceNames()),
		}, nil
	}
	r := new(discoverypb.DeltaDiscoveryRequest)
	if err := read(r); err != nil {
		return nil, err
	}
	checkLocators(t, r.GetResourceLocatorsSubscribe(), r.GetResourceNamesSubscribe())
	for _, name := range r.GetResourceNamesUnsubscribe() {
		if slices.Contains(r.GetResourceNamesSubscribe(), name) {
			t.Errorf("a request subscribes to %q and unsubscribes from it", name)
		}
	}
	return &transcriptRequest{
		typeURL: r.GetTypeUrl(), nonce: r.GetResponseNonce(), node: hasNode(r), nack: nackOf(r),
		names:       locatorsOr(r.GetResourceLocatorsSubscribe(), r.GetResourceNamesSubscribe()),
		unsubscribe: locatorsOr(r.GetResourceLocatorsUnsubscribe(), r.GetResourceNamesUnsubscribe()),
		initial:     r.GetInitialResourceVersions(),
	}, nil
}

// checkLocators checks that a request has the names of its locators as well, each once and in order, for servers that do not know of locators.
func checkLocators(t testing.TB, locators []*discoverypb.ResourceLocator, names []string) {
	t.Helper()
	var want []string
	for _, l := range locators {
		want = append(want, l.GetName())
	}
	slices.Sort(want)
	if want = slices.Compact(want); len(locators) > 0 && !slices.Equal(names, want) {
		t.Errorf("a request has the locators %v and the names %q", locators, names)
	}
}

// locatorsOr returns the texts of locators or, if there are none, the names.
func locatorsOr(locators []*discoverypb.ResourceLocator, names []string) (texts []string) {
	for _, l := range locators {
		texts = append(texts, locatorText(l))
	}
	if texts == nil {
		return names
	}
	return texts
}

// events takes what the client has done at the server.
func (s *transcriptServer) events(x *transcript) (events []string) {
	for {
		if s.stream != nil {
			for r := s.stream.next(); r != nil; r = s.stream.next() {
				events = append(events, s.texts(x, r)...)
			}
			if s.stream.context().Err() != nil {
				s.stream, events = nil, append(events, "closed")
			}
		}
		select {
		case stream := <-s.streams:
			s.stream, s.delta = stream, stream.delta
		default:
			return events
		}
		s.last, events = make(map[string]*transcriptRequest), append(events, "stream")
	}
}

// texts writes a request: as two in a test over both protocols if it answers a response and changes
// the subscriptions. It checks that the first request of a stream has the node, and no other.
func (s *transcriptServer) texts(x *transcript, r *transcriptRequest) (texts []string) {
	if r.node != (len(s.last) == 0) {
		x.t.Errorf("got a request for %s with a node: %v", r.typeURL, r.node)
	}
	for _, list := range [][]string{r.names, r.unsubscribe} {
		for i, name := range list {
			list[i] = cmp.Or(x.locators[name], name)
		}
		slices.Sort(list)
	}
	last := s.last[r.typeURL]
	if s.last[r.typeURL] = r; last == nil {
		last = &transcriptRequest{}
	}
	answer, version := "", strings.TrimPrefix(r.nonce, "n")
	switch {
	case r.nack != "":
		answer, x.nack = "nack "+version, r.nack
	case r.nonce != "":
		answer = "ack " + version
	}
	request := cmp.Or(answer, "req")
	changes := func(added, removed []string) (text string) {
		for _, name := range added {
			text += " +" + name
		}
		for _, name := range removed {
			text += " -" + name
		}
		return text
	}
	switch {
	case !x.both && !s.delta:
		for _, name := range r.names {
			request += " " + name
		}
		if r.version != version {
			request += " @" + r.version
		}
		texts = append(texts, request)
	case !x.both:
		request += changes(r.names, r.unsubscribe)
		for i, name := range slices.Sorted(maps.Keys(r.initial)) {
			if i == 0 {
				request += " has"
			}
			request += " " + name + "@" + r.initial[name]
		}
		texts = append(texts, request)
	default:
		if answer != "" && r.nonce != last.nonce {
			texts = append(texts, answer)
		}
		added, removed := r.names, r.unsubscribe
		if !s.delta {
			without := func(all, some []string) []string {
				return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(some, name) })
			}
			added, removed = without(r.names, last.names), without(last.names, r.names)
		}
		if text := changes(added, removed); text != "" {
			texts = append(texts, "req"+text)
		}
	}
	for i, text := range texts {
		if texts[i] = strings.ReplaceAll(text, collectionDir, "dir/"); r.typeURL == x.types.endpoints.TypeURL {
			texts[i] = "e." + texts[i]
		}
	}
	return texts
}

// send sends what the words of a step say. Resources of a SotW response are wrapped if they have
// something that only a wrapper can have.
func (s *transcriptServer) send(x *transcript, version string, words []string) {
	x.t.Helper()
	typ := x.types.clusters
	if rest, ok := strings.CutPrefix(version, "e:"); ok {
		version, typ = rest, x.types.endpoints
	} else if rest, ok := strings.CutPrefix(version, "?:"); ok {
		version, typ = rest, &ResourceType{}
	}
	if s.stream == nil {
		x.t.Fatalf("there is no stream to send %q on", words)
	}
	number, version, versioned := strings.Cut(version, "@")
	if !versioned {
		version = number
	}
	s.stream.sendMessage(s.response(x, typ, version, "n"+number, words))
}

// response makes a response of what the words of a step say.
func (s *transcriptServer) response(x *transcript, typ *ResourceType, version, nonce string, words []string) proto.Message {
	r := &answer{TypeUrl: typ.TypeURL, SystemVersionInfo: version, Nonce: nonce}
	bare := make(map[*discoverypb.Resource]bool)
	for _, word := range words {
		if word == "part" {
			r.ControlPlane = &corev3.ControlPlane{Identifier: strings.Repeat("x", bounds.ResponsePart)}
			continue
		}
		if w, alone := literal(x.t, word); w != nil {
			r.Resources, bare[w] = append(r.Resources, w), alone
			continue
		}
		if s.item(x, r, typ, word); len(r.Resources) > 0 && !strings.ContainsAny(word, "@~{?-^#") {
			bare[r.Resources[len(r.Resources)-1]] = true
		}
	}
	if s.ttl > 0 {
		for _, w := range r.Resources {
			w.Ttl = durationpb.New(s.ttl)
		}
	}
	if s.delta {
		return r
	}
	m := inSotW(x.t, r)
	for i, w := range r.Resources {
		if bare[w] {
			m.Resources[i] = w.Resource
		}
	}
	return m
}

var literalNames = strings.NewReplacer("[Cluster]", "[type.googleapis.com/envoy.config.cluster.v3.Cluster]",
	"[Endpoints]", "[type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment]", "[Resource]", "["+wrapperType+"]")

// literal returns the resource of a word that is an Any in text, and whether it has no wrapper. nil: the word is another one.
func literal(t testing.TB, word string) (w *discoverypb.Resource, bare bool) {
	t.Helper()
	if !strings.HasPrefix(word, "[") && !strings.HasPrefix(word, "type_url:") {
		return nil, false
	}
	a, wrapper := new(anypb.Any), new(discoverypb.Resource)
	xdstest.NoError(t, prototext.Unmarshal([]byte(literalNames.Replace(word)), a))
	if a.GetTypeUrl() == wrapperType && proto.Unmarshal(a.GetValue(), wrapper) == nil {
		return wrapper, false
	}
	return &discoverypb.Resource{Resource: a}, true
}

// item adds what a word says to a response.
func (s *transcriptServer) item(x *transcript, r *answer, typ *ResourceType, word string) {
	word, removed := strings.CutPrefix(word, "-")
	word, nameless := strings.CutPrefix(word, "^")
	name, mark, rest := word, byte('='), ""
	inner := max(0, strings.IndexByte(word, '}'))
	if at := strings.IndexAny(word[inner:], "=!?~"); at >= 0 {
		at += inner
		name, mark, rest = word[:at], word[at], word[at+1:]
	}
	name, life, _ := strings.Cut(name, "#")
	name, version, versioned := strings.Cut(name, "@")
	if !versioned {
		version = r.SystemVersionInfo
	}
	names := strings.Split(name, "|")
	name, list, scoped := cutBraces(names[0])
	subscription := &discoverypb.ResourceName{Name: name}
	w := &discoverypb.Resource{Name: name, Version: version, Aliases: names[1:]}
	switch text := strings.Join(list, ","); text {
	case "*":
	case "?":
		subscription.DynamicParameterConstraints = &discoverypb.DynamicParameterConstraints{
			KeyConstraints: map[string]*discoverypb.DynamicParameterConstraints_KeyConstraints{"?": {}},
		}
		w.ProtoReflect().SetUnknown(appendField(nil, wrapperParameters, "\xff"))
	default:
		if w.DynamicParameters = parameters(text); scoped {
			subscription.DynamicParameterConstraints = choose(list...).ToProto()
		}
	}
	if ttl, err := time.ParseDuration(life); err == nil {
		w.Ttl = durationpb.New(ttl)
	} else if life != "" {
		w.CacheControl = &discoverypb.Resource_CacheControl{DoNotCache: true}
	}
	switch {
	case removed && scoped:
		r.RemovedResourceNames = append(r.RemovedResourceNames, subscription)
		return
	case removed:
		r.RemovedResources = append(r.RemovedResources, name)
		return
	case mark == '?':
		code, text, hasText := strings.Cut(rest, "/")
		detail := &statuspb.Status{Code: int32(codes.Unavailable), Message: text}
		if !hasText {
			detail.Message = "no"
		}
		switch code {
		case "unreachable":
			detail.Details = []*anypb.Any{pack(x.t, dialect.Unreachable())}
		case "silent":
			detail.Details = []*anypb.Any{pack(x.t, dialect.Silent())}
		default:
			detail.Code = int32(codeNamed(x.t, code))
		}
		r.ResourceErrors = append(r.ResourceErrors, &discoverypb.ResourceError{ResourceName: subscription, ErrorDetail: detail})
		return
	case mark == '~':
	case typ == x.types.endpoints:
		w.Resource = pack(x.t, endpoints(name))
	case mark == '!':
		w.Resource = pack(x.t, badCluster(name, rest))
	default:
		w.Resource = pack(x.t, cluster(name, rest))
	}
	if nameless {
		w.Name = ""
	}
	r.Resources = append(r.Resources, w)
}

// codeNamed returns a code by its name or, if gRPC has none, its number.
func codeNamed(t testing.TB, name string) codes.Code {
	if number, err := strconv.ParseUint(name, 10, 32); err == nil {
		return codes.Code(number)
	}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		if code.String() == name {
			return code
		}
	}
	t.Fatalf("there is no code %q", name)
	return 0
}
