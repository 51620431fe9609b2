package xdsclient

import (
	"context"
	"slices"
)

// watchState says where a watch is on its way through the dispatcher.
type watchState int

const (
	// watchIdle: there is nothing to tell the watcher.
	watchIdle watchState = iota
	// watchQueued: the watch is in the dispatcher's queue.
	watchQueued
	// watchStopped: the watcher is not to be called again.
	watchStopped
)

// watch is one watcher of one resource and what it is still to be told: at most
// what the resource is now, and an ambient error after that. Something newer
// replaces it, so a slow watcher costs no memory and still ends up with the final
// state. Guarded by XDSClient.mu.
type watch struct {
	watcher Watcher
	// resource is nil if the watch was refused.
	resource *resource
	state    watchState
	change   *event
	ambient  *event
	// called holds the events that were passed to the watcher and still hold
	// back a response.
	called []*event
}

// event is one call to a watcher.
type event struct {
	watch *watch
	call  func(w Watcher, done func())
	// holds are the responses whose successor is not read before the watcher is
	// done with the event.
	holds []*delivery
}

// settle lets go of the responses that the event holds back. It may be repeated.
func (e *event) settle() {
	for _, d := range e.holds {
		d.release()
	}
	e.holds = nil
	e.watch.called = slices.DeleteFunc(e.watch.called, func(x *event) bool { return x == e })
}

// delivery is a response on its way to the watchers. Guarded by XDSClient.mu.
type delivery struct {
	pending int
	// finished is closed when nothing holds the response any more.
	finished chan struct{}
}

// newDelivery returns a delivery that its maker holds.
func newDelivery() *delivery { return &delivery{pending: 1, finished: make(chan struct{})} }

func (d *delivery) release() {
	if d.pending--; d.pending == 0 {
		close(d.finished)
	}
}

// newEvent makes an event that takes over what the events it replaces hold.
func (w *watch) newEvent(call func(Watcher, func()), d *delivery, replaces ...*event) *event {
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

// tellChange is to tell the watcher what the resource is now.
func (w *watch) tellChange(value any, err *Error, d *delivery) {
	call := func(to Watcher, done func()) { to.ResourceChanged(value, nil, done) }
	if err != nil {
		call = func(to Watcher, done func()) { to.ResourceChanged(nil, err, done) }
	}
	w.change = w.newEvent(call, d, w.change, w.ambient)
	w.ambient = nil
}

// tellAmbient is to tell the watcher of an error beside the resource.
func (w *watch) tellAmbient(err *Error, d *delivery) {
	w.ambient = w.newEvent(func(to Watcher, done func()) { to.AmbientError(err, done) }, d, w.ambient)
}

// take returns the next event to call, or nil.
func (w *watch) take() *event {
	e := w.change
	if e != nil {
		w.change = nil
	} else {
		e, w.ambient = w.ambient, nil
	}
	if e != nil && len(e.holds) > 0 {
		w.called = append(w.called, e)
	}
	return e
}

// abandon ends the watch. What it owed counts as done.
func (w *watch) abandon() {
	w.state = watchStopped
	for _, e := range slices.Concat(w.called, []*event{w.change, w.ambient}) {
		if e != nil {
			e.settle()
		}
	}
	w.change, w.ambient, w.called = nil, nil, nil
}

// dispatcher calls the watchers of a client, one after the other, from its one
// goroutine.
type dispatcher struct {
	client *XDSClient
	// wake has room for one, so that a wake-up is never lost.
	wake chan struct{}
	// queue is guarded by XDSClient.mu. A watch is in it at most once.
	queue []*watch
}

// enqueue has the dispatcher look at a watch. The caller holds XDSClient.mu.
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
			e.call(e.watch.watcher, func() { d.done(e) })
		}
		select {
		case <-d.wake:
		case <-ctx.Done():
			return
		}
	}
}

// next takes the next event, or returns nil if there is none.
func (d *dispatcher) next() *event {
	d.client.mu.Lock()
	defer d.client.unlock()
	for len(d.queue) > 0 {
		w := d.queue[0]
		if w.state == watchQueued {
			if e := w.take(); e != nil {
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
	e.settle()
}
