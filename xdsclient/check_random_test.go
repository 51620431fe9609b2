package xdsclient

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/dynxds/dynxds/internal/explore"
)

var checkRandom = flag.Uint64("check.seed", 1, "the seed of TestCheckAtRandom")

// TestCheckAtRandom follows random paths with many moves from one locator to another, and up to 8 responses under way.
func TestCheckAtRandom(t *testing.T) {
	checkSilent.Store(true)
	defer checkSilent.Store(false)
	for _, way := range checkWays() {
		if !explore.Selected(way.name) {
			continue
		}
		t.Run(way.name, func(t *testing.T) {
			way.prepare(t)
			way.scope = explore.ScopesOf([]checkScope{randomScope(way)})[0]
			synctest.Test(t, func(t *testing.T) { followRandomPaths(t, way) })
		})
	}
}

func followRandomPaths(t *testing.T, way *checkWay) {
	env := newCheckEnv(t, way)
	// What is likely differs from path to path: so there are some with many messages under way, and some with few.
	weights := func(r *rand.Rand) func(checkAction) float64 {
		var of [verbs]float64
		for i := range of {
			of[i] = math.Exp(4 * r.Float64())
		}
		return func(a checkAction) float64 { return of[a.verb] }
	}
	begin := func() explore.Trial[checkAction] {
		x := env.newTrial(nil)
		x.free = true
		return x
	}
	const paths, events = 1500, 150 // -check.time in place of so many paths
	found := explore.Wander(begin, rand.New(rand.NewPCG(*checkRandom, 0)), paths, events, weights, explore.TimeLimit())
	if found.Fault != "" {
		t.Errorf("%s\nafter %d paths, path %q:\n%s", found.Fault, found.Paths, way.pathText(found.Path), env.transcriptOf(found.Path))
	}
	t.Logf("%+v: %d paths, %d events, %.1f s", way.scope, found.Paths, found.States, found.Time.Seconds())
}

// randomScope is the scope of random paths. A request is crossed by no more than maxBehind responses, where that counts.
func randomScope(way *checkWay) checkScope {
	scope := checkScope{user: 1000, world: 1000, breaks: 1000, flight: maxBehind, held: "xx", start: "01"}
	if way.moves {
		scope = checkScope{moves: 1000, world: 1000, breaks: 1000, flight: 8, held: "x", start: "0"}
		if way.obeysStale {
			scope.flight = maxBehind
		}
	}
	if way.lapses {
		scope.lapses = 1000
	}
	for _, l := range way.locators_ { // see what is assumed of the server
		scope.scoped = scope.scoped || l.collection
	}
	return scope
}
