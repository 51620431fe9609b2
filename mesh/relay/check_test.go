package relay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/internal/explore"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// checkWay is how client, relay and server speak.
type checkWay struct {
	name               string
	deltaUp, deltaDown bool
	// plain has the server say over SotW only by omission that there is no resource.
	plain  bool
	linger time.Duration
	// bootstrap is that of the relay.
	bootstrap *bootstrap.Config
	// missed counts the messages that were not there when a path was followed again, as goroutines ran in another order.
	missed int
	scope  checkScope
}

// checkWays are the ways; a linger of less than 0 is none.
func checkWays(t *testing.T) (ways []*checkWay) {
	for _, up := range []string{"SotW", "SotW without errors for absence", "delta"} {
		for _, down := range []string{"SotW", "delta"} {
			for _, linger := range []time.Duration{time.Minute, -1} {
				way := &checkWay{
					name:    fmt.Sprintf("%s to the server, %s to the client, linger %v", up, down, linger),
					deltaUp: up == "delta", plain: strings.Contains(up, "without"), deltaDown: down == "delta", linger: linger,
				}
				var features []string
				if way.deltaUp {
					features = append(features, "delta")
				}
				var err error
				way.bootstrap, err = bootstrap.Parse("test", testutils.Bootstrap("relay", "passthrough:///server", testutils.ServerFeatures(features...)))
				xdstest.NoError(t, err)
				ways = append(ways, way)
			}
		}
	}
	return ways
}

// checkScope bounds the events of a path; the deliveries of messages, and what ends a loss, are not bounded.
type checkScope struct {
	// all counts all of these: user what the client does, world the changes at the server, lost how often the relay loses
	// the server, silent how often all is silent for longer than the timers run.
	all, user, world, lost, silent int
	// answered says that the client begins with an answered subscription.
	answered bool
}

func checkScopes() []checkScope {
	if raceDetector {
		return []checkScope{{all: 1, user: 1, world: 1, lost: 1, silent: 1, answered: true}}
	}
	return []checkScope{
		{all: 2, user: 2, world: 2, lost: 1, silent: 1},
		{all: 2, user: 2, world: 2, lost: 1, silent: 1, answered: true},
	}
}

// TestCheck follows every path of events of a client behind a relay behind a server, within a scope, and checks each state:
//
//   - what the client is told is what the server had, in that order, from what the relay knew when the client subscribed;
//   - once no message is under way, the client has what the server has, and still has it two minutes later;
//   - two minutes after the client has unsubscribed, the relay is not subscribed to anything.
//
// Assumed: a server without errors for absence says over SotW only by omission that there is no resource; during a silence of more than
// 15 s, or of more than AwayDelay without the server, a client that was not answered may hear of absence, or UNAVAILABLE. The model has one
// client, one type, no limits, and nothing that is not shared.
func TestCheck(t *testing.T) {
	for _, way := range checkWays(t) {
		if !explore.Selected(way.name) {
			continue
		}
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, scope := range explore.ScopesOf(checkScopes()) {
					way.scope = scope
					r := explore.Run(func() explore.Trial[checkEvent] { return newTrial(way) }, new(explore.Encoder), explore.TimeLimit())
					if r.Fault != "" {
						t.Errorf("%s\n\tafter %d states:\n%s", r.Fault, r.States, explore.Describe(newTrial(way), r.Path))
					}
					t.Logf("%+v: %d states, %d paths, %d events at most, exhausted: %v, %d events did not come again",
						way.scope, r.States, r.Paths, r.Depth, !r.Cut, way.missed)
				}
			})
		})
	}
}

// checkEvent is what happens.
type checkEvent struct {
	verb checkVerb
	to   content
}

type checkVerb uint8

const (
	verbSubscribe checkVerb = iota
	verbUnsubscribe
	verbDisconnect
	verbConnect
	// verbAskRelay has the relay read a request of the client, and so on.
	verbAskRelay
	verbAskServer
	verbTellRelay
	verbTellClient
	verbPut
	verbLose
	verbRestore
	verbSilence
)

// Do implements explore.Trial.
func (x *trial) Do(e checkEvent) {
	if verbAskRelay <= e.verb && e.verb <= verbTellClient && !slices.Contains(x.deliveries(), e) {
		x.way.missed++
		return
	}
	switch e.verb {
	case verbSubscribe, verbUnsubscribe:
		x.count(&x.used.user)
		x.subscribe(e.verb == verbSubscribe)
	case verbDisconnect:
		x.count(&x.used.user)
		x.disconnect()
	case verbConnect:
		x.connect()
	case verbAskRelay:
		x.askRelay()
	case verbAskServer:
		x.askServer()
	case verbTellRelay:
		x.tellRelay()
	case verbTellClient:
		x.tellClient()
	case verbPut:
		x.count(&x.used.world)
		x.put(e.to)
	case verbLose:
		x.count(&x.used.lost)
		x.lose()
	case verbRestore:
		x.restore()
	case verbSilence:
		x.count(&x.used.silent)
		x.beSilent()
	}
}

func (x *trial) count(of *int) {
	*of++
	x.used.all++
}

// deliveries are the messages that may arrive next.
func (x *trial) deliveries() (list []checkEvent) {
	if x.streaming() {
		if x.down.up.pending() > 0 {
			list = append(list, checkEvent{verb: verbAskRelay})
		}
		if x.down.down.pending() > 0 {
			list = append(list, checkEvent{verb: verbTellClient})
		}
	}
	if up := x.upstream(); up != nil {
		if up.up.pending() > 0 {
			list = append(list, checkEvent{verb: verbAskServer})
		}
		if up.down.pending() > 0 {
			list = append(list, checkEvent{verb: verbTellRelay})
		}
	}
	return list
}

// Next implements explore.Trial.
func (x *trial) Next() []checkEvent {
	list := x.deliveries()
	add := func(verb checkVerb) { list = append(list, checkEvent{verb: verb}) }
	if !x.streaming() && x.wants {
		add(verbConnect)
	}
	if !x.reachable {
		add(verbRestore)
	}
	scope := &x.way.scope
	if x.used.all == scope.all {
		return list
	}
	if x.used.user < scope.user {
		switch {
		case !x.wants:
			add(verbSubscribe)
		case x.streaming():
			add(verbUnsubscribe)
			add(verbDisconnect)
		}
	}
	if x.used.lost < scope.lost && x.reachable {
		add(verbLose)
	}
	if x.used.silent < scope.silent {
		add(verbSilence)
	}
	if x.used.world < scope.world {
		for _, c := range []content{absent, denied, versionX, versionY} {
			if c != x.had[len(x.had)-1] && (c != versionY || x.had[len(x.had)-1] == versionX) {
				list = append(list, checkEvent{verbPut, c})
			}
		}
	}
	return list
}
