package resolver

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func aggregate(underlying ...string) *xdsresource.Cluster {
	return &xdsresource.Cluster{Kind: xdsresource.ClusterAggregate, Underlying: underlying}
}

// give answers clusters with STATIC ones, whose endpoints have their names.
func (f *fixture) give(clusters ...string) {
	f.t.Helper()
	for _, c := range clusters {
		f.answer("Cluster "+c, inlined(c, static, c))
	}
}

// 2^15 paths lead through such a graph.
func TestAGraphOfManyPathsIsWalkedOnce(t *testing.T) {
	t.Parallel()
	f := routed(t, "l0", "other")
	for i := range 14 {
		f.answer(fmt.Sprint("Cluster l", i), aggregate(fmt.Sprint("l", i+1), fmt.Sprint("r", i+1)))
		f.answer(fmt.Sprint("Cluster r", i+1), aggregate(fmt.Sprint("l", i+2), fmt.Sprint("r", i+2)))
	}
	f.answer("Cluster l14", aggregate("l15", "r15"))
	f.give("l15", "r15")
	f.expect("R: l0=[l15=l15 r15=r15] other=?")
	walk := f.graph.clusters["l0"].walk
	xdstest.Equal(t, "visited clusters", 31, len(walk.visited))
	f.answer("Cluster other", aggregate("l15"))
	f.expect("R: l0=[l15=l15 r15=r15] other=[l15=l15]")
	if f.graph.clusters["l0"].walk != walk {
		t.Error("the list of a cluster elsewhere causes a walk")
	}
}

// An answer for one cluster under an aggregate one costs the same, however many others there
// are: no walk, no new list.
func TestAnAnswerUnderAnAggregateCostsWhatChanged(t *testing.T) {
	const members, answers, limit = 5000, 100, 30_000
	f := routed(t, "A")
	names := make([]string, members)
	for i := range names {
		names[i] = fmt.Sprint("m", i)
	}
	f.answer("Cluster A", aggregate(names...))
	f.give(names...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range answers {
		f.answer("Cluster m7", inlined("m7", static, fmt.Sprint(i)))
		f.graph.snapshot(false)
	}
	runtime.ReadMemStats(&after)
	if bytes := (after.TotalAlloc - before.TotalAlloc) / answers; bytes > limit {
		t.Errorf("an answer allocates %d bytes, want %d at most", bytes, limit)
	}
	s, _ := f.graph.snapshot(false).clusters.Get("A")
	if u, _ := s.Underlying.States.Get("m7"); describeCluster("m7", u) != "m7=99" {
		t.Errorf("the last answer is %s", describeCluster("m7", u))
	}
}

// Aggregate clusters under an aggregate one become known one by one. All of them together cost what one
// costs, times their number.
func TestAggregatesUnderAnAggregateCostWhatTheyAre(t *testing.T) {
	cost := func(n int) uint64 {
		f := routed(t, "A")
		var names, answers []string
		for i := range n {
			names = append(names, fmt.Sprint("a", i))
			answers = append(answers, fmt.Sprint("b", i), fmt.Sprint("c", i))
		}
		f.answer("Cluster A", aggregate(names...))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i, name := range names {
			f.answer("Cluster "+name, aggregate(answers[2*i], answers[2*i+1]))
		}
		f.graph.snapshot(false)
		runtime.ReadMemStats(&after)
		f.give(answers...)
		s, _ := f.graph.snapshot(false).clusters.Get("A")
		xdstest.Equal(t, "the list", answers, s.Underlying.Names)
		return after.TotalAlloc - before.TotalAlloc
	}
	few, many := cost(100), cost(1000)
	if many > 20*few { // The square would be 100 times as much.
		t.Errorf("10 times as many aggregate clusters cost %d instead of %d bytes", many, few)
	}
}
