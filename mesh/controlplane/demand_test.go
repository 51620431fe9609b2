package controlplane_test

import (
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

func TestOnDemand_EndsAndBeginsBetweenTwoCalls(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
		s := startServer(t)
		src := newSource(t, s.store, eds)
		entered, leave := make(chan struct{}, 1), make(chan struct{})
		s.store.OnDemand(rds, func([]*controlplane.Demand, []*controlplane.Demand) {
			entered <- struct{}{}
			<-leave
		})
		c := open(s)
		c.subscribe(eds, "a", "b")
		src.wantBegun("a", "b")
		blocker := open(s)
		blocker.subscribe(rds, "r")
		receive(t, entered)
		// The source is not notified now.
		c.drop(eds, []string{"a"}, "b")
		c.drop(eds, []string{}, "a")
		c.subscribe(eds, "a", "c")
		c.drop(eds, []string{"a"}, "c")
		c.fence()
		close(leave)
		if d := receive(t, src.ended); d.Name != "b" {
			t.Errorf("%q ended", d.Name)
		}
		c.subscribe(eds, "a", "z")
		src.wantBegun("z") // the next: there was no notification of a or c
		src.wantNone()
	})
}

// A version that a source gives need not stand for the same bytes each time: its control plane may have
// corrected a resource that was spoilt on the way.
func TestTP2_OnDemandOtherBytesUnderTheSameVersion(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		src := newSource(t, s.store, dynparam.MapTypeURL, eds)
		c := open("one")
		for typeURL, name := range map[string]string{dynparam.MapTypeURL: dpdsName, eds: "a"} {
			h := c.subscribe(typeURL, name, unconstrained)
			d := src.wantBegun(name)[0]
			src.answer(d, given(t, "1", name, variant(typeURL, "spoilt")))
			c.wants(h, "spoilt")
			src.answer(d, given(t, "1", name, variant(typeURL, "correct")))
			c.wants(h, "correct")
		}
	})
}

// That a relay cannot reach its management servers is no answer for a client that may have the resource from before, and does not
// know the error: it would take the response without the resource for its deletion.
func TestOnDemand_CompleteResponsesOfARelayThatReachesNobody(t *testing.T) {
	t.Parallel()
	away, err := status.New(codes.Unavailable, "away").WithDetails(dialect.Unreachable())
	xdstest.NoError(t, err)
	for _, tt := range []struct {
		agent, feature, version string
		withheld                bool
	}{
		{"gRPC Go", "", "7", true},
		{"gRPC Go", "", "", false},
		{"dynxds", "", "7", false},
		{"gRPC Go", dialect.RelayFeature, "7", false},
	} {
		s := startServer(t)
		src := newSource(t, s.store, cds)
		c := s.open(t)
		c.wire.(sotwWire).send(&sotwRequest{
			Node: &corepb.Node{UserAgentName: tt.agent, ClientFeatures: []string{tt.feature}}, TypeUrl: cds,
			ResourceNames: []string{"a", "b"}, VersionInfo: tt.version,
		})
		d := src.wantBegun("a", "b")
		src.answer(d[1], given(t, "1", "b", cluster("b")))
		src.update(func(tx *controlplane.Tx) { tx.AnswerError(d[0], away) })
		if tt.withheld {
			c.fence()
			src.answer(d[0], given(t, "1", "a", cluster("a")))
			c.want(cds, "a", "b")
		} else {
			c.want(cds, "!a: Unavailable", "b")
		}
	}
}

// "Non-Cacheability of DPDS"
func TestTP2_OnDemandOfWhatMustNotBeCached(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		src := newSource(t, s.store, dynparam.MapTypeURL, eds)
		one, two := open("one"), open("two")
		first := one.subscribe(dynparam.MapTypeURL, dpdsName, unconstrained)
		d1 := src.wantBegun(dpdsName)[0]
		second := two.subscribe(dynparam.MapTypeURL, dpdsName, unconstrained)
		d2 := src.wantBegun(dpdsName)[0]
		if d1.Node.GetId() != "one" || d2.Node.GetId() != "two" || d1.Stream == 0 || d1.Stream == d2.Stream {
			t.Fatalf("the demands are of %v (%d) and %v (%d)", d1.Node, d1.Stream, d2.Node, d2.Stream)
		}
		src.answer(d1, given(t, "1", dpdsName, variant(dynparam.MapTypeURL, "")))
		src.fail(d2, codes.PermissionDenied, "not you")
		one.wants(first, "")
		two.wants(second, "PermissionDenied: not you")
		two.unsubscribe(second)
		two.settle()
		if isDelta(two) {
			src.wantEnded(d2)
		}

		// Any other resource, if its first answer has that cache control.
		a, b := one.subscribe(eds, "a", unconstrained), two.subscribe(eds, "a", unconstrained)
		shared := src.wantBegun("a")[0]
		private, err := controlplane.NewResource(&discoverypb.Resource{
			Name: "a", Resource: variant(eds, "secret"), CacheControl: &discoverypb.Resource_CacheControl{DoNotCache: true},
		})
		xdstest.NoError(t, err)
		one.settle()
		two.settle()
		src.answer(shared, private)
		for range 2 {
			d := src.wantBegun("a")[0]
			src.answer(d, given(t, "", "a", variant(eds, "for "+d.Node.GetId())))
		}
		for d := range src.ended {
			if d == shared {
				break
			}
		}
		one.wants(a, "for one")
		two.wants(b, "for two")
	})
}
