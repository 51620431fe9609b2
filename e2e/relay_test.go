package e2e_test

import (
	"encoding/json"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/relay"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// downstream is the server feature by which clients speak to the relay before the control plane; nil
// if there is none.
var downstream *string

// directly skips a test, as it is of the connection between a client and its control plane, while
// there is a relay.
func directly(t testing.TB, reason string) {
	t.Helper()
	if downstream != nil {
		t.Skip("with a relay in between: " + reason)
	}
}

// inOneWay skips a test in all ways but one, as neither the protocol nor a relay can matter to it: the
// resources stay as they are, and it is of what RPCs and backends then do. The way is the one that
// .ci/grpc-version runs, too.
func inOneWay(t testing.TB, reason string) {
	t.Helper()
	if protocol != "delta" || downstream != nil {
		t.Skip("over delta only: " + reason)
	}
}

// startRelay starts a relay before a control plane with these features, and returns its address.
func startRelay(t testing.TB, server *xdstest.Server, features []string) string {
	t.Helper()
	_, addr := startRelayWith(t, server, features, 0)
	return addr
}

// startRelayWith is startRelay for a relay with an Options.AwayDelay, which it returns as well.
func startRelayWith(t testing.TB, server *xdstest.Server, features []string, awayDelay time.Duration) (*relay.Relay, string) {
	t.Helper()
	cfg, err := bootstrap.Parse("relay", server.Bootstrap("relay", testutils.ServerFeatures(features...), testutils.Authority(tp2, "", nil),
		// A relay passes resources on as it gets them.
		testutils.TopLevel("overrides", json.RawMessage(`[{"clusters": "*", "circuit_breakers": {"max_requests": 0}}, {"routes": "*", "timeout": "0.000000001s"}]`))))
	xdstest.NoError(t, err)
	r, err := relay.New(relay.Options{
		Bootstrap: cfg,
		// A subscription that lingers would be one that no client has.
		Linger:    -1,
		AwayDelay: awayDelay,
		Client: []xdsclient.Option{
			xdsclient.WithBackoff(backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}),
		},
	})
	xdstest.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	s := grpc.NewServer()
	r.Register(s)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := s.Serve(listener); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		r.Close()
		s.Stop()
		<-served
	})
	return r, listener.Addr().String()
}

// RPCs stay on the old routes while a relay has nothing for the new ones, because its control plane is away:
// a client that is not behind a relay does the same (gRFC A57). Here the relay says so at once.
func TestNewRoutesWaitBehindARelayThatIsCutOff(t *testing.T) {
	directly(t, "the test has one")
	overLinks(t, func(t *testing.T) {
		m := newMesh(t)
		r, addr := startRelayWith(t, m.Server, m.features, -1)
		old, next := testutils.StartBackend(t, "old"), testutils.StartBackend(t, "next")
		m.serve(service, "old", old)
		m.keepSilent()
		b, err := resolver.NewBuilder(testutils.Bootstrap(t.Name(), addr, testutils.ServerFeatures("delta")))
		xdstest.NoError(t, err)
		cc := dial(t, "xds:///"+service, grpc.WithResolvers(b))
		mustReach(t, cc, unary, old)
		load := loadOn(t, cc, old)

		m.set(xdsmsg.RouteConfig(service, service, xdsmsg.PrefixRoute("", "next")))
		awaitClusters(t, r, "the new Cluster to be asked for", func(s controlplane.TypeStatus) bool { return slices.Contains(s.Names, "next") })
		m.cutOff(1)
		awaitClusters(t, r, "the client to know", func(s controlplane.TypeStatus) bool {
			return len(s.Errors) == 1 && s.Errors[0].Name == "next" && s.Reply == controlplane.ReplyACK
		})
		load.await(t, old)
		m.set(clusterOf("next", next)...)
		m.RefuseStreams(nil)
		load.await(t, next)
		load.stop(t)
	})
}

// awaitClusters waits until a relay's view of its only client's Clusters is as it should be.
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
