package controlplane_test

import (
	"slices"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
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
	if first.version == second.version {
		t.Errorf("both versions are %q", first.version)
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
			c := newRawClient(t, discoverypb.NewAggregatedDiscoveryServiceClient(s.conn).StreamAggregatedResources)
			c.send(&sotwRequest{Node: &corepb.Node{Id: "n", ClientFeatures: tt.features}, TypeUrl: cds})
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

// Envoy, "ACK/NACK and resource type instance version": a request for an older
// response than the last is ignored, with all that is in it.
func TestSotW_StaleNonceIsIgnored(t *testing.T) {
	s, c := startSotW(t, xdsmsg.RouteConfig("a", "*"), xdsmsg.RouteConfig("b", "*"))
	c.subscribe(rds, "a")
	old := c.want(rds, "a")
	s.set(t, xdsmsg.RouteConfig("a", "changed"))
	current := c.want(rds, "a")

	c.nack(old, "too late", "a", "b")
	ts := c.typeStatus(s.control, rds)
	if ts.Reply != controlplane.ReplyAwaited || ts.NACK != nil || !slices.Equal(ts.Names, []string{"a"}) {
		t.Errorf("after a stale NACK: %+v", ts)
	}
	c.ack(current, "a", "b")
	c.want(rds, "b")
}

// A client may ask for more before the first response has reached it.
func TestSotW_RequestsBeforeFirstResponse(t *testing.T) {
	_, c := startSotW(t, xdsmsg.RouteConfig("a", "*"), xdsmsg.RouteConfig("b", "*"))
	c.subscribe(rds, "a")
	c.subscribe(rds, "a", "b")
	var got []string
	for len(got) < 2 {
		got = append(got, c.next().content...)
	}
	if !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %q", got)
	}
	c.fence()
}

// Envoy, "ACK" and "NACK".
func TestSotW_ACKAndNACKAreToldApart(t *testing.T) {
	s, c := startSotW(t, xdsmsg.RouteConfig("a", "*"), xdsmsg.RouteConfig("b", "*"))
	c.subscribe(rds, "a")
	v1 := c.want(rds, "a")
	if ts := c.typeStatus(s.control, rds); ts.Reply != controlplane.ReplyAwaited || ts.SentNonce != v1.nonce {
		t.Errorf("before the answer: %+v", ts)
	}

	c.ack(v1, "a")
	if ts := c.typeStatus(s.control, rds); ts.Reply != controlplane.ReplyACK || ts.ACKedVersion != v1.version || ts.NACK != nil {
		t.Errorf("after the ACK: %+v", ts)
	}

	s.set(t, xdsmsg.RouteConfig("a", "bad"))
	v2 := c.want(rds, "a")
	c.request(request{typeURL: rds, names: []string{"a"}, answers: reply{version: v1.version, nonce: v2.nonce}, rejected: "bad domain"})
	check := func(when string) {
		t.Helper()
		ts := c.typeStatus(s.control, rds)
		if ts.Reply != controlplane.ReplyNACK || ts.ACKedVersion != v1.version || ts.SentVersion != v2.version {
			t.Errorf("%s: %+v", when, ts)
		}
		if ts.NACK == nil || ts.NACK.Err.Message() != "bad domain" || ts.NACK.Err.Code() != codes.InvalidArgument || ts.NACK.Version != v2.version || ts.NACK.Nonce != v2.nonce {
			t.Errorf("%s: NACK is %+v", when, ts.NACK)
		}
	}
	check("after the NACK")

	// A change of subscription repeats the nonce, and accepts nothing.
	c.request(request{typeURL: rds, names: []string{"a", "missing"}, answers: reply{version: v1.version, nonce: v2.nonce}})
	check("after a change of subscription")

	c.ack(v2, "a")
	check("after a request that has the NACKed version and no error")

	s.set(t, xdsmsg.RouteConfig("a", "good"))
	v3 := c.want(rds, "a")
	c.ack(v3, "a")
	if ts := c.typeStatus(s.control, rds); ts.Reply != controlplane.ReplyACK || ts.ACKedVersion != v3.version || ts.NACK == nil {
		t.Errorf("after the next ACK: %+v", ts)
	}
}

func TestSotW_NothingIsResentAfterNACKUntilSomethingChanges(t *testing.T) {
	s, c := startSotW(t, cluster("c1"), cluster("c2"))
	c.subscribe(cds, "c1")
	bad := c.want(cds, "c1")
	for range 3 {
		c.nack(bad, "no", "c1")
	}
	c.fence()
	s.set(t, cluster("c1")) // the same bytes
	c.fence()
	c.nack(bad, "no", "c1", "c2")
	c.nack(c.want(cds, "c1", "c2"), "no", "c1", "c2")
	c.fence()
	s.set(t, changed("c1", "new"))
	c.want(cds, "c1", "c2")
}

// Envoy, "ACK/NACK and resource type instance version": a nonce belongs to its
// stream, and the version of a reconnecting client is no reason for silence.
func TestSotW_ReconnectingClientGetsItsSubscriptions(t *testing.T) {
	t.Parallel()
	for _, typeURL := range []string{rds, cds} {
		t.Run(typeURL, func(t *testing.T) {
			s, c := startSotW(t, cluster("x"), xdsmsg.RouteConfig("x", "*"))
			c.subscribe(typeURL, "x")
			before := c.want(typeURL, "x")
			c.ack(before, "x")
			c.cancel()

			c = s.open(t)
			c.ack(before, "x") // version and even nonce of the stream before
			again := c.want(typeURL, "x")
			if again.version != before.version {
				t.Errorf("version %q became %q without a change", before.version, again.version)
			}
			if ts := c.typeStatus(s.control, typeURL); ts.Reply != controlplane.ReplyAwaited {
				t.Errorf("the nonce of another stream counted: %+v", ts)
			}
		})
	}
}

// Envoy, "Eventual consistency considerations".
func TestSotW_PushOrderIsMakeBeforeBreak(t *testing.T) {
	s, c := startSotW(t)
	c.subscribe(custom, "x")
	c.subscribe(rds, "r")
	c.subscribe(eds, "e")
	c.subscribe(lds, "l")
	c.want(lds)
	c.subscribe(cds, "c")
	c.want(cds)
	c.fenceOff(rds)
	s.update(t, func(tx *controlplane.Tx) {
		tx.SetNamed("x", nil, wrapperspb.String("x"))
		tx.Set(xdsmsg.RouteConfig("r", "*"), xdsmsg.DefaultListener("l", "r"), xdsmsg.SimpleEndpoints("e", "127.0.0.1:1"), cluster("c"))
	})
	version := c.want(cds, "c").version
	for _, next := range []struct{ typeURL, name string }{{eds, "e"}, {lds, "l"}, {rds, "r"}, {custom, "x"}} {
		if v := c.want(next.typeURL, next.name).version; v != version {
			t.Errorf("version of %s is %q, of Cluster %q, in one update", next.typeURL, v, version)
		}
	}
}

// fenceOff returns when the server has taken in all requests so far, without a
// subscription of the custom type.
func (c *client) fenceOff(typeURL string) {
	c.t.Helper()
	if _, err := c.store.Update(func(tx *controlplane.Tx) { tx.Set(xdsmsg.RouteConfig("fence", "*")) }); err != nil {
		c.t.Fatal(err)
	}
	c.subscribe(typeURL, "r", "fence")
	c.want(typeURL, "fence")
}

// Envoy, "Eventual consistency considerations": stale Clusters go last.
func TestSotW_DeletedClusterGoesAfterTheRoutesThatLeaveIt(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, names ...string) (*testServer, *client) {
		s := startServer(t)
		s.set(t, cluster("old"), cluster("stays"), xdsmsg.RouteConfig("r", "*", xdsmsg.PrefixRoute("/", "old")))
		c := s.open(t)
		c.subscribe(cds, names...)
		c.want(cds, "old", "stays")
		c.subscribe(rds, "r")
		c.want(rds, "r")
		return s, c
	}
	reroute := xdsmsg.RouteConfig("r", "*", xdsmsg.PrefixRoute("/", "new"))

	t.Run("deleted only", func(t *testing.T) {
		t.Parallel()
		s, c := open(t, "old", "stays")
		s.update(t, func(tx *controlplane.Tx) {
			tx.Delete(cds, "old")
			tx.Set(reroute)
		})
		c.want(rds, "r")
		c.want(cds, "stays")
		c.fence()
	})
	t.Run("deleted and added", func(t *testing.T) {
		t.Parallel()
		s, c := open(t)
		s.update(t, func(tx *controlplane.Tx) {
			tx.Delete(cds, "old")
			tx.Set(cluster("new"), reroute)
		})
		c.want(cds, "new", "old", "stays")
		c.want(rds, "r")
		c.want(cds, "new", "stays")
		c.fence()
	})
	t.Run("deleted and changed", func(t *testing.T) {
		t.Parallel()
		s, c := open(t)
		s.update(t, func(tx *controlplane.Tx) {
			tx.Delete(cds, "old")
			tx.Set(changed("stays", "new"), reroute)
		})
		c.want(cds, "old", "stays")
		c.want(rds, "r")
		c.want(cds, "stays")
	})
	t.Run("nothing but Clusters", func(t *testing.T) {
		t.Parallel()
		s, c := open(t)
		s.update(t, func(tx *controlplane.Tx) {
			tx.Delete(cds, "old")
			tx.Set(cluster("new"))
		})
		c.want(cds, "new", "stays")
		c.fence()
	})
}
