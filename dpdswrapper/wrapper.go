package dpdswrapper

import (
	"maps"
	"slices"
	"sync"

	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Wrapper is an xdsclient.Client that attaches constraints to the watches it
// passes on. It is safe for concurrent use. It holds nothing that would have to be
// closed: it ends with the client below and its watches.
type Wrapper struct {
	below xdsclient.LocatorClient
	// configured are the constraints that the bootstrap gives.
	configured dynparam.ByType
	// dpds holds the names of the DPDS resources by authority.
	dpds map[string]string

	// mu guards what follows and everything that is reached from it.
	mu sync.Mutex
	// own are the client's own constraints: configured, and under those set at
	// run time.
	own dynparam.ByType
	// free is the scope of the names without DPDS.
	free *scope
	// scopes holds the others by the name of their DPDS resource, while they
	// have watches.
	scopes map[string]*scope
}

var _ xdsclient.Client = (*Wrapper)(nil)

// newWrapper returns a wrapper that is not shared with other callers; see Acquire.
func newWrapper(below xdsclient.LocatorClient) *Wrapper {
	configured := below.Bootstrap().Constraints
	w := &Wrapper{
		below:      below,
		configured: configured,
		dpds:       make(map[string]string),
		own:        configured,
		scopes:     make(map[string]*scope),
	}
	for name, a := range below.Bootstrap().Authorities {
		if a.DynamicParameterConstraintsResource != "" {
			w.dpds[name] = a.DynamicParameterConstraintsResource
		}
	}
	w.free = &scope{wrapper: w, phase: scopeAnswered}
	warnOfServers(below.Bootstrap(), configured)
	if strange := strangeTypes(configured); strange != "" {
		logger.Warningf("xDS bootstrap %s: dynamic_parameter_constraints: %s", below.Bootstrap().Source, strange)
	}
	return w
}

// Bootstrap implements xdsclient.Client.
func (w *Wrapper) Bootstrap() *bootstrap.Config { return w.below.Bootstrap() }

// Attach says that the channel with the given target uses the client below; see
// xdsclient.XDSClient.Attach.
func (w *Wrapper) Attach(target string, recorder estats.MetricsRecorder) (detach func()) {
	return w.below.Attach(target, recorder)
}

// Watch implements xdsclient.Client.
func (w *Wrapper) Watch(t *xdsclient.ResourceType, name string, watcher xdsclient.Watcher) (stop func()) {
	return w.watch(w.below, t, name, watcher)
}

// watch starts a watch of a resource, by way of the client below for its target.
func (w *Wrapper) watch(below xdsclient.LocatorClient, t *xdsclient.ResourceType, name string, watcher xdsclient.Watcher) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := newResourceWatch(below, name, watcher)
	w.scopeOf(name).add(t, &x.watch)
	return x.stop
}

// setConstraints sets the constraints of the program, in place of those that were
// set before; the zero value takes them back. The watches of the types whose
// constraints change are moved before it returns. It does not wait for servers and
// may be called from a watcher.
func (w *Wrapper) setConstraints(constraints dynparam.ByType) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.own = w.configured.Merge(constraints)
	changed := w.free.review()
	for _, resource := range slices.Sorted(maps.Keys(w.scopes)) {
		changed = append(changed, w.scopes[resource].review()...)
	}
	w.apply(changed)
}

// apply starts or moves the watches of groups, in one batch. The caller holds mu.
func (w *Wrapper) apply(groups []*group) {
	if len(groups) == 0 {
		return
	}
	w.below.Batch(func() {
		for _, g := range groups {
			for _, x := range g.watches {
				x.start()
			}
		}
	})
}

// scopeOf returns the scope of a name, which then watches its DPDS resource. The
// caller holds mu.
func (w *Wrapper) scopeOf(name string) *scope {
	if len(w.dpds) == 0 {
		return w.free
	}
	authority, ok := xdsclient.AuthorityOf(name)
	if !ok {
		return w.free
	}
	resource, ok := w.dpds[authority]
	if !ok {
		return w.free
	}
	s, ok := w.scopes[resource]
	if !ok {
		s = newScope(w, resource)
		w.scopes[resource] = s
	}
	return s
}
