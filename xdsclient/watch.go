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

// watch is one watcher of one resource, or of one collection and its members, and
// what it is still to be told: at most what the resource is now, and an ambient
// error after that. Something newer replaces it, so a slow watcher costs no memory
// and still ends up with the final state. Guarded by XDSClient.mu.
type watch struct {
	watcher Watcher
	// resource is the cache entry that the watcher hears of. It is nil if the watch was
	// refused.
	resource *resource
	// party is that of the watch's target, and index the place in its watches.
	party *party
	index int
	state watchState
	// news is what is to be told of the resource.
	news news
	// members is what is to be told of the members of a collection. It is nil for
	// a resource.
	members *membersNews
	// called holds the events that were passed to the watcher and still hold
	// back a response.
	called []*event
}

// news is what a watcher is still to be told of a resource.
type news struct{ change, ambient *event }

// memberNews is what a watcher is still to be told of a member.
type memberNews struct {
	news
	key resourceKey
}

// membersNews is what a watcher is still to be told of the members of a
// collection.
type membersNews struct {
	// watcher makes the watcher of one member.
	watcher func(m Member) Watcher
	// queue is in the order of telling, and byKey finds what is in it.
	queue []*memberNews
	byKey map[resourceKey]*memberNews
}

// about returns the news of a member.
func (ms *membersNews) about(key resourceKey) *news {
	n := ms.byKey[key]
	if n == nil {
		n = &memberNews{key: key}
		if ms.byKey == nil {
			ms.byKey = make(map[resourceKey]*memberNews)
		}
		ms.byKey[key] = n
		ms.queue = append(ms.queue, n)
	}
	return &n.news
}

// take returns the next event, or nil.
func (ms *membersNews) take() *event {
	if ms == nil || len(ms.queue) == 0 {
		return nil
	}
	n := ms.queue[0]
	e := n.take()
	if n.empty() {
		delete(ms.byKey, n.key)
		ms.queue[0] = nil
		if ms.queue = ms.queue[1:]; len(ms.queue) == 0 {
			ms.queue, ms.byKey = nil, nil
		}
	}
	return e
}

// clear forgets all news and returns the events.
func (ms *membersNews) clear() (events []*event) {
	if ms == nil {
		return nil
	}
	for _, n := range ms.queue {
		events = append(events, n.change, n.ambient)
	}
	ms.queue, ms.byKey = nil, nil
	return events
}

// take returns the next event, or nil.
func (n *news) take() *event {
	e := n.change
	if e != nil {
		n.change = nil
	} else {
		e, n.ambient = n.ambient, nil
	}
	return e
}

func (n *news) empty() bool { return n.change == nil && n.ambient == nil }

// event is one call to a watcher.
type event struct {
	watch *watch
	call  func(done func())
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

// change replaces all news by what a resource is now.
func (w *watch) change(n *news, to Watcher, value any, err *Error, d *delivery) {
	call := func(done func()) { to.ResourceChanged(value, nil, done) }
	if err != nil {
		call = func(done func()) { to.ResourceChanged(nil, err, done) }
	}
	n.change = w.newEvent(call, d, n.change, n.ambient)
	n.ambient = nil
}

// tellChange is to tell the watcher what its resource is now.
func (w *watch) tellChange(value any, err *Error, d *delivery) {
	w.change(&w.news, w.watcher, value, err, d)
}

// tellChangeOf is to tell the watcher what a resource is now: err, or its payload.
func (w *watch) tellChangeOf(r *resource, err *Error, d *delivery) {
	var value any
	if err == nil {
		value = r.payload.value
	}
	n, to := w.about(r)
	w.change(n, to, value, err, d)
}

// tellAmbientOf is to tell the watcher of an error beside a resource.
func (w *watch) tellAmbientOf(r *resource, err *Error, d *delivery) {
	n, to := w.about(r)
	n.ambient = w.newEvent(func(done func()) { to.AmbientError(err, done) }, d, n.ambient)
}

// about returns the news of a resource, and who is to be told.
func (w *watch) about(r *resource) (*news, Watcher) {
	if r.collection == nil {
		return &w.news, w.watcher
	}
	return w.members.about(r.key), w.members.watcher(Member{r.key.name, r.parameters})
}

// take returns the next event to call, or nil. What is to be told of a collection
// comes after what is to be told of its members.
func (w *watch) take() *event {
	e := w.members.take()
	if e == nil {
		e = w.news.take()
	}
	if e != nil && len(e.holds) > 0 {
		w.called = append(w.called, e)
	}
	return e
}

// abandon ends the watch. What it owed counts as done.
func (w *watch) abandon() {
	w.state = watchStopped
	owed := slices.Concat(w.called, w.members.clear(), []*event{w.news.change, w.news.ambient})
	w.called, w.news = nil, news{}
	for _, e := range owed {
		if e != nil {
			e.settle()
		}
	}
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
			e.call(func() { d.done(e) })
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
