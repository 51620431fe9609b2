package controlplane_test

import (
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// "Envoy" in these comments is Envoy's description of the xDS protocol.

func cluster(name string) *clusterpb.Cluster { return xdsmsg.EDSCluster(name, "") }

// changed is the cluster with other bytes.
func changed(name, alt string) *clusterpb.Cluster {
	c := cluster(name)
	c.AltStatName = alt
	return c
}

// Envoy, "How the client specifies what resources to return": the legacy wildcard ends with the first name, for good.
func TestSotW_WildcardEndsWithFirstName(t *testing.T) {
	s, c := startSotW(t, cluster("c1"), cluster("c2"))

	c.subscribe(cds)
	all := c.want(cds, "c1", "c2")
	c.ack(all, "c1")
	one := c.want(cds, "c1")
	c.ack(one) // no names: nothing at all from now on
	c.fence()
	s.set(t, cluster("c3"), changed("c1", "new"))
	c.fence()

	c.ack(one, "*")
	star := c.want(cds, "c1", "c2", "c3")
	s.set(t, cluster("c4"))
	next := c.want(cds, "c1", "c2", "c3", "c4")
	c.ack(star, "c9") // stale, so the star still holds
	c.ack(next, "*")
	c.fence()
	s.delete(t, cds, "c4")
	c.want(cds, "c1", "c2", "c3")
	c.fence()
}

// Envoy, "Resource updates" and "Deleting resources": Listener and Cluster
// responses are complete, so that omission deletes.
func TestSotW_ListenerAndClusterResponsesAreComplete(t *testing.T) {
	s, c := startSotW(t, cluster("c1"), cluster("c2"), cluster("other"))
	c.subscribe(cds, "c1", "c2")
	c.ack(c.want(cds, "c1", "c2"), "c1", "c2")

	s.set(t, changed("c1", "new"))
	c.ack(c.want(cds, "c1", "c2"), "c1", "c2")

	s.delete(t, cds, "c1")
	last := c.want(cds, "c2")

	s.set(t, cluster("c3"), changed("other", "new"))
	c.fence()
	c.ack(last, "c1", "c2", "c3")
	c.want(cds, "c2", "c3")
}

func TestSotW_OtherTypesGetOnlyWhatChanged(t *testing.T) {
	s, c := startSotW(t, xdsmsg.SimpleEndpoints("e1", "127.0.0.1:1"), xdsmsg.SimpleEndpoints("e2", "127.0.0.1:2"))
	c.subscribe(eds, "e1", "e2")
	first := c.want(eds, "e1", "e2")
	c.ack(first, "e1", "e2")

	s.set(t, xdsmsg.SimpleEndpoints("e1", "127.0.0.1:3"), xdsmsg.SimpleEndpoints("e2", "127.0.0.1:2"))
	second := c.want(eds, "e1")
	if first.GetVersionInfo() == second.GetVersionInfo() {
		t.Errorf("both versions are %q", first.GetVersionInfo())
	}

	s.set(t, xdsmsg.SimpleEndpoints("e3", "127.0.0.1:4"))
	c.ack(second, "e1", "e2", "e3")
	c.want(eds, "e3")

	// SotW cannot report the removal of an assignment.
	s.delete(t, eds, "e2")
	c.fence()
	s.set(t, xdsmsg.SimpleEndpoints("e2", "127.0.0.1:2"))
	c.want(eds, "e2")
}

// Envoy, "Unsubscribing from resources": what is asked for again is sent again.
func TestSotW_ResubscribedResourceIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, typeURL := range []string{rds, cds} {
		t.Run(typeURL, func(t *testing.T) {
			_, c := startSotW(t, xdsmsg.RouteConfig("a", "*"), xdsmsg.RouteConfig("b", "*"), cluster("a"), cluster("b"))
			c.subscribe(typeURL, "a", "b")
			first := c.want(typeURL, "a", "b")
			c.ack(first, "b")
			c.fence()
			c.ack(first, "a", "b")
			if typeURL == cds {
				c.want(cds, "a", "b")
			} else {
				c.want(rds, "a")
			}
		})
	}
}

func TestSotW_UnsubscribedResourceIsNotPushed(t *testing.T) {
	s, c := startSotW(t, xdsmsg.RouteConfig("a", "*"), xdsmsg.RouteConfig("b", "*"))
	c.subscribe(rds, "a", "b")
	c.ack(c.want(rds, "a", "b"), "b")
	c.fence()
	s.set(t, xdsmsg.RouteConfig("a", "changed"))
	c.fence()
	s.set(t, xdsmsg.RouteConfig("b", "changed"))
	c.want(rds, "b")
}

// Envoy, "Knowing when a requested resource does not exist".
func TestSotW_AbsentResource(t *testing.T) {
	s, c := startSotW(t, xdsmsg.DefaultListener("here", "r"))
	c.subscribe(lds, "here", "missing")
	c.ack(c.want(lds, "here"), "here", "missing")
	c.subscribe(rds, "missing")
	c.fence()
	s.set(t, xdsmsg.DefaultListener("missing", "r"), xdsmsg.RouteConfig("missing", "*"))
	c.want(lds, "here", "missing")
	c.want(rds, "missing")
}

// xds.config.resource-in-sotw, see envoy.service.discovery.v3.Resource.
func TestSotW_ResourceWrapping(t *testing.T) {
	t.Parallel()
	const feature = "xds.config.resource-in-sotw"
	tests := []struct {
		name     string
		opts     controlplane.Options
		features []string
		wrapped  bool
	}{
		{"neither", controlplane.Options{}, nil, false},
		{"client announces, server off", controlplane.Options{}, []string{feature}, false},
		{"server on, client does not announce", controlplane.Options{WrapResources: true}, []string{"envoy.lb.x"}, false},
		{"both", controlplane.Options{WrapResources: true}, []string{"envoy.lb.x", feature}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, tt.opts)
			s.set(t, cluster("c"))
			c := s.open(t)
			c.send(&discoverypb.DiscoveryRequest{
				Node: &corepb.Node{Id: "n", ClientFeatures: tt.features}, TypeUrl: cds,
			})
			resp := c.recv()
			if resp.GetTypeUrl() != cds || len(resp.GetResources()) != 1 {
				t.Fatalf("response: %v", resp)
			}
			stored := s.store.Get(cds, "c")
			got := resp.GetResources()[0]
			if tt.wrapped {
				var r discoverypb.Resource
				xdstest.NoError(t, got.UnmarshalTo(&r))
				if r.GetName() != "c" || r.GetVersion() != stored.Version() {
					t.Errorf("wrapper says name %q, version %q", r.GetName(), r.GetVersion())
				}
				got = r.GetResource()
			}
			if !proto.Equal(got, stored.Any()) {
				t.Errorf("resource is %v, want %v", got, stored.Any())
			}
		})
	}
}

// Part of "any type works": a type the package knows nothing of.
func TestSotW_CustomType(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.update(t, func(tx *controlplane.Tx) { tx.SetNamed("v", nil, wrapperspb.String("one")) })
	c := s.open(t)
	c.subscribe(custom, "v")
	c.want(custom, "one")
	s.update(t, func(tx *controlplane.Tx) { tx.SetNamed("v", nil, wrapperspb.String("two")) })
	c.want(custom, "two")
}
