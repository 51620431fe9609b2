package dpdswrapper

import (
	"sync"

	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// pool is the registry of the shared wrappers of the process, and of the
// constraints that the program has set.
var pool = struct {
	sync.Mutex
	// everywhere holds for all bootstraps.
	everywhere dynparam.ByType
	// members are by the fingerprint of their bootstrap.
	members map[string]*member
}{members: make(map[string]*member)}

// member is what the pool has for bootstraps of one fingerprint. It exists while
// there is a wrapper or there are constraints.
type member struct {
	// constraints were set for this bootstrap.
	constraints dynparam.ByType
	// wrapper is nil while nobody holds it.
	wrapper *Wrapper
	users   int
	release func()
}

// Acquire returns the wrapper that all holders of a bootstrap with this
// fingerprint in the process share; it is over the client of xdsclient.Acquire, and
// comes and goes with it. The constraints that the program has set apply from the
// first watch on. release may be called again, and from anywhere.
func Acquire(cfg *bootstrap.Config) (w *Wrapper, release func(), err error) {
	client, releaseClient, err := xdsclient.Acquire(cfg)
	if err != nil {
		return nil, nil, err
	}
	pool.Lock()
	defer pool.Unlock()
	m := memberOf(cfg.Fingerprint())
	if m.wrapper == nil {
		m.wrapper = New(client)
		m.wrapper.SetConstraints(pool.everywhere.Merge(m.constraints))
		m.release = releaseClient
	} else {
		releaseClient() // the wrapper holds the client once for all of its users
	}
	m.users++
	return m.wrapper, sync.OnceFunc(func() { m.leave(cfg.Fingerprint()) }), nil
}

// SetConstraints sets the constraints that the program has of its own, for all
// shared wrappers of the process, now and later. They replace those of the last
// call; the zero value takes them back.
func SetConstraints(constraints dynparam.ByType) {
	pool.Lock()
	defer pool.Unlock()
	pool.everywhere = constraints
	for _, m := range pool.members {
		m.constrain()
	}
}

// SetConstraintsFor does the same for the wrapper of one bootstrap, or rather of
// its fingerprint. Where it and SetConstraints constrain a key, it wins. What was
// set is kept while no channel is open.
func SetConstraintsFor(cfg *bootstrap.Config, constraints dynparam.ByType) {
	pool.Lock()
	defer pool.Unlock()
	m := memberOf(cfg.Fingerprint())
	m.constraints = constraints
	m.constrain()
	m.tidy(cfg.Fingerprint())
}

// memberOf returns the member for a fingerprint. The caller holds the pool's lock,
// as for all that follows.
func memberOf(fingerprint string) *member {
	m, ok := pool.members[fingerprint]
	if !ok {
		m = new(member)
		pool.members[fingerprint] = m
	}
	return m
}

func (m *member) constrain() {
	if m.wrapper != nil {
		m.wrapper.SetConstraints(pool.everywhere.Merge(m.constraints))
	}
}

// tidy drops a member that has nothing to remember.
func (m *member) tidy(fingerprint string) {
	if m.wrapper == nil && m.constraints.Equal(dynparam.ByType{}) {
		delete(pool.members, fingerprint)
	}
}

// leave takes the pool's lock.
func (m *member) leave(fingerprint string) {
	pool.Lock()
	defer pool.Unlock()
	if m.users--; m.users > 0 {
		return
	}
	m.release()
	m.wrapper, m.release = nil, nil
	m.tidy(fingerprint)
}
