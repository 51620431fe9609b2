package xdsclient

import (
	"context"
	"slices"
)

// watchState says where a watch is on its way through the dispatcher.
type watchState int

const (
	// watchIdle: nothing is queued for the watcher.
	watchIdle watchState = iota
	// watchQueued: the watch is in the dispatcher's queue.
	watchQueued
	// watchStopped: the watcher is not called again.
	watchStopped
)

// watch is one watcher of one resource, or of one collection and its members, with its
// queued events: at most the current state of the resource, and an ambient error after
// that. Newer events replace older ones, so a slow watcher costs no memory and still ends up
// with the final state. Guarded by XDSClient.mu.
type watch struct {
	watcher Watcher
	// resource is the cache entry in use. It is nil if the watch was refused.
	resource *resource
	state    watchState
	// queued has the events of the resource, and members the events of the members of a
	// collection. The latter is nil for a resource.
	queued  queued
	members *queuedOfMembers
	// called has the events that were passed to the watcher and still hold back a response.
	called []*event
}

// queued has the queued events of one resource.
type queued struct{ change, ambient *event }

// queuedOfMember has the queued events of one member.
type queuedOfMember struct {
	queued
	key resourceKey
}

// queuedOfMembers has the queued events of the members of a collection.
type queuedOfMembers struct {
	watcher CollectionWatcher
	// queue is in the order of the calls, and byKey finds its elements.
	queue []*queuedOfMember
	byKey map[resourceKey]*queuedOfMember
}

// of returns the queued events of a member.
func (ms *queuedOfMembers) of(key resourceKey) *queued {
	n := ms.byKey[key]
	if n == nil {
		n = &queuedOfMember{key: key}
		if ms.byKey == nil {
			ms.byKey = make(map[resourceKey]*queuedOfMember)
		}
		ms.byKey[key] = n
		ms.queue = append(ms.queue, n)
	}
	return &n.queued
}

// next removes and returns the next event, or returns nil.
func (ms *queuedOfMembers) next() *event {
	if ms == nil || len(ms.queue) == 0 {
		return nil
	}
	n := ms.queue[0]
	e := n.next()
	if n.empty() {
		delete(ms.byKey, n.key)
		ms.queue[0] = nil
		if ms.queue = ms.queue[1:]; len(ms.queue) == 0 {
			ms.queue, ms.byKey = nil, nil
		}
	}
	return e
}

// removeAll removes and returns all events.
func (ms *queuedOfMembers) removeAll() (events []*event) {
	if ms == nil {
		return nil
	}
	for _, n := range ms.queue {
		events = append(events, n.change, n.ambient)
	}
	ms.queue, ms.byKey = nil, nil
	return events
}

// next removes and returns the next event, or returns nil.
func (n *queued) next() *event {
	e := n.change
	if e != nil {
		n.change = nil
	} else {
		e, n.ambient = n.ambient, nil
	}
	return e
}

func (n *queued) empty() bool { return n.change == nil && n.ambient == nil }

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
}

// queuedOf returns the queued events of a resource, and the watcher to call.
func (w *watch) queuedOf(r *resource) (*queued, Watcher) {
	if r.memberOf == nil {
		return &w.queued, w.watcher
	}
	return w.members.of(r.key), memberWatcher{w.members.watcher, Member{r.key.name, r.parameters}}
}

// next removes and returns the next event, or returns nil. The events of a collection as a
// whole come after those of its members.
func (w *watch) next() *event {
	e := w.members.next()
	if e == nil {
		e = w.queued.next()
	}
	if e != nil && len(e.holds) > 0 {
		w.called = append(w.called, e)
	}
	return e
}

// abandon ends the watch. Its watcher counts as done with all events.
func (w *watch) abandon() {
	w.state = watchStopped
	events := slices.Concat(w.called, w.members.removeAll(), []*event{w.queued.change, w.queued.ambient})
	w.called, w.queued = nil, queued{}
	for _, e := range events {
		if e != nil {
			e.release()
		}
	}
}

// dispatcher calls the watchers of a client, one after the other, from one goroutine.
type dispatcher struct {
	client *XDSClient
	// wake has a buffer of one, so that a wake-up is never lost.
	wake chan struct{}
	// queue is guarded by XDSClient.mu. A watch is in it at most once.
	queue []*watch
}

// enqueue adds a watch that has an event to the queue. The caller holds XDSClient.mu.
func (d *dispatcher) enqueue(w *watch) {
	if w.state != watchIdle {
		return
	}
	w.state = watchQueued
	d.queue = append(d.queue, w)
	select {
	case d.wake <- struct{}{}:
	default:
	}
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

// next removes and returns the next event of the watch at the head of the queue, or returns nil.
func (d *dispatcher) next() *event {
	d.client.mu.Lock()
	defer d.client.unlock()
	for len(d.queue) > 0 {
		w := d.queue[0]
		if w.state == watchQueued {
			if e := w.next(); e != nil {
				return e
			}
			w.state = watchIdle
		}
		d.queue[0] = nil
		d.queue = d.queue[1:]
	}
	d.queue = nil
	return nil
}

func (d *dispatcher) done(e *event) {
	d.client.mu.Lock()
	defer d.client.unlock()
	e.release()
}
