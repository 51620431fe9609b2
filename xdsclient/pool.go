package xdsclient

import (
	"errors"
	"slices"
	"sync"

	"github.com/dynxds/dynxds/internal/refpool"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// pool has the shared clients of the process by the fingerprint of their bootstrap.
var pool refpool.Pool[string, *XDSClient]

// Acquire returns the client that all holders of a bootstrap with this
// fingerprint in the process share. The first call makes it; when the last holder
// has released it, it is closed, and a later call makes a new one.
//
// release may be called again and from anywhere, watchers included: it does not
// wait for the client's streams and goroutines, which end soon after the last
// release.
func Acquire(cfg *bootstrap.Config) (c *XDSClient, release func(), err error) {
	if cfg == nil {
		return nil, nil, errors.New("xdsclient: a client needs a bootstrap")
	}
	return pool.Acquire(cfg.Fingerprint(), func() (*XDSClient, func(), error) {
		c, err := New(cfg, Options{})
		if err != nil {
			return nil, nil, err
		}
		return c, c.shutDown, nil
	})
}

// live is the registry of the clients of the process that were made and not
// closed, in the order in which they were made.
var live struct {
	sync.Mutex
	clients []*XDSClient
}

// Clients returns the clients of the process, shared or not, that were made and
// not closed, the oldest first. Clients that Acquire shares are among them until
// the last holder has released them.
func Clients() []*XDSClient {
	live.Lock()
	defer live.Unlock()
	return slices.Clone(live.clients)
}

func addClient(c *XDSClient) {
	live.Lock()
	defer live.Unlock()
	live.clients = append(live.clients, c)
}

// removeClient may be called again.
func removeClient(c *XDSClient) {
	live.Lock()
	defer live.Unlock()
	live.clients = slices.DeleteFunc(live.clients, func(x *XDSClient) bool { return x == c })
}
