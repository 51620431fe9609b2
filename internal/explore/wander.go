package explore

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Wander follows so many random paths of so many events, or, if limit is not 0, as many as it can in this time. It returns the
// first error, with a path from which no event can be left out. weights returns for a path how likely the next event is one of several. Where
// Run is exhaustive within small bounds, Wander finds what takes many events.
func Wander[E comparable](begin func() Trial[E], r *rand.Rand, paths, events int, weights func(*rand.Rand) func(E) float64, limit time.Duration) (result Result[E]) {
	started := processTime()
	defer func() { result.Time = processTime() - started }()
	for limit == 0 && result.Paths < paths || limit > 0 && processTime()-started < limit {
		result.Paths++
		path, fault := wander(begin(), r, events, weights(r))
		result.States += len(path)
		if fault == "" {
			continue
		}
		result.Path, result.Fault = shorten(begin, path, fault)
		return result
	}
	return result
}

func wander[E comparable](x Trial[E], r *rand.Rand, events int, weight func(E) float64) (path []E, fault string) {
	return walk(x, func() (e E, ok bool) {
		if events--; events < 0 {
			return e, false
		}
		return draw(x.Next(), r, weight)
	})
}

// walk follows the path of the events that next returns, until it returns none, and then until silence.
func walk[E any](x Trial[E], next func() (E, bool)) (path []E, fault string) {
	defer x.End()
	for e, ok := next(); ok; e, ok = next() {
		path = append(path, e)
		if x.Do(e); x.Fault() != "" {
			return path, x.Fault()
		}
	}
	x.Settle()
	return path, x.Fault()
}

// draw chooses one of several events.
func draw[E any](list []E, r *rand.Rand, weight func(E) float64) (e E, ok bool) {
	sum := 0.0
	for _, e := range list {
		sum += weight(e)
	}
	at := r.Float64() * sum
	for _, e := range list {
		if at -= weight(e); at < 0 {
			return e, true
		}
	}
	return e, false
}

// shorten leaves out events as long as there is an error.
func shorten[E comparable](begin func() Trial[E], path []E, fault string) ([]E, string) {
	for size := max(1, len(path)/2); size > 0; {
		shorter := false
		for at := 0; at+size <= len(path); {
			rest, f := retry(begin(), slices.Delete(slices.Clone(path), at, at+size))
			if f == "" || len(rest) >= len(path) {
				at++
				continue
			}
			path, fault, shorter = rest, f, true
		}
		if !shorter || size > len(path) {
			size = min(size/2, len(path))
		}
	}
	return path, fault
}

// retry follows a path without the events that are not possible any more.
func retry[E comparable](x Trial[E], events []E) (path []E, fault string) {
	return walk(x, func() (e E, ok bool) {
		for ; len(events) > 0 && !ok; events = events[1:] {
			e, ok = events[0], slices.Contains(x.Next(), events[0])
		}
		return e, ok
	})
}
