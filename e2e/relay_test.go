package e2e_test

import (
	"encoding/json"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/relay"
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

// startRelay starts a relay before a control plane with these features, and returns its address.
func startRelay(t testing.TB, server *xdstest.Server, features []string) string {
	t.Helper()
	cfg, err := bootstrap.Parse("relay", server.Bootstrap("relay", testutils.ServerFeatures(features...), testutils.Authority(tp2, "", nil),
		// A relay passes resources on as it gets them.
		testutils.TopLevel("overrides", json.RawMessage(`[{"clusters": "*", "circuit_breakers": {"max_requests": 0}}, {"routes": "*", "timeout": "0.000000001s"}]`))))
	xdstest.NoError(t, err)
	r, err := relay.New(relay.Options{
		Bootstrap: cfg,
		// A subscription that lingers would be one that no client has.
		Linger: -1,
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
	return listener.Addr().String()
}
