package dpdswrapper

import (
	"errors"
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// watch is a watch of the layer above, of a resource or of a collection.
type watch struct {
	below      xdsclient.LocatorClient // for the target of the watch
	typ        *xdsclient.ResourceType
	name       string
	watcher    xdsclient.Watcher // of a resource
	collection *collection       // nil for a resource
	// serial is held while the watcher is called, as the last call of an old leg may overlap
	// the first of the next one. Nothing that a watcher calls takes it.
	serial sync.Mutex

	// Guarded by wrapper.mu.
	scope *scope
	index int  // in scope.watches, -1 if the watch has stopped
	leg   *leg // the running one; nil while the DPDS resource is awaited, and after the end
	from  *leg // whose resource, or whole collection, the layer above has; nil for none
}

// leg is a watch of the client below, with the constraints of the time when it started. It is the watcher of a
// resource; see also collectionLeg.
type leg struct {
	watch       *watch
	constraints dynparam.Constraints
	stop        func()
}

// start starts a leg with the given constraints, and then ends the old one. The caller holds
// wrapper.mu.
func (x *watch) start(constraints dynparam.Constraints) {
	before, l := x.leg, &leg{watch: x, constraints: constraints}
	x.leg = l
	if x.collection != nil {
		l.stop = x.below.WatchCollectionLocator(x.typ, x.name, constraints, (*collectionLeg)(l))
	} else {
		l.stop = x.below.WatchLocator(x.typ, x.name, constraints, l)
	}
	if before != nil {
		before.stop()
		before.stop = nil // The layer above may have something of the old leg for long.
	}
}

// stop ends the watch.
func (x *watch) stop() {
	mu := x.mu()
	mu.Lock()
	defer mu.Unlock()
	if x.index < 0 {
		return
	}
	if x.leg != nil {
		x.leg.stop()
		x.leg = nil
	}
	x.scope.remove(x)
}

// mu is wrapper.mu.
func (x *watch) mu() *sync.Mutex { return &x.scope.wrapper.mu }

// passage is how a change is passed on to the layer above.
type passage int

const (
	passNothing passage = iota
	passAmbient
	passChange
)

// judge returns how an answer of a leg is passed on. The layer above has a value from the leg *from, nil for none, which
// judge updates. A value of an older leg stays after an error, unless that withdraws it. The caller holds wrapper.mu.
func (l *leg) judge(from **leg, err error) passage {
	switch {
	case l.watch.leg != l:
		return passNothing
	case err == nil:
		*from = l
		return passChange
	case *from != nil && *from != l && !withdraws(err):
		return passAmbient
	default:
		*from = nil
		return passChange
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

// ResourceChanged implements xdsclient.Watcher.
func (l *leg) ResourceChanged(value any, err error, done func()) {
	x := l.watch
	x.serial.Lock()
	defer x.serial.Unlock()
	mu := x.mu()
	mu.Lock()
	verdict := l.judge(&x.from, err)
	mu.Unlock()
	switch verdict {
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
	l.watch.serial.Lock()
	defer l.watch.serial.Unlock()
	if l.running() {
		l.watch.watcher.AmbientError(err, done)
	} else {
		done()
	}
}

// running reports whether the calls of the leg are passed on.
func (l *leg) running() bool {
	mu := l.watch.mu()
	mu.Lock()
	defer mu.Unlock()
	return l.watch.leg == l
}
