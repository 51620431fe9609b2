package dpdswrapper

import (
	"errors"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/xdsclient"
)

// holding says what the layer above has of a resource.
type holding int

const (
	// holdsNothing: it was told nothing, or an error.
	holdsNothing holding = iota
	// holdsCurrent: it has what the running leg said.
	holdsCurrent
	// holdsOld: it has what a leg said that was stopped, and that nothing has
	// replaced since.
	holdsOld
	// holdsStopped: it wants to hear nothing any more.
	holdsStopped
)

// watch is one watch of the layer above.
type watch struct {
	name    string
	watcher xdsclient.Watcher
	// serial is held while the watcher is called, as the last call of a stopped
	// leg may still be under way when the first of the next one comes. Nothing
	// that is called from a watcher takes it.
	serial sync.Mutex

	// What follows is guarded by Wrapper.mu.

	group *group
	// index is the place in group.watches.
	index int
	holds holding
	// leg is the running one. It is nil while the scope asks.
	leg *leg
	// first is the first leg; most watches never have another.
	first leg
}

// leg is one watch of the client below: that of a watch with the constraints of
// some time. It is the watcher of it.
type leg struct {
	watch *watch
	stop  func()
}

// start begins a leg with the constraints of the group, and ends the one before.
// The caller holds Wrapper.mu.
func (x *watch) start() {
	before := x.leg
	if before == nil {
		x.leg = &x.first
	} else {
		x.leg = new(leg)
	}
	x.leg.watch = x
	x.leg.stop = x.group.scope.wrapper.below.WatchLocator(x.group.typ, x.name, x.group.constraints, x.leg)
	if before == nil {
		return
	}
	if x.holds == holdsCurrent {
		x.holds = holdsOld
	}
	before.stop()
}

// stop ends the watch.
func (x *watch) stop() {
	mu := &x.group.scope.wrapper.mu
	mu.Lock()
	defer mu.Unlock()
	if x.holds == holdsStopped {
		return
	}
	x.holds = holdsStopped
	if x.leg != nil {
		x.leg.stop()
	}
	x.group.scope.remove(x)
}

// ResourceChanged implements xdsclient.Watcher.
func (l *leg) ResourceChanged(value any, err error, done func()) {
	x := l.watch
	x.serial.Lock()
	defer x.serial.Unlock()
	switch l.judge(err) {
	case passNothing:
		done()
	case passAmbient:
		x.watcher.AmbientError(err, done)
	case passChange:
		x.watcher.ResourceChanged(value, err, done)
	}
}

// AmbientError implements xdsclient.Watcher.
func (l *leg) AmbientError(err error, done func()) {
	x := l.watch
	x.serial.Lock()
	defer x.serial.Unlock()
	if !l.running() {
		done()
		return
	}
	x.watcher.AmbientError(err, done)
}

// running reports whether the layer above is to hear of the leg.
func (l *leg) running() bool {
	mu := &l.watch.group.scope.wrapper.mu
	mu.Lock()
	defer mu.Unlock()
	return l.isRunning()
}

// isRunning is running for a caller that holds Wrapper.mu.
func (l *leg) isRunning() bool { return l.watch.leg == l && l.watch.holds != holdsStopped }

// passage says how a change goes on to the layer above.
type passage int

const (
	passNothing passage = iota
	passAmbient
	passChange
)

// judge takes note of a change and says how it goes on.
func (l *leg) judge(err error) passage {
	x := l.watch
	mu := &x.group.scope.wrapper.mu
	mu.Lock()
	defer mu.Unlock()
	switch {
	case !l.isRunning():
		return passNothing
	case err == nil:
		x.holds = holdsCurrent
		return passChange
	case x.holds == holdsOld && !withdraws(err):
		return passAmbient
	default:
		x.holds = holdsNothing
		return passChange
	}
}

// withdraws reports whether the server says by the error that the resource is not,
// or no longer, this client's.
func withdraws(err error) bool {
	var e *xdsclient.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Kind == xdsclient.KindDoesNotExist ||
		e.Kind == xdsclient.KindServer && (e.Code == codes.NotFound || e.Code == codes.PermissionDenied)
}
