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
	below xdsclient.LocatorClient // for the target of the watch
	typ   *xdsclient.ResourceType
	name  string
	// A watch has one of the two.
	watcher    xdsclient.Watcher
	collection xdsclient.CollectionWatcher

	// Of the goroutine that calls the watchers below:
	from    *leg                     // whose resource, or collection, the layer above has; nil for none
	members map[memberKey]heldMember // those of a collection that the layer above has

	// Guarded by wrapper.mu.
	scope *scope
	index int  // in scope.watches, -1 if the watch has stopped
	leg   *leg // the running one; nil while the DPDS resource is awaited, and after the end
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
		l.stop = x.below.WatchCollectionLocator(x.typ, x.name, constraints, collectionLeg{l})
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

// running reports whether the watch still has this leg. The watcher is called for no other leg.
func (l *leg) running() bool {
	mu := l.watch.mu()
	mu.Lock()
	defer mu.Unlock()
	return l.watch.leg == l
}

// keeps reports whether what the layer above has of a leg, nil for none, stays after an error of the running one.
func (l *leg) keeps(err error, running *leg) bool {
	return err != nil && l != nil && l != running && !withdraws(err)
}

// withdraws reports whether an error means that this client does not have the resource, or no
// longer.
func withdraws(err error) bool {
	e, ok := errors.AsType[*xdsclient.Error](err)
	return ok && (e.Kind == xdsclient.KindDoesNotExist ||
		e.Kind == xdsclient.KindServer && (e.Code == codes.NotFound || e.Code == codes.PermissionDenied))
}

// ResourceChanged implements xdsclient.Watcher.
func (l *leg) ResourceChanged(value any, err error, done func()) {
	x := l.watch
	switch {
	case !l.running():
		done()
		return
	case x.from.keeps(err, l):
		x.watcher.AmbientError(err, done)
		return
	case err == nil:
		x.from = l
	default:
		x.from = nil
	}
	x.watcher.ResourceChanged(value, err, done)
}

// AmbientError implements xdsclient.Watcher.
func (l *leg) AmbientError(err error, done func()) {
	if l.running() {
		l.watch.watcher.AmbientError(err, done)
	} else {
		done()
	}
}
