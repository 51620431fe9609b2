package xdsclient

import (
	"errors"

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
		c, err := New(cfg)
		if err != nil {
			return nil, nil, err
		}
		return c, c.shutDown, nil
	})
}
