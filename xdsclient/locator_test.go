package xdsclient

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// BenchmarkMove1000 changes the constraints of 1,000 watches at once, from the calls
// to the bytes of the one request and to what the watchers are told of the answer.
// ns/watch is the same for any number of them: the time is linear.
func BenchmarkMove1000(b *testing.B) {
	for _, delta := range []bool{false, true} {
		for _, n := range []int{100, 1000, 10_000} {
			name, features := "SotW", []string{"dynamic_parameter_constraints"}
			if delta {
				name, features = "delta", append(features, "delta")
			}
			b.Run(name+"/"+strconv.Itoa(n), func(b *testing.B) { benchmarkMove(b, newCore(b, features...), n) })
		}
	}
}

func benchmarkMove(b *testing.B, k *core, n int) {
	types := newTestTypes()
	sides := [2]dynparam.Constraints{choose("env=prod"), choose("env=test")}
	var responses [2][]byte
	for i, params := range []string{"env=prod", "env=test"} {
		var words []string
		for j := range n {
			words = append(words, fmt.Sprintf("cluster-%d{%s}@%[2]s=%[2]s", j, params))
		}
		responses[i] = k.response(types, types.clusters, params, words...)
	}
	heard, stops := &counter{}, make([]func(), n)
	requests := 0
	move := func(to int) {
		k.c.Batch(func() {
			for i := range stops {
				before := stops[i]
				stops[i] = k.c.WatchLocator(types.clusters, "cluster-"+strconv.Itoa(i), sides[to], heard)
				if before != nil {
					before()
				}
			}
		})
		for m := k.request(); m != nil; m = k.request() {
			requests++
		}
		k.push(responses[to])
		k.answer()
	}
	move(0)
	requests = 0
	b.ReportAllocs()
	moves := 0
	for b.Loop() {
		moves++
		move(moves % 2)
	}
	if heard.values != (moves+1)*n || requests != moves {
		b.Fatalf("%d moves of %d watches told of %d values with %d requests", moves, n, heard.values, requests)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(moves)/float64(n), "ns/watch")
}
