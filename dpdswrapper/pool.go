package dpdswrapper

import (
	"errors"
	"sync"

	"github.com/dynxds/dynxds/internal/refpool"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// pool has the shared wrappers of the process by the fingerprint of their bootstrap.
var pool refpool.Pool[string, *Wrapper]

// program has the constraints that the program has set. Its lock is taken with the
// pool's, not the other way round.
var program = struct {
	sync.Mutex
	// everywhere holds for all bootstraps.
	everywhere dynparam.ByType
	// only holds for bootstraps with a fingerprint.
	only map[string]dynparam.ByType
}{only: make(map[string]dynparam.ByType)}

// Acquire returns the wrapper that all holders of a bootstrap with this
// fingerprint in the process share; it is over the client of xdsclient.Acquire, and
// comes and goes with it. The constraints that the program has set apply from the
// first watch on. release may be called again, and from anywhere.
func Acquire(cfg *bootstrap.Config) (w *Wrapper, release func(), err error) {
	if cfg == nil {
		return nil, nil, errors.New("dpdswrapper: a client needs a bootstrap")
	}
	return pool.Acquire(cfg.Fingerprint(), func() (*Wrapper, func(), error) {
		client, release, err := xdsclient.Acquire(cfg)
		if err != nil {
			return nil, nil, err
		}
		w := newWrapper(client)
		w.setConstraints(constraintsFor(cfg.Fingerprint()))
		return w, release, nil
	})
}

// SetConstraints sets the constraints that the program has of its own for the wrapper of
// a bootstrap, or rather of its fingerprint; for all shared wrappers of the process if
// cfg is nil. They apply to wrappers now and later, and are kept while no channel is
// open. They replace those of the last call for the same; the zero value takes them
// back. Where both constrain a key, those for the bootstrap win.
func SetConstraints(cfg *bootstrap.Config, constraints dynparam.ByType) {
	program.Lock()
	switch {
	case cfg == nil:
		program.everywhere = constraints
	case constraints.Equal(dynparam.ByType{}):
		delete(program.only, cfg.Fingerprint())
	default:
		program.only[cfg.Fingerprint()] = constraints
	}
	program.Unlock()
	// Of two calls at a time, the one that is second here finds what both have set.
	pool.Each(func(fingerprint string, w *Wrapper) {
		if cfg == nil || cfg.Fingerprint() == fingerprint {
			w.setConstraints(constraintsFor(fingerprint))
		}
	})
}

// constraintsFor returns the program's constraints for bootstraps of a fingerprint.
func constraintsFor(fingerprint string) dynparam.ByType {
	program.Lock()
	defer program.Unlock()
	return program.everywhere.Merge(program.only[fingerprint])
}
