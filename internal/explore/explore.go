// Package explore follows all paths of events of a deterministic system within a bound, for tests of
// protocols: breadth-first, so that the first error is one of the shortest paths, and each state once.
// It knows neither the system nor its events.
package explore

import (
	"hash/maphash"
	"slices"
	"time"
)

// Trial is the system on one path, from its beginning.
type Trial[E any] interface {
	// Do lets an event happen.
	Do(E)
	// Fault says what is wrong, "" if nothing is.
	Fault() string
	// Encode writes the state, in a form that is equal only for states that behave alike.
	Encode(*Encoder)
	// Next returns the events that may come next.
	Next() []E
	// Settle lets all happen that happens without further events, and checks where that leads. It returns how many
	// messages that took. It is called once, after Next.
	Settle() int
	// End is called last.
	End()
}

// Result is what was found, and how far the exploration came.
type Result[E any] struct {
	// Fault is "" if there is none; Path leads to it.
	Fault string
	Path  []E
	// States counts the different states, Paths what was followed, Depth the events of the longest path,
	// and Messages the largest number until all was settled.
	States, Paths, Depth, Messages int
	// Cut says that there was no time for all.
	Cut bool
	// Time is the CPU time of the process: in a bubble of synctest there is no other that passes.
	Time time.Duration
}

// step is the last event of a path, and the path before it.
type step[E any] struct {
	event  E
	before *step[E]
}

func (s *step[E]) events() (list []E) {
	for ; s != nil; s = s.before {
		list = append(list, s.event)
	}
	slices.Reverse(list)
	return list
}

// Run follows all paths, for as long as limit if that is not 0. The encoder is that of the system.
func Run[E any](begin func() Trial[E], encoder *Encoder, limit time.Duration) (r Result[E]) {
	started := processTime()
	defer func() { r.Time = processTime() - started }()
	visited := make(map[[2]uint64]struct{})
	frontier, next := []*step[E]{nil}, []*step[E](nil)
	follow := func(path *step[E]) {
		r.Paths++
		x := begin()
		defer x.End()
		for _, e := range path.events() {
			if x.Do(e); x.Fault() != "" {
				r.Fault, r.Path = x.Fault(), path.events()
				return
			}
		}
		hash := encoder.hash(x.Encode)
		if _, known := visited[hash]; known {
			return
		}
		visited[hash] = struct{}{}
		follows := x.Next()
		r.States++
		r.Messages = max(r.Messages, x.Settle())
		if x.Fault() != "" {
			r.Fault, r.Path = x.Fault(), path.events()
			return
		}
		for _, e := range follows {
			next = append(next, &step[E]{e, path})
		}
	}
	for depth := 0; len(frontier) > 0; depth++ {
		r.Depth = depth
		for _, path := range frontier {
			if follow(path); r.Fault != "" {
				return r
			}
			if limit > 0 && r.Paths%256 == 0 && processTime()-started > limit {
				r.Cut = true
				return r
			}
		}
		frontier, next = next, nil
	}
	return r
}

// seeds have equal bytes have equal hashes for the life of the process.
var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
