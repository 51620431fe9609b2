package matching

import (
	"math"
	"slices"
)

// Bounds on how a shortlist is indexed.
const (
	minKeyed  = 8  // number of routes from which an index pays
	maxKeys   = 4  // number of headers that are indexed
	keyedCost = 16 // memory of an entry of an index, in entries of a list
)

// entry is a route of a shortlist: its number, and in the lowest bit whether it matches every
// RPC that finds it there, so that its conditions need not be checked.
type entry int32

func newEntry(route int32, certain bool) entry {
	if certain {
		return entry(route<<1 | 1)
	}
	return entry(route << 1)
}

func (e entry) route() int32 { return int32(e >> 1) }

func (e entry) matches(t *Table, rpc *RPC, h *Headers) bool {
	return e&1 == 1 || t.at(e.route()).MatchesRest(rpc, h)
}

// shortlist is the routes that can match a path. Those that require one value of a header,
// such as routes by tenant or by version, are looked up by that value, which is what makes
// 10,000 of them cost as much as one (BenchmarkRoute, tenants: 0.4 µs, else 150 µs). It is
// immutable, except for paths.
type shortlist struct {
	hash  uint64 // of all
	paths int    // number of remembered paths that have it; guarded by memo.mu

	all        []entry // every route, in order, up to the first that is certain to match
	rest       []entry // all without those in keyed
	keyed      []keyedRoutes
	firstKeyed entry // the least in keyed, math.MaxInt32 if it is empty
}

// keyedRoutes are routes by the value that they require of a header.
type keyedRoutes struct {
	header  string
	byValue map[string][]entry
}

func newShortlist(t *Table, all []entry) *shortlist {
	l := &shortlist{all: all, rest: all, firstKeyed: math.MaxInt32}
	if len(all) < minKeyed {
		return l
	}
	l.rest = nil
	for _, e := range all {
		if !l.key(e.route(), t.at(e.route())) {
			l.rest = append(l.rest, e)
		}
	}
	l.rest = slices.Clip(l.rest)
	return l
}

// key adds a route to the index if it requires one value of a header.
func (l *shortlist) key(route int32, m *Route) bool {
	c := m.Conditions()
	for h := range c.Headers {
		matcher := &c.Headers[h]
		if !matcher.isExact() {
			continue
		}
		k := slices.IndexFunc(l.keyed, func(k keyedRoutes) bool { return k.header == matcher.Name })
		if k < 0 {
			if len(l.keyed) == maxKeys {
				continue
			}
			k = len(l.keyed)
			l.keyed = append(l.keyed, keyedRoutes{header: matcher.Name, byValue: make(map[string][]entry)})
		}
		e := newEntry(route, len(c.Headers) == 1 && len(c.Query) == 0 && c.FractionPerMillion == nil)
		l.firstKeyed = min(l.firstKeyed, e)
		value := matcher.String.Value
		l.keyed[k].byValue[value] = append(l.keyed[k].byValue[value], e)
		return true
	}
	return false
}

// cost is the share of memoRoutes that the list takes.
func (l *shortlist) cost() int64 {
	return int64(len(l.rest) + keyedCost*(len(l.all)-len(l.rest)))
}

// find returns the first route that matches an RPC with the path of the list, or None.
func (l *shortlist) find(t *Table, rpc *RPC, h *Headers) int32 {
	rest := l.rest
	for len(rest) > 0 && rest[0] < l.firstKeyed {
		if rest[0].matches(t, rpc, h) {
			return rest[0].route()
		}
		rest = rest[1:]
	}
	if len(l.keyed) == 0 {
		return None
	}
	lists := [1 + maxKeys][]entry{rest}
	for k := range l.keyed {
		if value, present := h.Get(l.keyed[k].header); present {
			lists[1+k] = l.keyed[k].byValue[value]
		}
	}
	for {
		least := -1
		for k := range lists {
			if len(lists[k]) > 0 && (least < 0 || lists[k][0] < lists[least][0]) {
				least = k
			}
		}
		if least < 0 {
			return None
		}
		e := lists[least][0]
		if e.matches(t, rpc, h) {
			return e.route()
		}
		lists[least] = lists[least][1:]
	}
}

// isExact reports whether m matches exactly one value.
func (m *Header) isExact() bool {
	return m.Kind == HeaderMatches && m.String.Kind == StringExact && !m.String.IgnoreCase && !m.Invert && !m.MissingAsEmpty
}
