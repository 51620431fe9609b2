package dpdswrapper

import (
	"maps"
	"slices"
	"sync"

	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// wrapper attaches constraints to watches, see ForTarget. It is safe for concurrent use. It
// need not be closed: it ends with the client below and its watches.
type wrapper struct {
	below  xdsclient.LocatorClient
	attach func(target string, recorder estats.MetricsRecorder) (detach func()) // xdsclient.XDSClient.Attach

	mu     sync.Mutex        // guards what follows and everything that is reached from it
	own    dynparam.ByType   // those of the bootstrap, merged with those set at run time
	warned bool              // whether some were set at run time, and servers checked for them
	scopes map[string]*scope // by DPDS resource, "" for none
}

// newWrapper returns a wrapper that is not shared; see acquireWrapper.
func newWrapper(below xdsclient.LocatorClient) *wrapper {
	cfg := below.Bootstrap()
	warnOfTypes(cfg)
	warnOfServers(cfg)
	if !cfg.Constraints.Equal(dynparam.ByType{}) {
		warnOfOwn(cfg, "dynamic_parameter_constraints and node_metadata_constraints")
	}
	return &wrapper{below: below, own: cfg.Constraints, scopes: make(map[string]*scope)}
}

// add starts a watch.
func (w *wrapper) add(x *watch) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scopeOf(x.name).add(x)
	return x.stop
}

// setConstraints replaces the constraints of the program; the zero value removes them. It
// moves the watches of the types whose constraints change before it returns. It does not
// wait for servers and may be called from a watcher.
func (w *wrapper) setConstraints(constraints dynparam.ByType) {
	w.mu.Lock()
	first := !w.warned && !constraints.Equal(dynparam.ByType{})
	w.warned = w.warned || first
	w.own = w.below.Bootstrap().Constraints.Merge(constraints)
	var due []*watch
	for _, resource := range slices.Sorted(maps.Keys(w.scopes)) {
		due = append(due, w.scopes[resource].due()...)
	}
	w.start(due)
	w.mu.Unlock()
	if first {
		warnOfOwn(w.below.Bootstrap(), "the constraints of the program (SetConstraints)")
	}
}

// start starts or moves watches, in one batch. The caller holds mu.
func (w *wrapper) start(due []*watch) {
	if len(due) == 0 {
		return
	}
	w.below.Batch(func() {
		for _, x := range due {
			x.start(x.scope.wanted(x.typ))
		}
	})
}

// scopeOf returns the scope of a name, which it creates if needed. The caller holds mu.
func (w *wrapper) scopeOf(name string) *scope {
	resource := ""
	if n, err := xdsname.Parse(name); err == nil && n.NewStyle {
		if a := w.below.Bootstrap().Authorities[n.Authority]; a != nil {
			resource = a.DynamicParameterConstraintsResource
		}
	}
	s := w.scopes[resource]
	if s == nil {
		s = newScope(w, resource)
		w.scopes[resource] = s
	}
	return s
}
