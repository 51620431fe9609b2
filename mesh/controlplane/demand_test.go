package controlplane_test

import (
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
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
func TestOnDemand_OtherBytesUnderTheSameVersion(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
		s := startServer(t)
		src := newSource(t, s.store, dynparam.MapTypeURL, eds)
		c := open(s)
		for typeURL, name := range map[string]string{dynparam.MapTypeURL: dpdsName, eds: "a"} {
			c.subscribe(typeURL, name)
			d := src.wantBegun(name)[0]
			for _, content := range []string{"spoilt", "correct"} {
				src.answer(d, given(t, "1", name, variant(typeURL, content)))
				if got := c.next().values; len(got) != 1 || !strings.Contains(got[0], content) {
					t.Errorf("got %q, want it to be %s", got, content)
				}
			}
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
