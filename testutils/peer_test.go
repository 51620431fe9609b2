package testutils_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

const (
	lds, cds = xdsmsg.ListenerType, xdsmsg.ClusterType
	rds, eds = xdsmsg.RouteType, xdsmsg.EndpointType
)

// put sets a resource whose bytes are a text. Its locator is "name" or "name key=value key=value".
func put(tx *testutils.Tx, typeURL, locator, text string) {
	name, parameters := split(locator)
	tx.SetNamed(name, parameters, anyOf(typeURL, text))
	clear(parameters) // The update has its own.
}

// set is put in an update of its own.
func set(t *testing.T, s *testutils.FakeServer, typeURL, locator, text string) {
	t.Helper()
	s.Update(t, func(tx *testutils.Tx) { put(tx, typeURL, locator, text) })
}

// split takes the parameters of a locator apart.
func split(locator string) (name string, parameters map[string]string) {
	fields := strings.Fields(locator)
	for _, field := range fields[1:] {
		key, value, _ := strings.Cut(field, "=")
		if parameters == nil {
			parameters = map[string]string{}
		}
		parameters[key] = value
	}
	return fields[0], parameters
}

// peer is a client that sends requests, and answers each response with an ACK. It knows nothing but the
// wire.
type peer struct {
	t     *testing.T
	ctx   context.Context
	wire  grpc.ClientStream
	delta bool
	node  *corepb.Node
	// byLocators makes it send locators, which have "name key=value" of package xdstest's Constraints.
	byLocators bool
	// asked are the subscriptions by type, and nonces those of the last responses.
	asked  map[string][]string
	nonces map[string]string
	// fault makes it reject responses.
	fault string
	// versions are the initial_resource_versions of the first request.
	versions map[string]string
}

// eachProtocol runs a test over SotW and over delta, each with a server of its own.
func eachProtocol(t *testing.T, test func(t *testing.T, s *testutils.FakeServer, open func() *peer)) {
	t.Parallel()
	for _, delta := range []bool{false, true} {
		xdstest.Parallel(t, fmt.Sprintf("delta %t", delta), func(t *testing.T) {
			s := testutils.StartFakeServer(t)
			test(t, s, func() *peer { return openPeer(t, s, delta) })
		})
	}
}

func openPeer(t *testing.T, s *testutils.FakeServer, delta bool) *peer {
	t.Helper()
	method := "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	if delta {
		method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	}
	p := &peer{
		t: t, ctx: testutils.Context(t), delta: delta, node: &corepb.Node{Id: "n"},
		asked: map[string][]string{}, nonces: map[string]string{},
	}
	conn, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	xdstest.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	p.wire, err = conn.NewStream(p.ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.WaitForReady(true))
	xdstest.NoError(t, err)
	return p
}

// subscribe subscribes to names or locators, and unsubscribe ends that.
func (p *peer) subscribe(typeURL string, locators ...string) {
	p.t.Helper()
	p.asked[typeURL] = append(p.asked[typeURL], locators...)
	p.request(typeURL, locators, nil)
}

func (p *peer) unsubscribe(typeURL string, locators ...string) {
	p.t.Helper()
	p.asked[typeURL] = slices.DeleteFunc(p.asked[typeURL], func(l string) bool { return slices.Contains(locators, l) })
	p.request(typeURL, nil, locators)
}

// request sends a request. In SotW it has everything that is subscribed to.
func (p *peer) request(typeURL string, added, dropped []string) {
	p.t.Helper()
	var fault *statuspb.Status
	if p.fault != "" {
		fault = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: p.fault}
	}
	if p.delta {
		req := &discoverypb.DeltaDiscoveryRequest{Node: p.node, TypeUrl: typeURL, InitialResourceVersions: p.versions}
		if len(added)+len(dropped) == 0 {
			req.ResponseNonce, req.ErrorDetail = p.nonces[typeURL], fault
		}
		req.ResourceNamesSubscribe, req.ResourceLocatorsSubscribe = p.targets(added)
		req.ResourceNamesUnsubscribe, req.ResourceLocatorsUnsubscribe = p.targets(dropped)
		p.versions = nil
		xdstest.NoError(p.t, p.wire.SendMsg(req))
		return
	}
	req := &discoverypb.DiscoveryRequest{Node: p.node, TypeUrl: typeURL, ResponseNonce: p.nonces[typeURL], ErrorDetail: fault}
	req.ResourceNames, req.ResourceLocators = p.targets(p.asked[typeURL])
	xdstest.NoError(p.t, p.wire.SendMsg(req))
}

func (p *peer) targets(texts []string) (names []string, locators []*discoverypb.ResourceLocator) {
	for _, text := range texts {
		fields := strings.Fields(text)
		names = append(names, fields[0])
		if p.byLocators {
			locators = append(locators, &discoverypb.ResourceLocator{
				Name: fields[0], DynamicParameterConstraints: xdstest.Constraints(fields[1:]...).ToProto(),
			})
		}
	}
	return names, locators
}

// expect compares the next response, which it answers: its type and, in order, its resources "a {k=v}: text",
// what is removed "-a {constraints}", and errors "!a {constraints}: CODE text".
func (p *peer) expect(moment, typeURL string, want ...string) {
	p.t.Helper()
	gotType, got := p.next()
	if gotType != typeURL || !slices.Equal(got, want) {
		p.t.Errorf("%s: got %s %q, want %s %q", moment, typeurl.ShortName(gotType), got, typeurl.ShortName(typeURL), want)
	}
}

// next returns the next response.
func (p *peer) next() (typeURL string, items []string) {
	p.t.Helper()
	var resources []*discoverypb.Resource
	var errs []*discoverypb.ResourceError
	if p.delta {
		m := new(discoverypb.DeltaDiscoveryResponse)
		xdstest.NoError(p.t, p.wire.RecvMsg(m))
		typeURL, resources, errs, p.nonces[m.GetTypeUrl()] = m.GetTypeUrl(), m.GetResources(), m.GetResourceErrors(), m.GetNonce()
		for _, name := range m.GetRemovedResources() {
			items = append(items, "-"+name)
		}
		for _, name := range m.GetRemovedResourceNames() {
			items = append(items, "-"+p.nameText(name))
		}
	} else {
		m := new(discoverypb.DiscoveryResponse)
		xdstest.NoError(p.t, p.wire.RecvMsg(m))
		typeURL, errs, p.nonces[m.GetTypeUrl()] = m.GetTypeUrl(), m.GetResourceErrors(), m.GetNonce()
		for _, a := range m.GetResources() {
			r := &discoverypb.Resource{Resource: a}
			if a.GetTypeUrl() == typeurl.Wrapper {
				r = unwrap(p.t, a)
			}
			resources = append(resources, r)
		}
	}
	for _, r := range resources {
		items = append(items, resourceText(p.t, r))
	}
	for _, e := range errs {
		items = append(items, fmt.Sprintf("!%s: %v %s", p.nameText(e.GetResourceName()), codes.Code(e.GetErrorDetail().GetCode()), e.GetErrorDetail().GetMessage()))
	}
	p.request(typeURL, nil, nil)
	return typeURL, items
}

func resourceText(t *testing.T, r *discoverypb.Resource) string {
	t.Helper()
	text := r.GetName()
	if r.GetCacheControl().GetDoNotCache() {
		text += " (not cached)"
	}
	if len(r.GetDynamicParameters()) > 0 {
		parameters, err := dynparam.NewParameters(r.GetDynamicParameters())
		xdstest.NoError(t, err)
		text += " " + parameters.String()
	}
	return strings.TrimPrefix(text+": "+string(r.GetResource().GetValue()), ": ")
}

func (p *peer) nameText(name *discoverypb.ResourceName) string {
	p.t.Helper()
	if name.GetDynamicParameterConstraints() == nil {
		return name.GetName()
	}
	constraints, err := dynparam.FromProto(name.GetDynamicParameterConstraints())
	xdstest.NoError(p.t, err)
	return name.GetName() + " " + constraints.String()
}

// unwrap returns the Resource in an Any; its type is registered under the name of its twin.
func unwrap(t *testing.T, a *anypb.Any) *discoverypb.Resource {
	t.Helper()
	r := new(discoverypb.Resource)
	xdstest.NoError(t, (&anypb.Any{TypeUrl: typeurl.Prefix + string(r.ProtoReflect().Descriptor().FullName()), Value: a.GetValue()}).UnmarshalTo(r))
	return r
}

// awaitLocators waits until the server's only client subscribes to n names.
func (p *peer) awaitLocators(s *testutils.FakeServer, n int) {
	p.t.Helper()
	_, err := s.Await(p.ctx, func(all []testutils.ClientStatus) bool { return len(all) == 1 && len(all[0].Types[0].Locators) == n })
	xdstest.NoError(p.t, err)
}

// mustEnd checks the status that the stream ends with.
func (p *peer) mustEnd(want codes.Code) {
	p.t.Helper()
	if err := p.wire.RecvMsg(new(discoverypb.DiscoveryResponse)); status.Code(err) != want {
		p.t.Errorf("the stream ended with %v, want %v", err, want)
	}
}

// firstVersion returns the version of a Cluster.
func firstVersion(t *testing.T, s *testutils.FakeServer, name string) string {
	t.Helper()
	p := openPeer(t, s, true)
	p.request(cds, []string{name}, nil)
	m := new(discoverypb.DeltaDiscoveryResponse)
	xdstest.NoError(t, p.wire.RecvMsg(m))
	if len(m.GetResources()) != 1 {
		t.Fatalf("the first response is %v", m)
	}
	return m.GetResources()[0].GetVersion()
}

func anyOf(typeURL, body string) *anypb.Any { return &anypb.Any{TypeUrl: typeURL, Value: []byte(body)} }
