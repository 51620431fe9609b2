package xdsclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// checkWay is one way of speaking the protocol, with what is watched and what there may be. All texts are
// words of a transcript.
type checkWay struct {
	name string
	// delta, locators and full are the protocol: incremental, by locators (xRFC TP2), and with the full state
	// in SotW responses.
	delta, locators, full bool
	// obeysStale says that a SotW server takes the list of a request that answers an older response, and obeysEmpty that it
	// does so of one that answers none.
	obeysStale, obeysEmpty bool
	// faulty says that the server also has resources that the client cannot decode, and keeps that the client, whatever
	// the server says, keeps a resource that it has (no fail_on_data_errors).
	faulty, keeps bool
	// heartbeats says that the server also sends the version of a resource without the resource.
	heartbeats bool
	// errors says that the server has errors in place of resources (xRFC TP3), and variantsRepeat that with a
	// resource that matches another subscription it repeats what that one has.
	errors, variantsRepeat bool
	// lapses says that resources have a TTL, which may run out while there is no stream.
	lapses bool
	// moves says that the server moves the client from one of the locators to another (DPDS): the messages are in the order
	// of the moves, and what the client is moved to is there. Then denials name their constraints.
	moves bool
	// fallback says that there is a second server, with other content (gRFC A71).
	fallback bool
	// authorities says that each name is of an authority of its own, and lower that the second one of these has only the second server.
	authorities, lower bool
	// endsTwice says that streams may end twice.
	endsTwice bool
	// wide says that there are so many states with streams that end that only "make check" visits them.
	wide bool
	// watches are a{shard=0-5}, dir/* and the like, and items a{shard=5}, dir/a and the like.
	watches, items []string
	// scope is the one that is followed at the moment.
	scope checkScope

	locators_ []checkLocator
	things    []checkItem
	// chosen has what each locator chooses of each set of items, as bits.
	chosen [][]int8
}

// checkScope bounds the events of a path. What follows from them is not bounded, but for the messages that
// are under way in each direction.
type checkScope struct {
	// user counts the watches that start and stop, world the changes of items, breaks the streams that end,
	// extra the responses for which the server has no reason, and timers how often 15 s pass.
	user, world, breaks, extra, timers int
	// moves counts the moves to another locator, and lapses how often TTLs run out.
	moves, lapses int
	// flight is how many responses may be under way.
	flight int
	// held is what there is at the start, by item, and start has the locators that are watched, and answered.
	held  string
	start string
	// scoped says that denials name their constraints.
	scoped bool
}

// checkLocator is what may be watched.
type checkLocator struct {
	// kind is the type: 0 for clusters, 1 for endpoints.
	kind        int
	text, name  string
	constraints dynparam.Constraints
	collection  bool
	// matches has the items that match, and sameName the locators of the same name, as bits.
	matches, sameName uint
}

// checkItem is what there may be at the server: a resource, or a variant of it.
type checkItem struct {
	kind       int
	text, name string
	parameters dynparam.Parameters
	// for_ has the locators of single resources, and collections those of collections, that it matches.
	singles, collections uint
}

// checkContent is what an item is at the moment.
type checkContent = uint8

const (
	checkAbsent checkContent = iota
	checkX
	checkY
	checkDenied
	// checkFaulty is a resource that the client cannot decode.
	checkFaulty
	checkContents
)

// checkValue is what a server has for a locator: an item and its content.
type checkValue uint8

const (
	// checkUnsaid: the server has said nothing.
	checkUnsaid checkValue = iota
	// checkNothing: there is nothing.
	checkNothing
	checkFirst
)

func checkValueOf(item int, c checkContent) checkValue {
	return checkFirst + checkValue(item)*checkValue(checkContents) + checkValue(c)
}

func (v checkValue) item() int { return int(v-checkFirst) / int(checkContents) }
func (v checkValue) content() checkContent {
	if v < checkFirst {
		return checkAbsent
	}
	return checkContent(v-checkFirst) % checkContents
}

// isSent reports whether the server sends it as a resource, and isThere whether the client can decode it, too.
func (v checkValue) isSent() bool  { return v.isThere() || v.content() == checkFaulty }
func (v checkValue) isThere() bool { return v.content() == checkX || v.content() == checkY }

const (
	checkKinds       = 2
	maxCheckLocators = 6
	maxCheckItems    = 4
)

// checkWorld is what there is at the server.
type checkWorld [maxCheckItems]checkContent

// prepare reads the texts.
func (way *checkWay) prepare(t testing.TB) {
	for _, text := range way.items {
		kind, text := cutKind(text)
		name, list, _ := cutBraces(text)
		p, err := dynparam.NewParameters(parameters(strings.Join(list, ",")))
		xdstest.NoError(t, err)
		way.things = append(way.things, checkItem{kind: kind, text: text, name: name, parameters: p})
	}
	for _, text := range way.watches {
		kind, text := cutKind(text)
		name, list, _ := cutBraces(text)
		l := checkLocator{kind: kind, text: text, name: name, constraints: choose(list...)}
		l.collection = isCollection(name)
		way.locators_ = append(way.locators_, l)
	}
	for i := range way.locators_ {
		l := &way.locators_[i]
		for j := range way.locators_ {
			if way.locators_[j].name == l.name && way.locators_[j].kind == l.kind {
				l.sameName |= 1 << j
			}
		}
		for j := range way.things {
			it := &way.things[j]
			within := it.name == l.name || l.name == wildcard || l.collection && strings.HasPrefix(it.name, strings.TrimSuffix(l.name, "*"))
			switch {
			case !within || it.kind != l.kind || !l.constraints.Match(it.parameters):
			case l.collection:
				it.collections |= 1 << i
				l.matches |= 1 << j
			default:
				it.singles |= 1 << i
				l.matches |= 1 << j
			}
		}
		way.chosen = append(way.chosen, way.choices(l))
	}
}

// cutKind cuts the type off a text such as e:a.
func cutKind(text string) (kind int, rest string) {
	if rest, ok := strings.CutPrefix(text, checkEndpoints); ok {
		return 1, rest
	}
	return 0, text
}

// checkEndpoints stands in front of the names of endpoints.
const checkEndpoints = "e:"

// watchText is what a transcript calls a locator.
func (l *checkLocator) watchText() string { return strings.Repeat(checkEndpoints, l.kind) + l.text }

// ofKind returns the locators of a type, as bits.
func (way *checkWay) ofKind(kind int) (bits uint) {
	for l := range way.locators_ {
		if way.locators_[l].kind == kind {
			bits |= 1 << l
		}
	}
	return bits
}

// choices returns the item that a locator chooses of each set of items, or -1.
func (way *checkWay) choices(l *checkLocator) (chosen []int8) {
	for set := range uint(1) << len(way.things) {
		var of []dynparam.Parameters
		var which []int8
		for i := range way.things {
			if set&l.matches&(1<<i) != 0 {
				of, which = append(of, way.things[i].parameters), append(which, int8(i))
			}
		}
		best := int8(-1)
		if at := l.constraints.Choose(of).Index; at >= 0 {
			best = which[at]
		}
		chosen = append(chosen, best)
	}
	return chosen
}

// present returns the items that there are, as bits.
func (w *checkWorld) present() (set uint) {
	for i, c := range w {
		if c != checkAbsent {
			set |= 1 << i
		}
	}
	return set
}

// of returns what there is for the locator of a single resource.
func (w *checkWorld) of(way *checkWay, locator int) checkValue {
	i := way.chosen[locator][w.present()&(1<<len(way.things)-1)]
	if i < 0 {
		return checkNothing
	}
	return checkValueOf(int(i), w[i])
}

// member returns what an item is to the locator of a collection.
func (w *checkWorld) member(way *checkWay, locator, item int) checkValue {
	if way.locators_[locator].matches&(1<<item) == 0 || w[item] == checkAbsent {
		return checkNothing
	}
	return checkValueOf(item, w[item])
}

// text is the resource that an item is.
func (way *checkWay) text(item int, c checkContent) string {
	return fmt.Sprintf("%d%c", item, "-xy!b"[c])
}

// valueOfText is the reverse of text.
func (way *checkWay) valueOfText(text string) checkValue {
	if len(text) != 2 {
		return checkUnsaid
	}
	return checkValueOf(int(text[0]-'0'), checkContent(strings.IndexByte("-xy!b", text[1])))
}

// locatorOf returns the index of a locator.
func (way *checkWay) locatorOf(kind int, name string, c dynparam.Constraints) int {
	return slices.IndexFunc(way.locators_, func(l checkLocator) bool {
		return l.kind == kind && l.name == name && (!way.locators || l.constraints.Equal(c))
	})
}

// checkScopes are followed one after the other: watches that start, watches that stop and start, streams that end; or
// moves, or what else the way is for.
// With -race, which is for the rest of the code, they are smaller.
func checkScopes(way *checkWay) []checkScope {
	nothing := checkScope{user: 2, world: 1, flight: 2, held: "xx"}
	answered := checkScope{user: 2, world: 1, flight: 2, held: "xx", start: "01"}
	spare := checkScope{user: 1, world: 1, extra: 1, flight: 2, held: "xx", start: "01"}
	ends := checkScope{user: 1, world: 1, breaks: 1, flight: 2, held: "xx", start: "01"}
	// changes has a change that is taken back.
	changes := checkScope{world: 2, breaks: 1, flight: 2, held: "x", start: "0"}
	switch {
	case way.moves && raceDetector:
		return []checkScope{{moves: 2, world: 1, flight: 2, held: "x", start: "0"}}
	case way.lapses:
		return []checkScope{{user: 1, world: 1, breaks: 1, lapses: 1, flight: 2, held: "xx", start: "01"}}
	case way.moves:
		return []checkScope{{moves: 2, world: 1, breaks: 1, flight: 3, held: "x", start: "0"}}
	case raceDetector:
		return []checkScope{{user: 1, world: 1, flight: 2, held: "xx", start: "01"}}
	case way.lower:
		return []checkScope{
			{user: 2, breaks: 2, flight: 1, held: "x", start: "1"},
			{user: 1, world: 1, breaks: 1, flight: 1, held: "x", start: "1"},
			{world: 1, breaks: 2, flight: 1, held: "x", start: "01"},
		}
	case way.fallback && way.wide:
		return []checkScope{{user: 1, breaks: 2, flight: 1, held: "xx", start: "0"}}
	case way.fallback:
		return []checkScope{{user: 1, world: 1, breaks: 2, flight: 1, held: "xx", start: "0"}}
	case way.faulty:
		return []checkScope{nothing, spare, changes}
	case way.obeysEmpty:
		return []checkScope{nothing, ends}
	case way.wide:
		return []checkScope{nothing, answered}
	case way.endsTwice:
		ends.breaks, changes.breaks, changes.held, changes.start = 2, 2, "xx", "01"
		return []checkScope{nothing, answered, spare, ends, changes}
	default:
		return []checkScope{nothing, answered, spare, ends}
	}
}

// checkWays are the ways that are checked.
func checkWays() []*checkWay {
	names := []string{"a", "b"}
	types := []string{"a", "e:a", "b"}
	authorities := []string{"a", "dir/b"}
	disjoint := []string{"a{env=prod}", "a{env=test}", "b"}
	overlap := []string{"a{shard=0-5}", "a{shard=0-3}", "b"}
	shards := []string{"a{shard=5}", "a{shard=3}"}
	envs := []string{"a{env=prod}", "a{env=test}"}
	turns := []string{"a{turn=0}", "a{turn=1}", "a{turn=2}"}
	return []*checkWay{
		{name: "SotW names", full: true, watches: names, items: names},
		{name: "SotW locators", full: true, locators: true, watches: disjoint, items: envs},
		{name: "SotW shards", full: true, locators: true, watches: overlap, items: shards},
		{name: "SotW partial names", errors: true, watches: names, items: names},
		{name: "SotW partial shards", wide: true, errors: true, variantsRepeat: true, locators: true, watches: overlap, items: shards},
		{name: "SotW stale names", obeysStale: true, full: true, watches: names, items: names},
		{name: "SotW stale locators", obeysStale: true, full: true, locators: true, watches: disjoint, items: envs},
		{name: "SotW stale partial names", obeysStale: true, errors: true, watches: names, items: names},
		{name: "SotW empty names", obeysEmpty: true, full: true, watches: names, items: names},
		{name: "SotW empty locators", obeysEmpty: true, full: true, locators: true, watches: disjoint, items: envs},
		{name: "SotW empty partial names", obeysEmpty: true, errors: true, watches: names, items: names},
		{name: "SotW faulty names", faulty: true, keeps: true, full: true, watches: names, items: names},
		{name: "SotW faulty shards", faulty: true, full: true, locators: true, watches: overlap, items: shards},
		{name: "SotW faulty partial names", faulty: true, heartbeats: true, watches: names, items: names},
		{name: "delta faulty names", faulty: true, keeps: true, heartbeats: true, delta: true, watches: names, items: names},
		{name: "delta faulty locators", faulty: true, heartbeats: true, delta: true, locators: true, watches: disjoint, items: envs},
		{name: "delta names", delta: true, watches: names, items: names},
		{name: "delta locators", delta: true, locators: true, watches: disjoint, items: envs},
		{name: "delta shards", wide: true, delta: true, locators: true, watches: overlap, items: shards},
		{name: "delta wildcard", endsTwice: true, delta: true, watches: []string{"a", "*"}, items: names},
		{name: "delta glob names", endsTwice: true, delta: true, watches: []string{"dir/a", "dir/*"}, items: []string{"dir/a", "dir/b"}},
		{name: "delta glob", delta: true, locators: true, watches: []string{"dir/a{shard=0-5}", "dir/*{shard=0-3}"}, items: []string{"dir/a{shard=5}", "dir/a{shard=3}"}},
		{name: "delta variants", delta: true, locators: true, watches: []string{"dir/a{shard=0-3}", "dir/*{shard=0-5}"}, items: []string{"dir/a{shard=5}", "dir/a{shard=3}"}},
		{name: "SotW types", full: true, watches: types, items: types},
		{name: "delta types", delta: true, watches: types, items: types},
		{name: "SotW fallback", fallback: true, full: true, watches: names, items: names},
		{name: "SotW partial fallback", wide: true, fallback: true, watches: names, items: names},
		{name: "delta fallback", fallback: true, delta: true, watches: names, items: names},
		{name: "SotW authorities", authorities: true, fallback: true, full: true, watches: authorities, items: authorities},
		{name: "delta authorities", authorities: true, fallback: true, delta: true, watches: authorities, items: authorities},
		{name: "SotW lower", lower: true, authorities: true, fallback: true, full: true, watches: authorities, items: authorities},
		{name: "delta lower", lower: true, authorities: true, fallback: true, delta: true, watches: authorities, items: authorities},
		{name: "SotW lapses", lapses: true, full: true, watches: names, items: names},
		{name: "delta lapses", lapses: true, delta: true, watches: names, items: names},
		{name: "SotW moves", moves: true, full: true, locators: true, watches: turns, items: turns},
		{name: "SotW stale moves", obeysStale: true, moves: true, full: true, locators: true, watches: turns, items: turns},
		{name: "SotW partial moves", moves: true, variantsRepeat: true, errors: true, locators: true, watches: turns, items: turns},
		{name: "delta moves", moves: true, delta: true, locators: true, watches: turns, items: turns},
	}
}
