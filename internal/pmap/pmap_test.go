package pmap

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// build returns the map with the entries of m.
func build(m map[string]int) Map[int] {
	b := Map[int]{}.Edit()
	for k, v := range m {
		b.Set(k, v)
	}
	return b.Map()
}

// numbered returns the map of n keys to their numbers.
func numbered(n int) Map[int] {
	b := Map[int]{}.Edit()
	for i := range n {
		b.Set(key(i), i)
	}
	return b.Map()
}

func key(i int) string { return fmt.Sprintf("cluster-%06d", i) }

// check compares m with what it should be, through all ways of reading it.
func check(t *testing.T, m Map[int], want map[string]int) {
	t.Helper()
	got := maps.Collect(m.All)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("All (-want +got):\n%s", diff)
	}
	if m.Len() != len(want) {
		t.Fatalf("Len = %d, want %d", m.Len(), len(want))
	}
	for k, v := range want {
		if got, ok := m.Get(k); got != v || !ok {
			t.Fatalf("Get(%q) = %d, %v, want %d, true", k, got, ok, v)
		}
	}
	if got, ok := m.Get("not there"); got != 0 || ok {
		t.Fatalf("Get of a missing key = %d, %v, want 0, false", got, ok)
	}
}

func TestEditsThatChangeNothingReturnTheMapItself(t *testing.T) {
	m := numbered(100)
	b := m.Edit()
	b.Set(key(7), 7)
	b.Delete("not there")
	if got := b.Map(); !got.Same(m) {
		t.Error("the result is another map")
	}
	k := key(7)
	if allocs := testing.AllocsPerRun(100, func() { b.Set(k, 7) }); allocs != 0 {
		t.Errorf("%v allocations to set what is there, want 0", allocs)
	}
}

// edit makes random changes to a builder, which reads them, and to a plain map.
func edit(t *testing.T, r *rand.Rand, b *Builder[int], model map[string]int) {
	for range r.IntN(40) {
		k, v := key(r.IntN(700)), r.IntN(5)
		if r.IntN(3) == 0 {
			b.Delete(k)
			delete(model, k)
		} else {
			b.Set(k, v)
			model[k] = v
		}
		got, ok := b.Get(k)
		if want, has := model[k]; got != want || ok != has {
			t.Fatalf("Get(%q) = %d, %v, want %d, %v", k, got, ok, want, has)
		}
	}
}

type change struct {
	Before, After int
	Had, Has      bool
}

// wantDiff compares two plain maps.
func wantDiff(before, after map[string]int) map[string]change {
	want := make(map[string]change)
	for k, v := range before {
		if w, ok := after[k]; !ok || v != w {
			want[k] = change{v, w, true, ok}
		}
	}
	for k, w := range after {
		if _, ok := before[k]; !ok {
			want[k] = change{0, w, false, true}
		}
	}
	return want
}

func gotDiff(t *testing.T, before, after Map[int]) map[string]change {
	got := make(map[string]change)
	after.Diff(before, func(key string, before, after int, had, has bool) {
		if _, twice := got[key]; twice {
			t.Errorf("Diff names %q twice", key)
		}
		got[key] = change{before, after, had, has}
	})
	return got
}

// Random edits, each of a random older version, agree with a plain map, and no version ever
// changes, also if the builder that has made it is used again.
func TestMapAgreesWithAPlainMap(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(3, seed))
		versions := []Map[int]{{}}
		models := []map[string]int{{}}
		for range 60 {
			base := r.IntN(len(versions))
			b, model := versions[base].Edit(), maps.Clone(models[base])
			for range r.IntN(3) {
				edit(t, r, b, model)
				versions, models = append(versions, b.Map()), append(models, maps.Clone(model))
			}
		}
		for i := range versions {
			check(t, versions[i], models[i])
			j := r.IntN(len(versions))
			for _, old := range []Map[int]{versions[j], build(models[j])} { // The second shares nothing.
				if want, got := wantDiff(models[j], models[i]), gotDiff(t, old, versions[i]); !maps.Equal(got, want) {
					t.Fatalf("seed %d, Diff of versions %d and %d (-want +got):\n%s", seed, j, i, cmp.Diff(want, got))
				}
			}
		}
	}
}

// Maps of any size, and so with any number of shards, are complete, and Diff finds what
// differs.
func TestMapsOfAllSizes(t *testing.T) {
	t.Parallel()
	sizes := []int{0, 1, perShard - 1, perShard, perShard + 1, 4 * perShard, 4*perShard + 1, perShard * usualWidth, perShard*usualWidth + 1, 3 * perShard * usualWidth}
	model := func(n int) map[string]int {
		m := map[string]int{}
		for i := range n {
			m[key(i)] = i
		}
		return m
	}
	for _, n := range sizes {
		m := numbered(n)
		check(t, m, model(n))
		for _, s := range m.shards {
			if len(m.shards) < usualWidth && len(s) > 4*perShard {
				t.Errorf("one of %d shards of a map of %d has %d entries", len(m.shards), n, len(s))
			}
		}
		if want := n / perShard; len(m.shards) > max(1, 2*want) {
			t.Errorf("a map of %d has %d shards, want at most %d", n, len(m.shards), max(1, 2*want))
		}
		for _, other := range sizes {
			if want, got := wantDiff(model(other), model(n)), gotDiff(t, numbered(other), m); !maps.Equal(got, want) {
				t.Errorf("Diff of maps of %d and %d names %d keys, want %d", other, n, len(got), len(want))
			}
		}
		for range m.All {
			break // All ends then.
		}
		grown := m.Edit()
		grown.Set("one more", -1)
		if got := gotDiff(t, m, grown.Map()); len(got) != 1 {
			t.Errorf("Diff of a map of %d and one with one entry more names %d keys", n, len(got))
		}
		check(t, m, model(n))
	}
}

func TestLargeMapsGetMoreShards(t *testing.T) {
	t.Parallel()
	const n = maxShard * usualWidth
	m := numbered(n)
	b := m.Edit()
	b.Set(key(n), n)
	grown := b.Map()
	if len(m.shards) != usualWidth || len(grown.shards) != 2*usualWidth || grown.Len() != n+1 {
		t.Errorf("a map of %d has %d shards; with one more, it has %d in %d", n, len(m.shards), grown.Len(), len(grown.shards))
	}
	for _, got := range []map[string]change{gotDiff(t, m, grown), gotDiff(t, grown, m)} {
		if len(got) != 1 {
			t.Errorf("Diff of maps of different widths names %d keys, want 1", len(got))
		}
	}
}

func TestChangedCopySharesAllButOneShard(t *testing.T) {
	t.Parallel()
	m := numbered(10_000)
	for what, change := range map[string]func(*Builder[int]){
		"set":    func(b *Builder[int]) { b.Set(key(77), -1) },
		"add":    func(b *Builder[int]) { b.Set("new", 1) },
		"delete": func(b *Builder[int]) { b.Delete(key(77)) },
	} {
		b := m.Edit()
		change(b)
		n := b.Map()
		differ := 0
		for i := range n.shards {
			if !same(m.shards[i], n.shards[i]) {
				differ++
			}
		}
		if differ != 1 {
			t.Errorf("%s: %d shards differ, want 1", what, differ)
		}
		if got := gotDiff(t, m, n); len(got) != 1 {
			t.Errorf("%s: Diff names %d keys, want 1", what, len(got))
		}
	}
}

func BenchmarkMap(b *testing.B) {
	for _, n := range []int{1, 100, 10_000, 100_000} {
		m, k := numbered(n), key(n/2)
		b.Run(fmt.Sprintf("get/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := m.Get(k); !ok {
					b.Fatal("not there")
				}
			}
		})
		b.Run(fmt.Sprintf("change/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			m := m
			for i := 0; b.Loop(); i++ {
				e := m.Edit()
				e.Set(k, -1-i)
				m = e.Map()
			}
		})
		b.Run(fmt.Sprintf("diff/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			e := m.Edit()
			e.Set(k, -1)
			changed := e.Map()
			for b.Loop() {
				found := 0
				changed.Diff(m, func(string, int, int, bool, bool) { found++ })
				if found != 1 {
					b.Fatalf("%d keys differ, want 1", found)
				}
			}
		})
	}
}
