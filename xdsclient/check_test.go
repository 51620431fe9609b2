package xdsclient

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/internal/explore"
)

// checkSilent drops what is logged while TestCheck runs.
var checkSilent atomic.Bool

// TestCheck follows every path of events within a scope, and checks each state; docs/internals/architecture.md says what for.
//
// The server of the model may read requests late, ignore stale SotW requests or obey them, answer for a list that was superseded, send
// all that is new together or one by one, repeat what it sent, name a denial by its constraints or for all subscriptions to the name, and
// take a SotW version that it sent before for known. But:
//
//   - It reads a request before the resource timer (15 s) runs out.
//   - Over SotW it carries out a request that answers its last response before it makes another one, or ignores it; at most four responses
//     later it goes by the list of that request, or of a later one.
//   - DPDS comes in the order of the other messages.
//   - A denial that names no constraints crosses requests for other variants once until client and server are both silent, and none for a
//     collection that has the name.
//   - Over delta, when a client subscribes to a collection again, the server names as removed what it had sent for the collection on that
//     stream and no longer has.
//   - The server answers a wildcard without members by an empty response.
//   - A resource that matches a subscription that was sent an error comes with that error again.
//   - A server without full state over SotW repeats, beside a variant, the variant of each other subscription that it matches.
//   - Versions of two variants, or of two contents, differ.
//   - The first response for a collection of whose members the client claims none has all of them, or 1 MiB.
//
// The model has no aliases, and no length of time.
func TestCheck(t *testing.T) {
	checkSilent.Store(true)
	defer checkSilent.Store(false)
	for _, way := range checkWays() {
		if !explore.Selected(way.name) {
			continue
		}
		t.Run(way.name, func(t *testing.T) {
			way.prepare(t)
			for _, scope := range explore.ScopesOf(checkScopes(way)) {
				way.scope = scope
				synctest.Test(t, func(t *testing.T) { followPaths(t, way) })
			}
		})
	}
}

func followPaths(t *testing.T, way *checkWay) {
	env := newCheckEnv(t, way)
	r := explore.Run(func() explore.Trial[checkAction] { return env.newTrial(nil) }, newCheckEncoder(), explore.TimeLimit())
	if r.Fault != "" {
		t.Errorf("%s\nafter %d states, path %q:\n%s", r.Fault, r.States, way.pathText(r.Path), env.transcriptOf(r.Path))
	}
	t.Logf("%+v: %d states, %d paths, %d events and %d responses until silence at most, exhausted: %v, %.1f s",
		way.scope, r.States, r.Paths, r.Depth, r.Messages, !r.Cut, r.Time.Seconds())
}

// checkAction is an event: what happens, and of which of several.
type checkAction struct {
	verb checkVerb
	n    int8
	to   checkContent
	// side is the server at which it happens.
	side int8
}

type checkVerb uint8

const (
	verbWatch checkVerb = iota
	verbStop
	// verbFlush has the client send what is due, and verbDeliver has it read a response.
	verbFlush
	verbDeliver
	// verbRead has the server read a request, and verbSend send one of the responses that it may send.
	verbRead
	verbSend
	// verbPut changes what there is.
	verbPut
	verbBreak
	verbOpen
	// verbTimer lets the resource timers expire.
	verbTimer
	// verbMove has the server move the client to another locator (DPDS), for which there is a resource from then on.
	verbMove
	// verbFail has an attempt to reach a server fail.
	verbFail
	// verbLapse lets the TTLs of resources run out.
	verbLapse
	verbs // how many there are
)

// isServers reports whether an event is one of the server, which a client does not see.
func (v checkVerb) isServers() bool {
	return v == verbRead || v == verbSend || v == verbPut || v == verbMove
}

// checkLast is the last event, and what was there before it.
type checkLast struct {
	verb           checkVerb
	side, up, down int
}

// Do implements explore.Trial.
func (x *trial) Do(a checkAction) {
	x.at(int(a.side))
	x.last = &checkLast{verb: a.verb, side: x.index, up: len(x.up), down: len(x.down)}
	switch a.verb {
	case verbWatch:
		x.used.user++
		x.watch(int(a.n))
	case verbStop:
		x.used.user++
		x.unwatch(int(a.n))
	case verbFlush:
		x.flush()
	case verbDeliver:
		x.deliver()
	case verbRead:
		r := x.up[0]
		x.up = x.up[1:]
		x.read(r)
	case verbMove:
		x.used.moves++
		x.selected = int(a.n)
		x.world[a.n] = checkX
	case verbSend:
		answer := x.answers()[a.n]
		if answer.spare {
			x.used.extra++
		}
		x.send(&answer)
	case verbPut:
		x.used.world++
		x.world[a.n] = a.to
	case verbBreak:
		x.used.breaks++
		x.breakOff()
	case verbOpen:
		x.open()
	case verbFail:
		x.used.breaks++
		x.fail()
	case verbTimer:
		x.used.timers++
		x.timing = true
		x.sleep(defaultResourceTimeout + time.Second)
		x.timing = false
	case verbLapse:
		x.used.lapses++
		x.lapse()
	}
}

// maxUp is how many requests may be under way.
const maxUp = 3

// Next implements explore.Trial. After an event of the server those of the client are left out that
// were possible before it: neither sees the other's, so that the other order leads to the same state.
func (x *trial) Next() (list []checkAction) {
	for side := range x.sides {
		for _, a := range x.at(side).next() {
			a.side = int8(side)
			list = append(list, a)
		}
	}
	return list
}

// next returns those at one of the servers.
func (x *trial) next() (list []checkAction) {
	scope, last := &x.way.scope, x.last
	servers := last != nil && last.verb.isServers() && !x.free
	streaming := x.ch.link.Streaming()
	if streaming && x.dirty && len(x.up) < maxUp && (!servers || last.side == x.index && last.up >= maxUp) {
		list = append(list, checkAction{verb: verbFlush})
	}
	if len(x.down) > 0 && (!servers || last.side == x.index && last.down == 0) {
		list = append(list, checkAction{verb: verbDeliver})
	}
	if x.index == 0 && x.used.user < scope.user && !servers && !x.way.moves {
		for l := range x.way.locators_ {
			verb := verbWatch
			if x.watches[l] != nil {
				verb = verbStop
			}
			list = append(list, checkAction{verb: verb, n: int8(l)})
		}
	}
	if len(x.up) > 0 {
		list = append(list, checkAction{verb: verbRead})
	}
	if len(x.down) < scope.flight {
		for i, a := range x.answers() {
			if !a.spare || x.used.extra < scope.extra {
				list = append(list, checkAction{verb: verbSend, n: int8(i)})
			}
		}
	}
	if x.used.world < scope.world {
		list = x.puts(list)
	}
	if x.used.moves < scope.moves {
		for l := range x.way.locators_ {
			if l != x.selected {
				list = append(list, checkAction{verb: verbMove, n: int8(l)})
			}
		}
	}
	switch {
	case !x.inUse():
	case !streaming:
		list = append(list, checkAction{verb: verbOpen})
		if x.used.lapses < scope.lapses {
			list = append(list, checkAction{verb: verbLapse})
		}
		if x.way.fallback && x.used.breaks < scope.breaks {
			list = append(list, checkAction{verb: verbFail})
		}
	default:
		if x.used.breaks < scope.breaks {
			list = append(list, checkAction{verb: verbBreak})
		}
		if x.used.timers < scope.timers {
			list = append(list, checkAction{verb: verbTimer})
		}
	}
	return list
}

// puts appends the changes of what there is.
func (x *trial) puts(list []checkAction) []checkAction {
	for i := range x.way.things {
		if x.way.moves && (i == x.selected || x.world[i] == checkAbsent) || x.way.lower && i > x.index {
			continue
		}
		to := []checkContent{checkX}
		switch c := x.world[i]; {
		case c != checkAbsent && x.way.things[i].kind == 1: // endpoints have no text
			to = []checkContent{checkAbsent}
		case c == checkX:
			to = []checkContent{checkAbsent, checkY}
		case c == checkY:
			to = []checkContent{checkAbsent, checkX}
		}
		if x.way.fallback && x.world[i] != checkAbsent { // each server has its own content
			to = []checkContent{checkAbsent}
		} else if x.index == 1 {
			to = []checkContent{checkY}
		}
		if x.way.moves { // the resource that the client is moved to comes with the move
			to = []checkContent{checkAbsent}
		}
		if x.way.faulty && x.world[i] != checkFaulty {
			to = append(to, checkFaulty)
		}
		if x.world[i] == checkFaulty {
			to = append(to, checkAbsent)
		}
		if x.way.errors && x.world[i] != checkDenied {
			to = append(to, checkDenied)
		}
		for _, c := range to {
			list = append(list, checkAction{verb: verbPut, n: int8(i), to: c})
		}
	}
	return list
}
