package dpdswrapper

import (
	"errors"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/xdsclient"
)

type watchState int

const (
	watchWaiting watchState = iota // for the DPDS resource of the scope
	watchRunning                   // it has a leg
	watchStopped
)

// watch is a watch of the layer above: the common part of those of resources and of
// collections.
type watch struct {
	below xdsclient.LocatorClient // for the target of the watch
	name  string
	kind  kind // the resourceWatch or collectionWatch that this is part of
	// serial is held while the watcher is called, as the last call of an old leg may overlap
	// the first of the next one. Nothing that a watcher calls takes it.
	serial sync.Mutex

	// Guarded by wrapper.mu.
	group *group
	index int // in group.watches
	state watchState
	leg   *leg // the running one
	first leg  // most watches have no other
}

// kind is what differs between watches of resources and of collections.
type kind interface {
	// open starts the watch below for a leg. The caller holds wrapper.mu.
	open(l *leg) (stop func())
}

// leg is a watch of the client below, with the constraints of the time when it started.
type leg struct {
	watch *watch
	stop  func()
}

// start starts a leg with the constraints of the group, and ends the old one. The caller holds
// wrapper.mu.
func (x *watch) start() {
	if x.state == watchWaiting {
		x.state = watchRunning
		x.run(&x.first)
		return
	}
	before := x.leg
	x.run(new(leg))
	before.stop()
	before.stop = nil // The layer above may have something of the old leg for long.
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

// mu is wrapper.mu.
func (x *watch) mu() *sync.Mutex { return &x.group.scope.wrapper.mu }

// running reports whether the calls of the leg are passed on.
func (l *leg) running() bool {
	mu := l.watch.mu()
	mu.Lock()
	defer mu.Unlock()
	return l.isRunning()
}

// isRunning is running for a caller that holds wrapper.mu.
func (l *leg) isRunning() bool { return l.watch.leg == l && l.watch.state == watchRunning }

// passage is how a change is passed on to the layer above.
type passage int

const (
	passNothing passage = iota
	passAmbient
	passChange
)

// judge returns how an answer of a leg is passed on, and from which leg the layer above has a value then, nil for
// none. before is the leg that it has the value from so far. A value of an older leg stays after an error, unless
// that withdraws it. The caller holds wrapper.mu.
func (l *leg) judge(before *leg, err error) (verdict passage, now *leg) {
	switch {
	case !l.isRunning():
		return passNothing, before
	case err == nil:
		return passChange, l
	case before != nil && before != l && !withdraws(err):
		return passAmbient, before
	default:
		return passChange, nil
	}
}

// withdraws reports whether an error means that this client does not have the resource, or no
// longer.
func withdraws(err error) bool {
	var e *xdsclient.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Kind == xdsclient.KindDoesNotExist ||
		e.Kind == xdsclient.KindServer && (e.Code == codes.NotFound || e.Code == codes.PermissionDenied)
}
