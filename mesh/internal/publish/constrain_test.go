package publish_test

import (
	"context"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/bootstrapfile"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/mesh/meshroute"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

const testTimeout = 30 * time.Second

// dynamicClient subscribes by locators. It sends only what the test sends.
type dynamicClient struct {
	*cmdtest.Stream[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse]
	t    testing.TB
	node *corepb.Node
}

// served is a server over a site's store.
type served struct {
	t       testing.TB
	control *controlplane.Server
	addr    string
}

// serve puts a server over the store until the test ends.
func (s *site) serve() *served {
	s.t.Helper()
	v := &served{t: s.t}
	opts := publish.Options{Authority: "mesh", Refresh: func() { v.control.RefreshNodeConstraints(nil) }}
	opts.Await = func(ctx context.Context, ok func(controlplane.ClientStatus) bool) int {
		return v.control.Await(ctx, ok)
	}
	s.publisher = publish.New(s.store, opts)
	v.control = controlplane.NewServer(s.store, controlplane.Options{NodeConstraints: s.publisher.NodeConstraints})
	v.addr = cmdtest.Serve(s.t, func(g *grpc.Server) { v.control.Register(g) })
	s.t.Cleanup(v.control.Close)
	return v
}

// connect opens a stream.
func (v *served) connect(node *corepb.Node) *dynamicClient {
	v.t.Helper()
	return &dynamicClient{cmdtest.SotW(v.t, cmdtest.Dial(v.t, v.addr)), v.t, node}
}

// ask subscribes to one resource of a type, and answers a response, which may be nil.
func (c *dynamicClient) ask(typeURL, name string, constraints dynparam.Constraints, answered *discoverypb.DiscoveryResponse) {
	c.t.Helper()
	c.Send(&discoverypb.DiscoveryRequest{
		Node: c.node, TypeUrl: typeURL, VersionInfo: answered.GetVersionInfo(), ResponseNonce: answered.GetNonce(),
		ResourceLocators: []*discoverypb.ResourceLocator{{Name: name, DynamicParameterConstraints: constraints.ToProto()}},
	})
}

// recv returns the next response, and expects this type.
func (c *dynamicClient) recv(typeURL string) *discoverypb.DiscoveryResponse {
	c.t.Helper()
	response := c.Recv()
	if response.GetTypeUrl() != typeURL {
		c.t.Fatalf("got a response of type %s, want %s: %v", response.GetTypeUrl(), typeURL, response)
	}
	return response
}

// unwrap opens the Resource that a resource comes in.
func (c *dynamicClient) unwrap(packed *anypb.Any) *discoverypb.Resource {
	c.t.Helper()
	envelope := &discoverypb.Resource{}
	xdstest.NoError(c.t, proto.Unmarshal(packed.GetValue(), envelope))
	return envelope
}

// constraintsIn returns those for routes of a DPDS response.
func (c *dynamicClient) constraintsIn(response *discoverypb.DiscoveryResponse) dynparam.Constraints {
	c.t.Helper()
	envelope := c.unwrap(response.GetResources()[0])
	m, err := dynwire.UnmarshalMap(envelope.GetResource())
	xdstest.NoError(c.t, err)
	byType, err := dynparam.ByTypeFromProto(m)
	xdstest.NoError(c.t, err)
	return byType.For(meshroute.RouteConfigurationType)
}

// join subscribes to DPDS and then to the routes to backend, as DPDS says.
func (c *dynamicClient) join() (routes *discoverypb.DiscoveryResponse) {
	c.t.Helper()
	c.ask(dynparam.MapTypeURL, dpdsName, dynparam.Constraints{}, nil)
	dpds := c.recv(dynparam.MapTypeURL)
	c.ask(dynparam.MapTypeURL, dpdsName, dynparam.Constraints{}, dpds)
	c.ask(meshroute.RouteConfigurationType, named, c.constraintsIn(dpds), nil)
	routes = c.recv(meshroute.RouteConfigurationType)
	c.ask(meshroute.RouteConfigurationType, named, c.constraintsIn(dpds), routes)
	return routes
}

var dpdsName = bootstrapfile.DPDSName("mesh")

// publishing publishes the folder in the background.
func (s *site) publishing() <-chan publish.Summary {
	published := make(chan publish.Summary, 1)
	go func() {
		summary, err := s.tryPublish()
		if err != nil {
			s.t.Error(err)
		}
		published <- summary
	}()
	return published
}

// The first policy that selects clients by some tag: a DPDS client gets its new constraints
// and the time to subscribe with them, so that it never gets the routes of a more specific
// kind of client (TP2, "Matching Ambiguity").
func TestConstraintsComeBeforeVariants(t *testing.T) {
	t.Parallel()
	s := newSite(t, publish.Options{Authority: "mesh"})
	server := s.serve()
	s.publisher.SetPatience(testTimeout)
	s.change("services.yaml", services)
	c := server.connect(node("batch", "v1"))
	routes := c.join()

	s.write("consumer.yaml", policy("consumer", "{kind: MeshService, name: frontend}", "v2"))
	published := s.publishing()
	constraints := c.constraintsIn(c.recv(dynparam.MapTypeURL))
	if constraints.IsZero() {
		t.Fatal("DPDS has no constraints, although policies select clients by service")
	}
	// The client takes its time: it asks for something else first.
	c.ask(meshroute.ListenerType, "xdstp://mesh/envoy.config.listener.v3.Listener/backend", dynparam.Constraints{}, nil)
	c.recv(meshroute.ListenerType)
	select {
	case summary := <-published:
		t.Fatalf("%+v was published before the client has its new constraints", summary)
	default:
	}
	c.ask(meshroute.RouteConfigurationType, named, constraints, routes)
	if summary := <-published; summary.Late != 0 {
		t.Errorf("%d clients are counted as late", summary.Late)
	}
	for _, packed := range c.recv(meshroute.RouteConfigurationType).GetResources() {
		if service, ok := c.unwrap(packed).GetDynamicParameters()["service"]; ok {
			t.Errorf("the client was sent the routes of %s", service)
		}
	}
}

// An update waits a bounded time for clients that do not take their new constraints, and
// counts them; it does not wait for clients that disconnect.
func TestUpdatesDoNotWaitForever(t *testing.T) {
	t.Parallel()
	s := newSite(t, publish.Options{Authority: "mesh"})
	server := s.serve()
	s.publisher.SetPatience(100 * time.Millisecond)
	s.change("services.yaml", services)
	stubborn := server.connect(node("batch", "v1"))
	stubborn.join()

	summary := s.change("consumer.yaml", policy("consumer", "{kind: MeshService, name: frontend}", "v2"))
	if summary.Late != 1 || s.cluster("backend", node("frontend", "")) != "backend;version=v2" {
		t.Errorf("got %+v, want it to be published with one client that is late", summary)
	}

	s.publisher.SetPatience(testTimeout)
	s.write("consumer.yaml", policy("consumer", "{kind: MeshSubset, tags: {zone: a}}", "v2"))
	published := s.publishing()
	stubborn.recv(dynparam.MapTypeURL)
	stubborn.Cancel()
	if summary := <-published; summary.Late != 0 {
		t.Errorf("%d clients are counted as late, although the only one left", summary.Late)
	}
}
