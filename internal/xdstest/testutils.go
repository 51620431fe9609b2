package xdstest

import (
	"context"
	"sync"
	"time"

	"github.com/dynxds/dynxds/testutils"
)

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
