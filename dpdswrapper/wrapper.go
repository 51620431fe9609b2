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
	below      xdsclient.LocatorClient
	attach     func(target string, recorder estats.MetricsRecorder) (detach func()) // xdsclient.XDSClient.Attach
	configured dynparam.ByType                                                      // by the bootstrap
	dpds       map[string]string                                                    // names of the DPDS resources by authority

	mu     sync.Mutex        // guards what follows and everything that is reached from it
	own    dynparam.ByType   // configured, merged with those set at run time
	warned bool              // whether some were set at run time, and servers checked for them
	scopes map[string]*scope // by DPDS resource, "" for none
}

// newWrapper returns a wrapper that is not shared; see acquireWrapper.
func newWrapper(below xdsclient.LocatorClient) *wrapper {
	configured := below.Bootstrap().Constraints
	w := &wrapper{
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
	warnOfTypes(below.Bootstrap())
	warnOfServers(below.Bootstrap())
	if !configured.Equal(dynparam.ByType{}) {
		warnOfOwn(below.Bootstrap(), "dynamic_parameter_constraints and node_metadata_constraints")
	}
	return w
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
	w.own = w.configured.Merge(constraints)
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
	if len(w.dpds) > 0 {
		if n, err := xdsname.Parse(name); err == nil && n.NewStyle {
			resource = w.dpds[n.Authority]
		}
	}
	s := w.scopes[resource]
	if s == nil {
		s = newScope(w, resource)
		w.scopes[resource] = s
	}
	return s
}
