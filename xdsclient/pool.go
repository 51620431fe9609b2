package xdsclient

import (
	"errors"
	"sync"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// pool is the registry of the shared clients of the process by fingerprint of
// their bootstrap.
var pool = struct {
	sync.Mutex
	clients map[string]*shared
}{clients: make(map[string]*shared)}

// shared is a client and how many hold it.
type shared struct {
	client *XDSClient
	users  int
}

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
	pool.Lock()
	defer pool.Unlock()
	s, ok := pool.clients[cfg.Fingerprint()]
	if !ok {
		c, err := New(cfg)
		if err != nil {
			return nil, nil, err
		}
		s = &shared{client: c}
		pool.clients[cfg.Fingerprint()] = s
	}
	s.users++
	return s.client, sync.OnceFunc(func() { s.release(cfg.Fingerprint()) }), nil
}

func (s *shared) release(fingerprint string) {
	pool.Lock()
	s.users--
	last := s.users == 0
	if last {
		delete(pool.clients, fingerprint)
	}
	pool.Unlock()
	if last { // nobody can get hold of it any more
		s.client.shutDown()
	}
}
