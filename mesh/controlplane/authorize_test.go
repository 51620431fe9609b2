package controlplane_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/mesh/controlplane"
)

// A stream for which Options.Authorize is slow to decide delays no other, unless there are many.
func TestServer_RefreshAuthorizationAsksForSomeAtATime(t *testing.T) {
	t.Parallel()
	const most = 16
	var closed, tooMany atomic.Bool
	var asking atomic.Int64
	all := make(chan struct{})
	arrived := sync.OnceFunc(func() { close(all) })
	s := startServer(t, controlplane.Options{Authorize: func(ctx context.Context, _ *corepb.Node, _, _ string) error {
		if !closed.Load() {
			return nil
		}
		switch n := asking.Add(1); {
		case n == most:
			for range 1000 {
				runtime.Gosched() // others would come now
			}
			arrived()
		case n > most:
			tooMany.Store(true)
		}
		select {
		case <-all:
		case <-ctx.Done():
			t.Errorf("%d streams are asked about at a time, want %d", asking.Load(), most)
		}
		asking.Add(-1)
		return status.Error(codes.PermissionDenied, "closed")
	}})
	s.setVariant(t, lds, "l", "one")
	clients := make([]*client, most+10)
	for i := range clients {
		clients[i] = s.openDelta(t)
		clients[i].subscribe(lds, "l")
		clients[i].next()
	}
	closed.Store(true)
	s.control.RefreshAuthorization()
	for _, c := range clients {
		if err := c.end(); status.Code(err) != codes.Unavailable {
			t.Errorf("a stream ended with %v, want UNAVAILABLE", err)
		}
	}
	if tooMany.Load() {
		t.Errorf("more than %d streams were asked about at a time", most)
	}
}

// The stream of a client that does not read ends too.
func TestServer_RefreshAuthorizationOfASilentClient(t *testing.T) {
	t.Parallel()
	var closed atomic.Bool
	s := startServer(t, controlplane.Options{MaxResponseSize: 1, Authorize: func(context.Context, *corepb.Node, string, string) error {
		if closed.Load() {
			return status.Error(codes.PermissionDenied, "closed")
		}
		return nil
	}})
	s.update(t, func(tx *controlplane.Tx) {
		for i := range 4 {
			tx.SetNamed(fmt.Sprint(i), nil, wrapperspb.String(strings.Repeat("x", 1<<20)))
		}
	})
	c := s.openDelta(t)
	c.subscribe(custom, "0", "1", "2", "3")
	c.next()
	closed.Store(true)
	s.control.RefreshAuthorization()
	s.awaitNoClients(t)
}
