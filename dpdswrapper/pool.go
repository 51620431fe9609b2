package dpdswrapper

import (
	"errors"
	"sync"

	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/refpool"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// pool has the shared wrappers of the process, by the fingerprint of their bootstrap.
var pool refpool.Pool[string, *wrapper]

// program has the constraints that the program has set. Its lock is taken while the pool's is
// held, not the other way round.
var program = struct {
	sync.Mutex
	everywhere dynparam.ByType            // for all bootstraps
	only       map[string]dynparam.ByType // by fingerprint
}{only: make(map[string]dynparam.ByType)}

// Acquire returns the client of the channels with the given target, over an xdsclient.XDSClient, which the
// process shares for bootstraps with this fingerprint: the first call makes it, and the last release closes it. recorder, which
// may be nil, gets the metrics of that client; see xdsclient.XDSClient.Attach. The constraints that
// the program has set apply from the first watch on. release may be called repeatedly, and from any goroutine, watchers
// included: it does not wait for the client's streams and goroutines, which end soon after.
func Acquire(cfg *bootstrap.Config, target string, recorder estats.MetricsRecorder) (c xdsclient.Client, release func(), err error) {
	w, leave, err := acquireWrapper(cfg)
	if err != nil {
		return nil, nil, err
	}
	detach := w.attach(target, recorder)
	return w.ForTarget(target), func() { detach(); leave() }, nil
}

// acquireWrapper returns the wrapper that the process shares for bootstraps with this fingerprint.
// release may be called repeatedly.
func acquireWrapper(cfg *bootstrap.Config) (w *wrapper, release func(), err error) {
	if cfg == nil {
		return nil, nil, errors.New("dpdswrapper: a client needs a bootstrap")
	}
	return pool.Acquire(cfg.Fingerprint(), func() (*wrapper, func(), error) {
		client, err := xdsclient.New(cfg, xdsclient.Options{})
		if err != nil {
			return nil, nil, err
		}
		w := newWrapper(client)
		w.attach = client.Attach
		w.setConstraints(constraintsFor(cfg.Fingerprint()))
		return w, client.Shutdown, nil
	})
}

// SetConstraints sets the program's own constraints for the shared wrapper of a bootstrap, by
// its fingerprint, or for all wrappers if cfg is nil. They also apply to later wrappers. They
// replace those of the last call for the same bootstrap; the zero value removes them. On the
// same key, those for the bootstrap take precedence.
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
	// Of two concurrent calls, the second one here finds what both have set.
	pool.Each(func(fingerprint string, w *wrapper) {
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
