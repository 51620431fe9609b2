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
	below   xdsclient.LocatorClient // for the target of the watch
	typ     *xdsclient.ResourceType
	name    string
	watcher xdsclient.Watcher        // a part of a collection, see there
	members map[memberKey]heldMember // those of a collection that the layer above has; guarded by wrapper.mu; nil for a resource
	// serial is held while the watcher is called, as the last call of an old leg may overlap
	// the first of the next one. Nothing that a watcher calls takes it.
	serial sync.Mutex

	// Guarded by wrapper.mu.
	scope *scope
	index int  // in scope.watches, -1 if the watch has stopped
	leg   *leg // the running one; nil while the DPDS resource is awaited, and after the end
	from  *leg // whose resource, or collection, the layer above has; nil for none
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
	if x.members != nil {
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

// passage is a call of a watcher, if any.
type passage int

const (
	passNothing passage = iota
	passAmbient
	passChange
)

// pass passes a call of the watcher below on to that above: for a member of a collection, or with the zero Member for a
// resource or a collection as a whole. The first answer of the running leg for a whole removes the members that only older legs had.
func (l *leg) pass(m xdsclient.Member, call passage, value any, err error, done func()) {
	l.watch.serial.Lock()
	defer l.watch.serial.Unlock()
	call, left := l.judge(m, call, err)
	switch call {
	case passNothing:
		done()
	case passAmbient:
		l.watch.above(m).AmbientError(err, done)
	case passChange:
		next := shared(len(left)+1, done)
		for _, m := range left {
			l.watch.above(m).ResourceChanged(nil, l.leftError(m), next())
		}
		l.watch.above(m).ResourceChanged(value, err, next())
	}
}

// judge records a call of the watcher below, and returns which one is made above, and the members that it removes. What the
// layer above has of an older leg stays after an error, unless that withdraws it.
func (l *leg) judge(m xdsclient.Member, call passage, err error) (above passage, left []xdsclient.Member) {
	x := l.watch
	mu := x.mu()
	mu.Lock()
	defer mu.Unlock()
	from := x.from
	if m.Name != "" {
		from = x.members[keyOf(m)].leg
	}
	switch {
	case x.leg != l:
		return passNothing, nil
	case call == passAmbient:
		return passAmbient, nil
	case err == nil:
		from = l
	case from != nil && from != l && !withdraws(err):
		if m.Name != "" {
			x.hold(m, l)
		}
		return passAmbient, nil
	default:
		from = nil
	}
	if m.Name == "" {
		x.from = from
		return passChange, x.left()
	}
	x.hold(m, from)
	return passChange, nil
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
	l.pass(xdsclient.Member{}, passChange, value, err, done)
}

// AmbientError implements xdsclient.Watcher.
func (l *leg) AmbientError(err error, done func()) {
	l.pass(xdsclient.Member{}, passAmbient, nil, err, done)
}
