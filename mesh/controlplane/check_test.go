package controlplane

import (
	"testing"

	"github.com/dynxds/dynxds/internal/explore"
)

// TestCheck follows every path of events within a scope, with -short a small one, and checks each state: each response has only what the
// client is subscribed to; nothing that exists is said to be removed or in error; absence is explained and denials are sent; deleted
// resources stay for the removal delay; and, when all is silent, the client holds exactly what the store has.
//
// Assumed of the client: over SotW it keeps what it unsubscribes from until a response lacks it; by locators it claims no variant that it
// cannot name in initial_resource_versions. The model has one client, one type, no limits and no heartbeats.
func TestCheck(t *testing.T) {
	for _, way := range checkWays() {
		if !explore.Selected(way.name) {
			continue
		}
		t.Run(way.name, func(t *testing.T) {
			if !testing.Short() { // one after the other, so that -failfast leaves out the rest
				t.Parallel()
			}
			way.prepare(t)
			for _, scope := range explore.ScopesOf(checkScopes(way)) {
				way.scope = scope
				r := explore.Run(func() explore.Trial[checkEvent] { return newTrial(way) }, newCheckEncoder(), explore.TimeLimit())
				if r.Fault != "" {
					t.Errorf("%s\n\tafter %d states:\n%s", r.Fault, r.States, explore.Describe(newTrial(way), r.Path))
				}
				t.Logf("%+v: %d states, %d paths, %d events and %d responses until silence at most, exhausted: %v",
					way.scope, r.States, r.Paths, r.Depth, r.Messages, !r.Cut)
			}
		})
	}
}

// checkScope bounds the events of a path. What follows from them is not bounded, but for the messages that
// are under way in each direction.
type checkScope struct {
	// user counts the subscriptions that begin, end, or begin again; world the changes of the store; breaks the streams
	// that end; nacks the responses that the client rejects, and late those that it answers with a later
	// request; moves the changes of the node's constraints.
	user, world, breaks, nacks, late, moves int
	// flight is how many requests, and how many responses, may be under way.
	flight int
	// start has the subscriptions that are there, and answered, at the beginning; none: there is no stream.
	start string
}

// checkScopes are followed one after the other.
func checkScopes(way *checkWay) []checkScope {
	small := []checkScope{{user: 1, world: 1, flight: 2, start: "01"}, {world: 1, breaks: 1, flight: 2, start: "01"}}
	switch {
	case raceDetector:
		return small[:1]
	case testing.Short():
		return small
	}
	breaks := checkScope{user: 1, world: 1, breaks: 1, flight: 2, start: "01"}
	if way.source {
		breaks.user = 0 // with a change of the client there are too many states
	}
	scopes := []checkScope{
		{user: 2, world: 1, flight: 2},
		{user: 2, world: 1, flight: 2, start: "01"},
		{user: 1, world: 1, nacks: 1, late: 1, flight: 2, start: "01"},
		breaks,
	}
	if way.implicit {
		scopes = append(scopes, checkScope{user: 1, world: 1, moves: 2, flight: 2, start: "01"})
	}
	return scopes
}

// checkEvent is what happens, and of which of several.
type checkEvent struct {
	verb checkVerb
	n    int8
	to   checkContent
}

type checkVerb uint8

const (
	// verbSubscribe, verbAgain and verbLeave begin, repeat (delta) and end a subscription.
	verbSubscribe checkVerb = iota
	verbAgain
	verbLeave
	// verbFlush has the client send a request that is due, and verbDeliver has it read a response, and answer it as n says.
	verbFlush
	verbDeliver
	// verbRead has the server read a request, verbPush send what is due, and verbDelay end what it keeps of
	// deleted resources.
	verbRead
	verbPush
	verbDelay
	// verbPut changes the store, and verbMove the constraints of the client's node.
	verbPut
	verbMove
	verbBreak
	verbOpen
	// verbNotify has the store tell the source of demands, and verbAnswer has the source answer one.
	verbNotify
	verbAnswer
)

// How a client answers a response.
const (
	answerACK int8 = iota
	answerNACK
	answerLate
)

// Do implements explore.Trial.
func (x *trial) Do(e checkEvent) {
	n := int(e.n)
	switch e.verb {
	case verbSubscribe, verbAgain, verbLeave:
		x.used.user++
		x.Tell("%s %s", [...]string{"subscribe to", "subscribe again to", "unsubscribe from"}[e.verb], x.way.subs_[n].text)
		x.change(e.verb, n)
	case verbFlush:
		x.flush()
	case verbDeliver:
		switch e.n {
		case answerNACK:
			x.used.nacks++
		case answerLate:
			x.used.late++
		}
		x.deliver(e.n)
	case verbRead:
		x.read()
	case verbPush:
		x.push()
	case verbDelay:
		x.Tell("the removal delay passes")
		x.endDelay()
	case verbPut:
		x.used.world++
		x.put(n, e.to)
	case verbMove:
		x.used.moves++
		x.move()
	case verbBreak:
		x.used.breaks++
		x.Tell("break")
		x.breakOff()
	case verbOpen:
		x.open(n == 1)
	case verbNotify:
		x.notify()
	case verbAnswer:
		x.answer(n)
	}
}

// Next implements explore.Trial.
func (x *trial) Next() (list []checkEvent) {
	scope := &x.way.scope
	add := func(verb checkVerb, n int) { list = append(list, checkEvent{verb: verb, n: int8(n)}) }
	if x.streaming && len(x.up) < scope.flight {
		if x.dirty {
			add(verbFlush, 0)
		}
		if len(x.down) > 0 {
			add(verbDeliver, int(answerACK))
			if x.used.nacks < scope.nacks && len(x.down[0].resources) > 0 {
				add(verbDeliver, int(answerNACK))
			}
			if x.used.late < scope.late {
				add(verbDeliver, int(answerLate))
			}
		}
	}
	if x.used.user < scope.user && (!x.way.delta || !x.streaming || len(x.up) < scope.flight) {
		for l := range x.way.subs_ {
			switch {
			case x.wanted&(1<<l) == 0:
				add(verbSubscribe, l)
			default:
				if x.mayLeave(l) {
					add(verbLeave, l)
				}
				if x.way.delta && x.streaming {
					add(verbAgain, l)
				}
			}
		}
	}
	if len(x.up) > 0 {
		add(verbRead, 0)
	}
	if x.streaming {
		if len(x.down) < scope.flight && len(x.st.wake) > 0 {
			add(verbPush, 0)
		}
		if len(x.st.retention.queue) > 0 {
			add(verbDelay, 0)
		}
		if x.used.breaks < scope.breaks {
			add(verbBreak, 0)
		}
	} else if x.wanted != 0 {
		add(verbOpen, 0)
		if x.used.breaks > 0 {
			add(verbOpen, 1)
		}
	}
	if x.used.world < scope.world {
		list = x.puts(list)
	}
	if x.used.moves < scope.moves {
		add(verbMove, 0)
	}
	if x.isPending() {
		add(verbNotify, 0)
	}
	for i, d := range x.live {
		if !d.answered {
			add(verbAnswer, i)
		}
	}
	return list
}

// puts appends the changes of the store.
func (x *trial) puts(list []checkEvent) []checkEvent {
	for i := range x.way.things {
		to := []checkContent{checkX}
		if x.way.things[i].glob {
			to = nil
		}
		switch x.world[i] {
		case checkX:
			to = []checkContent{checkAbsent, checkY}
		case checkY:
			to = []checkContent{checkAbsent, checkX}
		case checkError:
			to = append(to, checkAbsent)
		}
		if x.world[i] != checkError {
			to = append(to, checkError)
		}
		for _, c := range to {
			list = append(list, checkEvent{verbPut, int8(i), c})
		}
	}
	return list
}
