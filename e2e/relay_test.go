package e2e_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/mesh/relay"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// directly skips a test that is about the connection between a client and its control plane while there
// is a relay.
func directly(t testing.TB, reason string) {
	t.Helper()
	if downstream != nil {
		t.Skip("with a relay in between: " + reason)
	}
}

// inOneWay skips a test in all ways but one, because neither the protocol nor a relay can matter to it: the
// resources do not change. It is the way that .ci/grpc-version runs.
func inOneWay(t testing.TB, reason string) {
	t.Helper()
	if protocol != "delta" || downstream != nil {
		t.Skip("over delta only: " + reason)
	}
}

// startRelay starts a relay in front of a control plane, which it asks for these features, and returns
// the relay's address as well.
func startRelay(t testing.TB, server *meshtest.Server, features []string, awayDelay time.Duration) (*relay.Relay, string) {
	t.Helper()
	cfg, err := bootstrap.Parse("relay", server.Bootstrap("relay", testutils.ServerFeatures(features...), testutils.Authority(tp2, "", nil)))
	xdstest.NoError(t, err)
	r, err := relay.New(relay.Options{
		Bootstrap: cfg,
		// No subscription outlives those of the clients.
		Linger:    -1,
		AwayDelay: awayDelay,
		Client:    xdsclient.Options{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}},
	})
	xdstest.NoError(t, err)
	s := grpc.NewServer()
	r.Register(s)
	addr := xdstest.Serve(t, nil, s)
	t.Cleanup(r.Close) // before the server's end
	return r, addr
}

// RPCs stay on the old routes while a relay that has lost its control plane lacks what the new ones name, as
// they do without a relay (gRFC A57). This relay reports the loss without a delay.
func TestNewRoutesWaitBehindARelayThatIsCutOff(t *testing.T) {
	everyWay(t)
	directly(t, "the test starts one")
	overLinks(t, func(t *testing.T) {
		m := newMesh(t)
		r, addr := startRelay(t, m.Server, m.features, -1)
		old, next := testutils.StartBackend(t, "old"), testutils.StartBackend(t, "next")
		m.serve(service, "old", old)
		m.keepSilent()
		cc := dialWith(t, "xds:///"+service, testutils.Bootstrap(t.Name(), addr, testutils.ServerFeatures("delta")))
		mustReach(t, cc, unary, old)
		load := loadOn(t, cc, old)

		m.set(xdsmsg.RouteConfig(service, service, toCluster("next")))
		awaitClusters(t, r, "a request for the new Cluster", func(s controlplane.TypeStatus) bool { return slices.Contains(s.Names, "next") })
		m.cutOff(1)
		awaitClusters(t, r, "the error at the client", func(s controlplane.TypeStatus) bool {
			return len(s.Errors) == 1 && s.Errors[0].Name == "next" && s.Reply == controlplane.ReplyACK
		})
		load.await(t, old)
		m.set(clusterOf("next", next))
		m.RefuseStreams(nil)
		load.await(t, next)
		load.Stop(t)
	})
}

// awaitClusters waits until the status of the Clusters of a relay's only client is ok.
func awaitClusters(t *testing.T, r *relay.Relay, what string, ok func(controlplane.TypeStatus) bool) {
	t.Helper()
	ctx := testutils.Context(t)
	for {
		for _, c := range r.Clients() {
			for _, s := range c.Types {
				if s.TypeURL == typeurl.Cluster && ok(s) {
					return
				}
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %v; the relay has %+v", what, ctx.Err(), r.Clients())
		case <-time.After(time.Millisecond):
		}
	}
}
