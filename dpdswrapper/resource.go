package dpdswrapper

import "github.com/dynxds/dynxds/xdsclient"

// holding is what the layer above has of a resource.
type holding int

const (
	holdsNothing holding = iota // no answer, or an error
	holdsCurrent                // the resource of the running leg
	holdsOld                    // that of an older leg
)

// resourceWatch is the watch of one resource.
type resourceWatch struct {
	watch
	watcher xdsclient.Watcher
	holds   holding // guarded by wrapper.mu
}

func (x *resourceWatch) open(l *leg) (stop func()) {
	g := x.group
	return x.below.WatchLocator(g.typ, x.name, g.constraints, (*resourceLeg)(l))
}

func (x *resourceWatch) outdate() {
	if x.holds == holdsCurrent {
		x.holds = holdsOld
	}
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
func (l *resourceLeg) judge(err error) passage {
	x := l.of()
	mu := x.mu()
	mu.Lock()
	defer mu.Unlock()
	switch {
	case !(*leg)(l).isRunning():
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
