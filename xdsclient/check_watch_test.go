package xdsclient

import (
	"errors"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// trialWatch is a watch of the locator with the index, and what it has.
type trialWatch struct {
	x       *trial
	locator int
	stop    func()
	value   checkValue
	// failed says that the last call was an error.
	failed  bool
	members [maxCheckItems]checkValue
	// lost says that the watch has heard that the server is unreachable, and nothing else since.
	lost bool
}

// ResourceChanged implements Watcher.
func (w *trialWatch) ResourceChanged(value any, err error, done func()) {
	defer done()
	if w.failed = err != nil; err != nil {
		if w.x.way.keeps && w.value != checkUnsaid {
			w.x.Fail("the watch of %s lost %s: %v", w.x.way.locators_[w.locator].text, w.x.describe(w.value), err)
		}
		w.value = checkUnsaid
		w.hearError(err, -1)
		return
	}
	w.value, w.lost = w.x.valueOf(w.locator, value), false
	if w.x.reading != nil {
		w.x.said[w.locator] = ""
	}
	it := &w.x.way.things[w.value.item()]
	if it.singles&(1<<w.locator) == 0 {
		w.x.Fail("the watch of %s has %s", w.x.way.locators_[w.locator].text, it.text)
	}
}

// valueOf returns what the watch of a locator was given.
func (x *trial) valueOf(locator int, value any) checkValue {
	if e, ok := value.(*enveloped); ok {
		c := new(clusterv3.Cluster)
		xdstest.NoError(x.t, e.resource.UnmarshalTo(c))
		value = c
	}
	if c, ok := value.(*clusterv3.Cluster); ok {
		return x.way.valueOfText(c.GetAltStatName())
	}
	return checkValueOf(int(x.way.chosen[locator][1<<len(x.way.things)-1]), checkX) // endpoints have no text, and no variants
}

// AmbientError implements Watcher.
func (w *trialWatch) AmbientError(err error, done func()) {
	w.failed = true
	w.hearError(err, -1)
	done()
}

// trialCollection is the watcher of a collection.
type trialCollection struct{ *trialWatch }

func (w trialCollection) MemberChanged(m Member, value any, err error, done func()) {
	defer done()
	for i := range w.x.way.things {
		it := &w.x.way.things[i]
		if it.name != m.Name || !it.parameters.Equal(m.Parameters) {
			continue
		}
		if w.members[i] = checkUnsaid; err != nil {
			w.hearError(err, i)
			return
		}
		w.members[i] = w.x.way.valueOfText(value.(*clusterv3.Cluster).GetAltStatName())
		if it.collections&(1<<w.locator) == 0 {
			w.x.Fail("the watch of %s has %s", w.x.way.locators_[w.locator].text, it.text)
		}
		return
	}
	w.x.Fail("a collection has the member %v", m)
}

func (w trialCollection) CollectionChanged(err error, done func()) {
	var e *Error
	if errors.As(err, &e) && e.Kind != KindUnreachable && w.x.reading != nil && w.x.reading.members[w.locator] != 0 {
		w.x.Fail("the watch of %s heard %v, though the server had members", w.x.way.locators_[w.locator].text, e.Kind)
	}
	done()
}

func (w trialCollection) AmbientError(_ Member, _ error, done func()) { done() }

// hearError checks an error of a watch, or of a member.
func (w *trialWatch) hearError(err error, item int) {
	var e *Error
	if !errors.As(err, &e) {
		w.x.Fail("an error is no *Error: %v", err)
		return
	}
	x, text := w.x, w.x.way.locators_[w.locator].text
	if item >= 0 {
		text += " has the member " + x.way.things[item].text + ", which"
	}
	r := x.reading
	if r == nil && x.timing && (x.way.delta || x.way.full) {
		r = x.lastRead
	}
	if e.Kind == KindUnreachable {
		w.lost = true
	} else if item < 0 {
		again := w.lost && e.Kind == x.said[w.locator] // a server that answers again has not taken it back
		if x.said[w.locator], w.lost = e.Kind, false; again {
			return
		}
	}
	gone := x.reading == nil && item < 0 && !x.world.of(x.way, w.locator).isThere()
	switch {
	case x.way.fallback && e.Server != x.ch.server.URI: // it is from the other server, whose resources the client has left
	case x.way.moves && e.Kind != KindUnreachable: // what the client is moved to is there until it is moved on
		x.Fail("the watch of %s heard %q, though the client was not moved on", text, e.Kind)
	case e.Kind == KindInvalid && r != nil && r.faulty&(1<<w.locator) != 0:
	case r == nil || gone || e.Kind == KindUnreachable || x.reading == nil && e.Kind != KindDoesNotExist:
	case item < 0 && r.there&(1<<w.locator) != 0, item >= 0 && r.members[w.locator]&(1<<item) != 0:
		x.Fail("the watch of %s heard %q, though the server had it when it sent response %d", text, e.Kind, r.nonce)
	case item < 0 && e.Code == codes.PermissionDenied && r.denied&(1<<w.locator) == 0:
		x.Fail("the watch of %s heard an error that was for another", text)
	}
}
