package dpdswrapper

import "github.com/dynxds/dynxds/xdsclient"

// resourceWatch is the watch of one resource.
type resourceWatch struct {
	watch
	watcher xdsclient.Watcher
	// from is the leg whose resource the layer above has, nil for none. Guarded by wrapper.mu.
	from *leg
}

func (x *resourceWatch) open(l *leg) (stop func()) {
	g := x.group
	return x.below.WatchLocator(g.typ, x.name, g.constraints, (*resourceLeg)(l))
}

// resourceLeg is the watcher below of a resource.
type resourceLeg leg

func (l *resourceLeg) of() *resourceWatch { return l.watch.kind.(*resourceWatch) }

// ResourceChanged implements xdsclient.Watcher.
func (l *resourceLeg) ResourceChanged(value any, err error, done func()) {
	x := l.of()
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
func (l *resourceLeg) AmbientError(err error, done func()) {
	x := l.of()
	x.serial.Lock()
	defer x.serial.Unlock()
	if (*leg)(l).running() {
		x.watcher.AmbientError(err, done)
	} else {
		done()
	}
}

// judge records a change, and returns how it is passed on.
func (l *resourceLeg) judge(err error) (verdict passage) {
	x := l.of()
	mu := x.mu()
	mu.Lock()
	defer mu.Unlock()
	verdict, x.from = (*leg)(l).judge(x.from, err)
	return verdict
}
