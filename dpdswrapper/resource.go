package dpdswrapper

import "github.com/dynxds/dynxds/xdsclient"

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
)

// resourceWatch is the watch of one resource.
type resourceWatch struct {
	watch
	watcher xdsclient.Watcher
	// holds is guarded by Wrapper.mu.
	holds holding
}

func newResourceWatch(below xdsclient.LocatorClient, name string, watcher xdsclient.Watcher) *resourceWatch {
	x := &resourceWatch{watch: watch{below: below, name: name}, watcher: watcher}
	x.kind = x
	return x
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
	if !(*leg)(l).running() {
		done()
		return
	}
	x.watcher.AmbientError(err, done)
}

// judge takes note of a change and says how it goes on.
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
