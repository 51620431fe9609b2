package matching

import (
	"math"
	"slices"
)

// Bounds on how a shortlist is indexed.
const (
	// minKeyed is the number of routes from which on an index pays.
	minKeyed = 8
	// maxKeys is the number of headers that there is an index for.
	maxKeys = 4
	// keyedCost is how many entries of a list an entry of an index is worth.
	keyedCost = 16
)

// shortlist is the routes that can match a path. Those that want a header to have one
// value, as routes by tenant or by version do, are found by that value. It is immutable.
type shortlist struct {
	all        []int32 // every route, in order, up to and including certain
	certain    int32   // the first route that matches by its path alone, or None
	rest       []int32 // all without those in keyed
	keyed      []keyedRoutes
	firstKeyed int32 // the least route in keyed, math.MaxInt32 if it is empty
}

// keyedRoutes are routes by the value that they ask for in a header.
type keyedRoutes struct {
	header  string
	byValue map[string][]int32
}

func newShortlist(t *Table, all []int32) *shortlist {
	l := &shortlist{all: all, certain: None, rest: all, firstKeyed: math.MaxInt32}
	if n := len(all); n > 0 && t.at(all[n-1]).onlyPath() {
		l.certain = all[n-1]
	}
	if len(all) < minKeyed {
		return l
	}
	l.rest = nil
	for _, i := range all {
		if !l.key(i, t.at(i)) {
			l.rest = append(l.rest, i)
		}
	}
	l.rest = slices.Clip(l.rest)
	return l
}

// key enters a route into the index if it asks for a value.
func (l *shortlist) key(route int32, m *Route) bool {
	for h := range m.Headers {
		matcher := &m.Headers[h]
		if !matcher.isExact() {
			continue
		}
		k := slices.IndexFunc(l.keyed, func(k keyedRoutes) bool { return k.header == matcher.Name })
		if k < 0 {
			if len(l.keyed) == maxKeys {
				continue
			}
			k = len(l.keyed)
			l.keyed = append(l.keyed, keyedRoutes{header: matcher.Name, byValue: make(map[string][]int32)})
		}
		l.firstKeyed = min(l.firstKeyed, route)
		value := matcher.String.Value
		l.keyed[k].byValue[value] = append(l.keyed[k].byValue[value], route)
		return true
	}
	return false
}

// cost is how much of memoRoutes the list takes.
func (l *shortlist) cost() int64 {
	return int64(len(l.rest) + keyedCost*(len(l.all)-len(l.rest)))
}

// find returns the first route of the list that matches an RPC whose path matches, or None.
func (l *shortlist) find(t *Table, rpc *RPC, h *Headers) int32 {
	rest := l.rest
	for len(rest) > 0 && rest[0] < l.firstKeyed {
		if rest[0] == l.certain || t.at(rest[0]).MatchesRest(rpc, h) {
			return rest[0]
		}
		rest = rest[1:]
	}
	if len(l.keyed) == 0 {
		return None
	}
	lists := [1 + maxKeys][]int32{rest}
	for k := range l.keyed {
		if value, present := h.Get(l.keyed[k].header); present {
			lists[1+k] = l.keyed[k].byValue[value]
		}
	}
	for {
		i := popLeast(&lists)
		if i == None || i == l.certain || t.at(i).MatchesRest(rpc, h) {
			return i
		}
	}
}

// popLeast removes and returns the least entry of ascending lists, or None.
func popLeast(lists *[1 + maxKeys][]int32) int32 {
	least := -1
	for k := range lists {
		if len(lists[k]) > 0 && (least < 0 || lists[k][0] < lists[least][0]) {
			least = k
		}
	}
	if least < 0 {
		return None
	}
	i := lists[least][0]
	lists[least] = lists[least][1:]
	return i
}

// isExact reports whether m matches exactly one value.
func (m *Header) isExact() bool {
	return m.Kind == HeaderMatches && m.String.Kind == StringExact && !m.String.IgnoreCase && !m.Invert && !m.MissingAsEmpty
}
