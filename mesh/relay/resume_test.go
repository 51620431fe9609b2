package relay_test

import (
	"testing"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/relay"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// A SotW client without resource errors takes a Cluster for deleted if a response lacks it. If such a client
// comes back to a relay that has lost what it had, while the control plane is unreachable, its Clusters stay
// in use: it is sent none until the relay has them all. Clients that are new, or know the error, are not held up.
func TestClientsThatComeBackKeepWhatTheyHave(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, func(o *relay.Options) { o.AwayDelay = -1 }, features...)
		r.up.Set(t, xdsmsg.EDSCluster("cached", ""))
		r.subscriber("warm", "cached")
		r.up.Stop()
		r.awaitUnreachable()
		request := func(s *sotwStream, userAgent, version, typeURL string, names ...string) {
			n := node("a")
			n.UserAgentName = userAgent
			if userAgent == "relay" {
				n.ClientFeatures = relay.NodeFor(n, n).GetClientFeatures()
			}
			s.send(&discoverypb.DiscoveryRequest{Node: n, TypeUrl: typeURL, VersionInfo: version, ResourceNames: names})
		}
		young := r.sotw()
		request(young, "client", "", clusterType, "cached", "lost")
		for got := young.receive(); len(got.GetResourceErrors()) == 0; got = young.receive() {
			if len(got.GetResources()) != 1 {
				t.Errorf("a new client got %v, want the Cluster that the relay has", got)
			}
		}
		for _, userAgent := range []string{"dynxds", "relay"} {
			aware := r.sotw()
			request(aware, userAgent, "7", clusterType, "lost")
			if got := aware.receive(); len(got.GetResourceErrors()) != 1 {
				t.Errorf("%s, which knows the error, got %v, want it", userAgent, got)
			}
		}
		old := r.sotw()
		request(old, "client", "7", clusterType, "cached", "lost")
		request(old, "client", "7", typeurl.Endpoints, "lost")
		if got := old.receive(); got.GetTypeUrl() != typeurl.Endpoints || len(got.GetResourceErrors()) != 1 {
			t.Fatalf("got %v, want the error for the endpoints, and nothing of Clusters before", got)
		}
		r.up.Set(t, xdsmsg.EDSCluster("lost", ""))
		xdstest.NoError(t, r.up.Restart())
		for got := old.receive(); ; got = old.receive() {
			if got.GetTypeUrl() == clusterType {
				if len(got.GetResources()) != 2 {
					t.Errorf("got %v, want both Clusters at once", got)
				}
				return
			}
		}
	})
}
