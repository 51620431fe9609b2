package dpdswrapper

import (
	"errors"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/xdsclient"
)

// watchState says how far a watch of the layer above got.
type watchState int

const (
	// watchWaiting: its scope asks for the DPDS resource.
	watchWaiting watchState = iota
	// watchRunning: it has a leg.
	watchRunning
	// watchStopped: the layer above wants to hear nothing any more.
	watchStopped
)

// watch is one watch of the layer above: what those of resources and of collections
// have in common.
type watch struct {
	// below is the client below, for the target of the watch.
	below xdsclient.LocatorClient
	name  string
	// kind is the resourceWatch or the collectionWatch that this is part of.
	kind kind
	// serial is held while the watcher is called, as the last call of a stopped
	// leg may still be under way when the first of the next one comes. Nothing
	// that is called from a watcher takes it.
	serial sync.Mutex

	// What follows is guarded by Wrapper.mu.

	group *group
	// index is the place in group.watches.
	index int
	state watchState
	// leg is the running one.
	leg *leg
	// first is the first leg; most watches never have another.
	first leg
}

// kind is what watches of resources and of collections do differently. The caller
// holds Wrapper.mu.
type kind interface {
	// open starts the watch below for a leg.
	open(l *leg) (stop func())
	// outdate notes that what the layer above has is from a leg that ends.
	outdate()
}

// leg is one watch of the client below: that of a watch with the constraints of
// some time.
type leg struct {
	watch *watch
	stop  func()
}

// start begins a leg with the constraints of the group, and ends the one before.
// The caller holds Wrapper.mu.
func (x *watch) start() {
	if x.state == watchWaiting {
		x.state = watchRunning
		x.run(&x.first)
		return
	}
	before := x.leg
	x.run(new(leg))
	x.kind.outdate()
	before.stop()
}

func (x *watch) run(l *leg) {
	x.leg, l.watch = l, x
	l.stop = x.kind.open(l)
}

// stop ends the watch.
func (x *watch) stop() {
	mu := x.mu()
	mu.Lock()
	defer mu.Unlock()
	switch x.state {
	case watchStopped:
		return
	case watchRunning:
		x.leg.stop()
	}
	x.state = watchStopped
	x.group.scope.remove(x)
}

// mu is Wrapper.mu.
func (x *watch) mu() *sync.Mutex { return &x.group.scope.wrapper.mu }

// running reports whether the layer above is to hear of the leg.
func (l *leg) running() bool {
	mu := l.watch.mu()
	mu.Lock()
	defer mu.Unlock()
	return l.isRunning()
}

// isRunning is running for a caller that holds Wrapper.mu.
func (l *leg) isRunning() bool { return l.watch.leg == l && l.watch.state == watchRunning }

// passage says how a change goes on to the layer above.
type passage int

const (
	passNothing passage = iota
	passAmbient
	passChange
)

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
