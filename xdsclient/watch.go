package xdsclient

import (
	"context"
	"maps"
	"slices"

	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// watch is one watcher of one resource, or of one collection and its members, with its
// queued events: at most the current state of each resource, and an ambient error after
// that. Newer events replace older ones, so a slow watcher costs no memory and still ends up
// with the final state. Guarded by XDSClient.mu.
type watch struct {
	client *XDSClient
	// watcher is a wholeWatcher for a collection.
	watcher Watcher
	// resource is the cache entry in use. It is nil if the watch was refused.
	resource *resource
	// stopped says that the watcher is not called again.
	stopped bool
	// queued has the events of the resource, and members the events of the members of a
	// collection.
	queued  queued
	members map[resourceKey]*queued
	// called has the events that were passed to the watcher and still hold back a response.
	called []*event
}

// queued has the queued events of one resource for one watcher.
type queued struct {
	watch *watch
	// member is the member of the watched collection that the events are of, or nil.
	member          *resource
	change, ambient *event
	// waits says that it is in the dispatcher's queue.
	waits bool
}

// next removes and returns the next event, or returns nil.
func (n *queued) next() *event {
	e := n.change
	if e != nil {
		n.change = nil
	} else {
		e, n.ambient = n.ambient, nil
	}
	if e != nil && len(e.holds) > 0 {
		n.watch.called = append(n.watch.called, e)
	}
	return e
}

// event is one call to a watcher.
type event struct {
	watch *watch
	call  func(done func())
	// holds are the responses whose successors are not read before the watcher is done with
	// the event.
	holds []*delivery
}

// release releases the responses that the event holds back. It may be called again.
func (e *event) release() {
	for _, d := range e.holds {
		d.release()
	}
	e.holds = nil
	e.watch.called = slices.DeleteFunc(e.watch.called, func(x *event) bool { return x == e })
}

// delivery is a response on its way to the watchers. Guarded by XDSClient.mu.
// Each event that it caused holds it until the watcher is done.
type delivery struct {
	pending int
	// finished is closed when nothing holds the response any more.
	finished chan struct{}
}

// newDelivery returns a delivery that the caller holds.
func newDelivery() *delivery { return &delivery{pending: 1, finished: make(chan struct{})} }

func (d *delivery) release() {
	if d.pending--; d.pending == 0 {
		close(d.finished)
	}
}

// newEvent makes an event that takes over the holds of the events that it replaces.
func (w *watch) newEvent(call func(done func()), d *delivery, replaces ...*event) *event {
	e := &event{watch: w, call: call}
	for _, old := range replaces {
		if old != nil {
			e.holds = append(e.holds, old.holds...)
		}
	}
	if d != nil {
		d.pending++
		e.holds = append(e.holds, d)
	}
	return e
}

// replaceQueued replaces all queued events of a resource by its present state: value, or err.
func (w *watch) replaceQueued(n *queued, to Watcher, value any, err *Error, d *delivery) {
	call := func(done func()) { to.ResourceChanged(value, nil, done) }
	if err != nil {
		call = func(done func()) { to.ResourceChanged(nil, err, done) }
	}
	n.change = w.newEvent(call, d, n.change, n.ambient)
	n.ambient = nil
	w.client.dispatcher.enqueue(n)
}

// queueRefusal queues the only event of a watch that cannot be served.
func (w *watch) queueRefusal(err *Error) { w.replaceQueued(&w.queued, w.watcher, nil, err, nil) }

// queueChange queues the present state of a resource: err, or the version in use.
func (w *watch) queueChange(r *resource, err *Error, d *delivery) {
	var value any
	if err == nil {
		value = r.payload.value
	}
	n, to := w.queuedOf(r)
	w.replaceQueued(n, to, value, err, d)
}

// queueAmbientError queues an error that leaves a resource in use.
func (w *watch) queueAmbientError(r *resource, err *Error, d *delivery) {
	n, to := w.queuedOf(r)
	n.ambient = w.newEvent(func(done func()) { to.AmbientError(err, done) }, d, n.ambient)
	w.client.dispatcher.enqueue(n)
}

// queuedOf returns the queued events of a resource, and the watcher to call.
func (w *watch) queuedOf(r *resource) (*queued, Watcher) {
	if r.memberOf == nil {
		return &w.queued, w.watcher
	}
	n := w.members[r.key]
	if n == nil {
		n = &queued{watch: w, member: r}
		if w.members == nil {
			w.members = make(map[resourceKey]*queued)
		}
		w.members[r.key] = n
	}
	return n, memberWatcher{w.watcher.(wholeWatcher).to, Member{r.key.name, r.parameters}}
}

// abandon ends the watch. Its watcher counts as done with all events.
func (w *watch) abandon() {
	w.stopped = true
	events := w.called
	w.called = nil
	for _, n := range append(slices.Collect(maps.Values(w.members)), &w.queued) {
		events = append(events, n.change, n.ambient)
		n.change, n.ambient = nil, nil
	}
	for _, e := range events {
		if e != nil {
			e.release()
		}
	}
}

// dispatcher calls the watchers of a client, one after the other, from one goroutine.
type dispatcher struct {
	client *XDSClient
	wake   transport.Signal
	// queue is guarded by XDSClient.mu. The events of a resource for a watcher are in it at most once.
	queue []*queued
}

// enqueue adds events to the queue. The caller holds XDSClient.mu.
func (d *dispatcher) enqueue(n *queued) {
	if n.waits {
		return
	}
	n.waits = true
	d.queue = append(d.queue, n)
	d.wake.Give()
}

// run calls watchers until the context ends.
func (d *dispatcher) run(ctx context.Context) {
	for {
		for e := d.next(); e != nil; e = d.next() {
			e.call(func() { d.done(e) })
		}
		select {
		case <-d.wake:
		case <-ctx.Done():
			return
		}
	}
}

// next removes and returns the next event, or returns nil. The events of a collection as a whole come after those of its
// members.
func (d *dispatcher) next() *event {
	d.client.mu.Lock()
	defer d.client.unlock()
	for len(d.queue) > 0 {
		n := d.queue[0]
		early := n.member == nil && len(n.watch.members) > 0
		if !early {
			if e := n.next(); e != nil {
				return e
			}
		}
		d.queue[0] = nil
		d.queue = d.queue[1:]
		switch {
		case early:
			d.queue = append(d.queue, n)
			continue
		case n.member != nil:
			delete(n.watch.members, n.member.key)
		}
		n.waits = false
	}
	d.queue = nil
	return nil
}

func (d *dispatcher) done(e *event) {
	d.client.mu.Lock()
	defer d.client.unlock()
	e.release()
}
