package xdstest

import (
	"context"
	"sync"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// SetDPDS sets a resource of constraints that is computed for each client; see
// [controlplane.Tx.SetDPDS]. If the results of the function change, call RefreshDPDS of the store.
func (s *Server) SetDPDS(t testing.TB, name string, of func(node *corepb.Node) (dynparam.ByType, error)) {
	t.Helper()
	s.Update(t, func(tx *controlplane.Tx) { tx.SetDPDS(name, of) })
}

// Hold makes every new RPC of a backend wait until release is called or its context ends. release is
// idempotent; RPCs that begin after it are answered at once.
func Hold(b *testutils.Backend) (release func()) {
	held := make(chan struct{})
	b.SetBehaviour(func(ctx context.Context, _ testutils.RPC) error {
		select {
		case <-held:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return sync.OnceFunc(func() { close(held) })
}

// SlowLink returns a link with a delay for each direction.
func SlowLink(toServer, toClient time.Duration) *testutils.Link {
	link := new(testutils.Link)
	link.SetDelay(toServer, toClient)
	return link
}
