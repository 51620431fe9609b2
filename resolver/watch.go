package resolver

import (
	"sync/atomic"

	"github.com/dynxds/dynxds/xdsclient"
)

// watch is a graph's watch of one resource that decodes to a *T. It remembers the last answer, and calls
// changed with the graph locked. Its own methods are called with the graph locked too.
type watch[T any] struct {
	graph   *graph
	typ     *xdsclient.ResourceType
	name    string
	changed func()

	cancel  func()
	stopped bool
	last    *T // the last answer, unless that was lastErr or there is none
	lastErr error
	ambient atomic.Pointer[ambient] // the errors since the last answer, or nil
}

func newWatch[T any](g *graph, typ *xdsclient.ResourceType, name string, changed func()) *watch[T] {
	return &watch[T]{graph: g, typ: typ, name: name, changed: changed}
}

func (w *watch[T]) start() { w.cancel = w.graph.client.Watch(w.typ, w.name, w) }

func (w *watch[T]) stop() {
	if w.cancel != nil {
		w.cancel()
	}
	w.stopped = true
}

// ResourceChanged implements xdsclient.Watcher.
func (w *watch[T]) ResourceChanged(value any, err error, done func()) {
	defer done()
	w.ambient.Store(nil)
	w.graph.mu.Lock()
	defer w.graph.mu.Unlock()
	if w.stopped {
		return
	}
	w.last, _ = value.(*T)
	w.lastErr = err
	w.changed()
}

// AmbientError implements xdsclient.Watcher.
func (w *watch[T]) AmbientError(err error, done func()) {
	defer done()
	w.ambient.Store(w.ambient.Load().with(err))
	logger.Warningf("%s %q: the last valid version stays in use: %v", w.typ.Name, w.name, err)
}

// errors returns the errors since the last answer, nil for none. The watch may be nil.
func (w *watch[T]) errors() *ambient {
	if w == nil {
		return nil
	}
	return w.ambient.Load()
}
