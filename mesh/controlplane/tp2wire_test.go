package controlplane_test

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// The methods are called without the generated client, whose service has another name.
const (
	adsService  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
	dpdsService = "/envoy.service.dynamic_parameters.v3.DynamicParametersDiscoveryService/"
)

func openTwin[Req, Resp any](conn *grpc.ClientConn, method string) func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[Req, Resp], error) {
	return func(ctx context.Context, opts ...grpc.CallOption) (grpc.BidiStreamingClient[Req, Resp], error) {
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, opts...)
		return &grpc.GenericClientStream[Req, Resp]{ClientStream: stream}, err
	}
}

// twinSotW and twinDelta are streams of our own messages, which have xRFC TP2's fields.
type (
	twinSotW  = rawClient[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse]
	twinDelta = rawClient[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse]
)

func (s *testServer) openTwinSotW(t testing.TB) *twinSotW {
	return newRawClient(t, openTwin[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse](s.conn, adsService+"StreamAggregatedResources"))
}

func (s *testServer) openTwinDelta(t testing.TB) *twinDelta {
	return newRawClient(t, openTwin[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse](s.conn, adsService+"DeltaAggregatedResources"))
}

type tp2SotW struct {
	*twinSotW
	node   string
	nonces map[string]string
	// facts is set for a client that subscribes by names.
	facts facts
}

func newTP2SotW(t testing.TB, s *testServer, node string) tp2Wire {
	return &tp2SotW{s.openTwinSotW(t), node, map[string]string{}, nil}
}

func (w *tp2SotW) change(c *tp2Client, added, removed []ask) {
	types := map[string]bool{}
	for _, a := range slices.Concat(added, removed) {
		types[a.typeURL] = true
	}
	for typeURL := range types {
		w.ask(c, typeURL)
	}
}

func (w *tp2SotW) ask(c *tp2Client, typeURL string) {
	req := &discoverypb.DiscoveryRequest{Node: tp2Node(w.node), TypeUrl: typeURL, ResponseNonce: w.nonces[typeURL]}
	for _, h := range c.holdings {
		if h.ask.typeURL == typeURL && h.wanted {
			req.ResourceLocators = append(req.ResourceLocators, h.ask.message())
			req.ResourceNames = append(req.ResourceNames, h.ask.name) // to be ignored
		}
	}
	if w.facts != nil {
		req.ResourceLocators = nil
		req.ResourceNames = append(req.ResourceNames, "never") // no names would be a wildcard
	}
	w.send(req)
}

func (w *tp2SotW) request(typeURL string, names []string, locators ...*discoverypb.ResourceLocator) {
	w.t.Helper()
	w.send(&discoverypb.DiscoveryRequest{
		Node: tp2Node(w.node), TypeUrl: typeURL, ResponseNonce: w.nonces[typeURL],
		ResourceNames: names, ResourceLocators: locators,
	})
}

func (w *tp2SotW) receive() tp2Reply {
	w.t.Helper()
	resp := w.recv()
	w.nonces[resp.GetTypeUrl()] = resp.GetNonce()
	r := tp2Reply{typeURL: resp.GetTypeUrl(), errors: resp.GetResourceErrors()}
	for _, packed := range resp.GetResources() {
		resource := &discoverypb.Resource{Resource: packed}
		if packed.GetTypeUrl() == typeurl.Wrapper {
			resource = new(discoverypb.Resource)
			xdstest.NoError(w.t, proto.Unmarshal(packed.GetValue(), resource))
		}
		r.resources = append(r.resources, resource)
	}
	return r
}

func (w *tp2SotW) take(c *tp2Client) string {
	c.t.Helper()
	r := w.receive()
	if r.typeURL == custom {
		return custom
	}
	for _, resource := range r.resources {
		if resource.GetName() == "" {
			c.t.Errorf("a resource of type %s is not wrapped", resource.GetResource().GetTypeUrl())
		}
	}
	full := r.typeURL == lds || r.typeURL == cds
	if w.facts != nil {
		w.facts.learn(c, r.typeURL, r.resources, nil, r.errors, full)
	} else {
		c.learn(r.typeURL, r.resources, r.errors, full)
	}
	w.ask(c, r.typeURL) // it may have ignored an earlier one, for this response
	return r.typeURL
}

type tp2Delta struct {
	*twinDelta
	node string
	// facts is set for a client that subscribes by names.
	facts facts
	// begun are the types with a request.
	begun map[string]bool
}

func newTP2Delta(t testing.TB, s *testServer, node string) tp2Wire {
	return &tp2Delta{s.openTwinDelta(t), node, nil, map[string]bool{}}
}

func (w *tp2Delta) change(c *tp2Client, added, removed []ask) {
	if w.facts != nil {
		w.changeNames(c, added, removed)
		return
	}
	types := map[string]*discoverypb.DeltaDiscoveryRequest{}
	of := func(typeURL string) *discoverypb.DeltaDiscoveryRequest {
		if types[typeURL] == nil {
			types[typeURL] = &discoverypb.DeltaDiscoveryRequest{Node: tp2Node(w.node), TypeUrl: typeURL}
		}
		return types[typeURL]
	}
	for _, a := range added {
		req := of(a.typeURL)
		req.ResourceLocatorsSubscribe = append(req.ResourceLocatorsSubscribe, a.message())
		req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, a.name) // to be ignored
	}
	for _, a := range removed {
		req := of(a.typeURL)
		req.ResourceLocatorsUnsubscribe = append(req.ResourceLocatorsUnsubscribe, a.message())
	}
	for _, req := range types {
		w.send(req)
	}
}

// changeNames subscribes and unsubscribes by names. The first request of a type has the
// versions of what the client has.
func (w *tp2Delta) changeNames(c *tp2Client, added, removed []ask) {
	for _, typeURL := range modelTypes {
		req := &discoverypb.DeltaDiscoveryRequest{TypeUrl: typeURL}
		for _, a := range added {
			if a.typeURL == typeURL {
				req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, a.name)
			}
		}
		for _, a := range removed {
			if a.typeURL == typeURL {
				req.ResourceNamesUnsubscribe = append(req.ResourceNamesUnsubscribe, a.name)
			}
		}
		w.facts.forgetUnwanted(c, typeURL)
		if len(req.ResourceNamesSubscribe) == 0 && (!w.begun[typeURL] || len(req.ResourceNamesUnsubscribe) == 0) {
			continue
		}
		if !w.begun[typeURL] {
			w.begun[typeURL] = true
			req.InitialResourceVersions = map[string]string{}
			for name, f := range w.facts[typeURL] {
				if f.version != "" {
					req.InitialResourceVersions[name] = f.version
				}
			}
		}
		w.send(req)
	}
}

func (w *tp2Delta) request(typeURL string, names []string, locators ...*discoverypb.ResourceLocator) {
	w.t.Helper()
	w.send(&discoverypb.DeltaDiscoveryRequest{
		Node: tp2Node(w.node), TypeUrl: typeURL, ResourceNamesSubscribe: names, ResourceLocatorsSubscribe: locators,
	})
}

func (w *tp2Delta) receive() tp2Reply {
	w.t.Helper()
	resp := w.recv()
	return tp2Reply{resp.GetTypeUrl(), resp.GetResources(), resp.GetResourceErrors()}
}

func (w *tp2Delta) take(c *tp2Client) string {
	c.t.Helper()
	resp := w.recv()
	switch {
	case resp.GetTypeUrl() == custom:
	case w.facts != nil:
		w.facts.learn(c, resp.GetTypeUrl(), resp.GetResources(), resp.GetRemovedResources(), resp.GetResourceErrors(), false)
		w.facts.forgetUnwanted(c, resp.GetTypeUrl()) // it was on its way
		w.send(&discoverypb.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()})
	default:
		c.forget(resp.GetTypeUrl(), resp.GetRemovedResources(), resp.GetRemovedResourceNames())
		c.learn(resp.GetTypeUrl(), resp.GetResources(), resp.GetResourceErrors(), false)
	}
	return resp.GetTypeUrl()
}
