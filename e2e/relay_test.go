package e2e_test

import (
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/dynxds/dynxds/internal/xdstest"
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

// startRelay starts a relay in front of a control plane, which it asks for these features.
func startRelay(t testing.TB, server *meshtest.Server, features []string) (address string) {
	t.Helper()
	cfg, err := bootstrap.Parse("relay", server.Bootstrap("relay", testutils.ServerFeatures(features...), testutils.Authority(tp2, "", nil)))
	xdstest.NoError(t, err)
	r, err := relay.New(relay.Options{
		Bootstrap: cfg,
		// No subscription outlives those of the clients.
		Linger: -1,
		Client: xdsclient.Options{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}},
	})
	xdstest.NoError(t, err)
	s := grpc.NewServer()
	r.Register(s)
	addr := xdstest.Serve(t, nil, s)
	t.Cleanup(r.Close) // before the server's end
	return addr
}
