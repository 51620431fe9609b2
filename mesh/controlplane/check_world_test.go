package controlplane

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// checkWay is one way of speaking the protocol, with what is subscribed and what there may be.
type checkWay struct {
	name string
	// delta and locators are the protocol: incremental, by locators (xRFC TP2).
	delta, locators bool
	// routes says that the type has no wildcard, so that SotW responses have only what changed.
	routes bool
	// reports is Options.NotFoundErrors, keeps a removal delay, and denied a name that the client may not have.
	reports, keeps bool
	denied         string
	// implicit says that there are constraints of nodes, which change, and legacy that a client that
	// subscribes to everything sends no names. By locators implicit is Options.BindLocators.
	implicit, legacy bool
	// explains is Options.Absence.
	explains bool
	// source says that the store is filled on demand.
	source bool
	// subs are a{shard=0-5}, dir/*, * and the like, and items a{shard=5}, dir/a and the like.
	subs, items []string
	scope       checkScope

	typeURL string
	subs_   []checkSub
	things  []checkItem
	// versions has the version of each item with each content.
	versions [maxCheckItems][checkContents]string
	// nodes are the constraints of the client's node, one after the other.
	nodes []dynparam.ByType
}

// checkSub is what may be subscribed.
type checkSub struct {
	text, name  string
	constraints dynparam.Constraints
	collection  bool
	locator     *discoverypb.ResourceLocator
}

// checkItem is what there may be in the store: a resource, or a variant of it.
type checkItem struct {
	text, name string
	values     map[string]string
	parameters dynparam.Parameters
	// glob says that it is a collection, which may only be in error.
	glob bool
}

// checkContent is what an item is at the moment.
type checkContent = uint8

const (
	checkAbsent checkContent = iota
	checkX
	checkY
	checkError
	checkContents
)

// checkValue is what a client has of a subscription: an item and its content.
type checkValue uint8

const (
	// checkUnsaid: nothing was said.
	checkUnsaid checkValue = iota
	// checkNothing: there is nothing.
	checkNothing
	// checkDenied: the client may not have it.
	checkDenied
	checkFirst
)

func checkValueOf(item int, c checkContent) checkValue {
	if c == checkAbsent {
		return checkNothing
	}
	return checkFirst + checkValue(item)*checkValue(checkContents) + checkValue(c)
}

func (v checkValue) item() int { return int(v-checkFirst) / int(checkContents) }
func (v checkValue) content() checkContent {
	if v < checkFirst {
		return checkAbsent
	}
	return checkContent(v-checkFirst) % checkContents
}

func (v checkValue) isThere() bool { return v.content() == checkX || v.content() == checkY }

const (
	maxCheckSubs  = 4
	maxCheckItems = 4
)

// fullName returns the name for a text: one with a slash is a new-style one.
func fullName(text string) string {
	if strings.Contains(text, "/") {
		return "xdstp://auth/T/" + text
	}
	return text
}

// prepare reads the texts.
func (way *checkWay) prepare(t testing.TB) {
	way.typeURL = typeurl.Cluster
	if way.routes {
		way.typeURL = typeurl.RouteConfiguration
	}
	for _, text := range way.items {
		name, values, _ := splitWord(text)
		it := checkItem{text: text, name: name, values: values, glob: strings.HasSuffix(name, "*")}
		var err error
		if it.parameters, err = dynparam.NewParameters(it.values); err != nil {
			t.Fatal(err)
		}
		i := len(way.things)
		way.things = append(way.things, it)
		if it.glob {
			continue
		}
		for _, c := range []checkContent{checkX, checkY} {
			r, err := newResource(it.name, it.parameters.Map(), way.resource(i, c))
			xdstest.NoError(t, err)
			way.versions[i][c] = r.version
		}
	}
	for _, text := range way.subs {
		name, rest, _ := strings.Cut(strings.TrimSuffix(text, "}"), "{")
		s := checkSub{text: text, name: fullName(name), collection: strings.HasSuffix(name, "*"), constraints: constraintsOfWord(t, rest)}
		s.locator = &discoverypb.ResourceLocator{Name: s.name, DynamicParameterConstraints: s.constraints.ToProto()}
		way.subs_ = append(way.subs_, s)
	}
	for _, text := range []string{"env=prod", "env=test"} {
		byType, err := dynparam.NewByType(map[string]dynparam.Constraints{"*": constraintsOfWord(t, text)})
		xdstest.NoError(t, err)
		way.nodes = append(way.nodes, byType)
	}
}

// constraintsOf are those that apply to a subscription.
func (x *trial) constraintsOf(l int) dynparam.Constraints {
	c := x.way.subs_[l].constraints // none of a client that subscribes by names
	if x.way.implicit {
		c = c.Merge(x.way.nodes[x.node].For(x.way.typeURL))
	}
	return c
}

// isDenied reports whether the client may not have a subscription: it is a name that is denied, or contradicts the node.
func (x *trial) isDenied(l int) bool {
	s := &x.way.subs_[l]
	if x.way.denied != "" && s.name == x.way.denied {
		return true
	}
	return x.way.implicit && !x.way.nodes[x.node].For(x.way.typeURL).Merge(s.constraints).Equal(x.constraintsOf(l))
}

// covers reports whether an item is in a collection, whatever its parameters.
func (x *trial) covers(l, item int) bool {
	s, it := &x.way.subs_[l], &x.way.things[item]
	switch {
	case !s.collection || it.glob:
		return false
	case s.name == wildcardName:
		return !strings.Contains(it.text, "/")
	default:
		return strings.HasPrefix(it.name, strings.TrimSuffix(s.name, "*"))
	}
}

// choice returns what there is for constraints under a name.
func (x *trial) choice(name string, c dynparam.Constraints) checkValue {
	var of []dynparam.Parameters
	var which []int
	for i := range x.way.things {
		if it := &x.way.things[i]; it.name == name && x.world[i] != checkAbsent {
			of, which = append(of, it.parameters), append(which, i)
		}
	}
	if at := c.Choose(of).Index; at >= 0 {
		return checkValueOf(which[at], x.world[which[at]])
	}
	return checkNothing
}

// of returns what there is for a subscription to a name, or the error of a collection.
func (x *trial) of(l int) checkValue {
	s := &x.way.subs_[l]
	switch {
	case x.isDenied(l):
		return checkDenied
	case s.collection:
		return x.choice(s.name, dynparam.Constraints{})
	default:
		return x.choice(s.name, x.constraintsOf(l))
	}
}

// member returns what an item is to a collection.
func (x *trial) member(l, item int) checkValue {
	switch it := &x.way.things[item]; {
	case !x.covers(l, item) || x.isDenied(l) || x.of(l).content() == checkError:
		return checkNothing
	case x.way.locators:
		if !x.constraintsOf(l).Match(it.parameters) {
			return checkNothing
		}
		return checkValueOf(item, x.world[item])
	default:
		if v := x.choice(it.name, x.constraintsOf(l)); v >= checkFirst && v.item() == item {
			return v
		}
		return checkNothing
	}
}

// put changes an item in the store.
func (x *trial) put(i int, to checkContent) {
	x.Tell("%s is %s", x.way.things[i].text, x.way.text(i, to))
	was := x.world[i]
	x.world[i] = to
	x.kept.put(x, i, was)
	if to == checkX || to == checkY {
		x.latest[i] = to
	}
	x.update(func(tx *Tx) {
		if !x.way.source {
			x.set(tx, i)
			return
		}
		for _, d := range x.live {
			if d.answered {
				x.say(tx, d.Demand)
			}
		}
	})
}

func (x *trial) update(f func(tx *Tx)) {
	if _, err := x.store.Update(f); err != nil {
		x.Fail("the store refuses an update: %v", err)
	}
}

// set sets an item as it is in the world.
func (x *trial) set(tx *Tx, i int) {
	it := &x.way.things[i]
	switch to := x.world[i]; {
	case to == checkError && len(it.values) == 0:
		tx.SetError(x.way.typeURL, it.name, x.way.failure(i))
	case to == checkError:
		tx.SetVariantError(x.way.typeURL, it.name, it.values, x.way.failure(i))
	case to == checkAbsent:
		tx.DeleteVariant(x.way.typeURL, it.name, it.values)
	default:
		tx.SetNamed(it.name, it.values, x.way.resource(i, to))
	}
}

// text is the content of an item.
func (way *checkWay) text(item int, c checkContent) string {
	return fmt.Sprintf("%d%c", item, "-xy!"[c])
}

// valueOfText is the reverse of text.
func (way *checkWay) valueOfText(text string) (checkValue, bool) {
	if len(text) != 2 || int(text[0]-'0') >= len(way.things) {
		return 0, false
	}
	at := strings.IndexByte("-xy!", text[1])
	if at < 1 {
		return 0, false
	}
	return checkValueOf(int(text[0]-'0'), checkContent(at)), true
}

// checkWays are the ways that are checked.
func checkWays() []*checkWay {
	names, envs, shards := []string{"a", "b"}, []string{"a{env=prod}", "a{env=test}"}, []string{"a{shard=5}", "a{shard=3}"}
	star := []string{"a", "*"}
	disjoint := []string{"a{env=prod}", "a{env=test}", "b"}
	overlap := []string{"a{shard=0-5}", "a{shard=0-3}"}
	wildcards := []string{"a{shard=0-5}", "*{shard=0-3}"}
	globs := []string{"dir/a{shard=0-5}", "dir/*{shard=0-3}"}
	members := []string{"dir/a{shard=5}", "dir/a{shard=3}"}
	exact := []string{"a{env=prod}", "*{env=prod}"}
	bound, boundWildcard := []string{"a", "a{env=prod}"}, []string{"a{env=test}", "*"}
	beside, besideItems := []string{"dir/a", "*"}, []string{"dir/a", "b"}
	besideShards := []string{"dir/a{shard=0-5}", "*{shard=0-3}"}
	return []*checkWay{
		{name: "SotW names", subs: names, items: names},
		{name: "SotW wildcard", subs: star, items: names},
		{name: "SotW legacy wildcard", legacy: true, keeps: true, subs: star, items: names},
		{name: "SotW names reported and kept", reports: true, keeps: true, subs: names, items: names},
		{name: "SotW routes", routes: true, subs: names, items: names},
		{name: "SotW routes reported and kept", routes: true, reports: true, keeps: true, subs: names, items: names},
		{name: "SotW locators", reports: true, locators: true, subs: disjoint, items: envs},
		{name: "SotW shards", reports: true, locators: true, keeps: true, subs: overlap, items: shards},
		{name: "SotW routes shards", reports: true, locators: true, routes: true, subs: overlap, items: shards},
		{name: "SotW wildcard shards", locators: true, keeps: true, subs: wildcards, items: shards},
		{name: "SotW nodes", reports: true, implicit: true, keeps: true, subs: star, items: envs},
		{name: "SotW bound", reports: true, implicit: true, locators: true, subs: bound, items: envs},
		{name: "SotW bound wildcard", reports: true, implicit: true, locators: true, keeps: true, subs: boundWildcard, items: envs},
		{name: "SotW explained", reports: true, explains: true, subs: names, items: names},
		{name: "SotW denied", reports: true, denied: "b", subs: names, items: names},
		{name: "SotW source", reports: true, source: true, subs: names, items: names},
		{name: "SotW source wildcard", source: true, subs: star, items: names},
		{name: "SotW source beside", source: true, subs: beside, items: besideItems},
		{name: "SotW source beside shards", source: true, locators: true, subs: besideShards, items: members},
		{name: "delta names", delta: true, subs: names, items: names},
		{name: "delta names kept", delta: true, keeps: true, subs: names, items: names},
		{name: "delta wildcard", delta: true, subs: star, items: names},
		{name: "delta wildcard kept", delta: true, keeps: true, legacy: true, subs: star, items: names},
		{name: "delta glob", delta: true, subs: []string{"dir/a", "dir/*"}, items: []string{"dir/a", "dir/b", "dir/*"}},
		{name: "delta glob kept", delta: true, keeps: true, routes: true, subs: []string{"dir/a", "dir/*"}, items: []string{"dir/a", "dir/*"}},
		{name: "delta locators", delta: true, locators: true, subs: disjoint, items: envs},
		{name: "delta shards", delta: true, locators: true, subs: overlap, items: shards},
		{name: "delta shards kept", delta: true, locators: true, keeps: true, subs: overlap, items: shards},
		{name: "delta wildcard shards", delta: true, locators: true, keeps: true, subs: wildcards, items: shards},
		{name: "delta wildcard exactly", delta: true, locators: true, subs: exact, items: envs},
		{name: "delta wildcard disjoint", delta: true, locators: true, subs: []string{"a{env=test}", "*{env=prod}"}, items: envs},
		{name: "delta glob shards", delta: true, locators: true, keeps: true, subs: globs, items: members},
		{name: "delta nodes", delta: true, implicit: true, keeps: true, subs: star, items: envs},
		{name: "delta bound", delta: true, implicit: true, locators: true, subs: bound, items: envs},
		{name: "delta bound wildcard", delta: true, implicit: true, locators: true, keeps: true, subs: boundWildcard, items: envs},
		{name: "delta explained", delta: true, explains: true, subs: star, items: names},
		{name: "delta denied", delta: true, denied: "b", subs: names, items: names},
		{name: "delta source", delta: true, source: true, subs: names, items: names},
		{name: "delta source wildcard", delta: true, source: true, subs: star, items: names},
		{name: "delta source glob", delta: true, source: true, subs: []string{"dir/a", "dir/*"}, items: []string{"dir/a", "dir/b"}},
		{name: "delta source glob shards", delta: true, source: true, locators: true, subs: globs, items: members},
		{name: "delta source beside", delta: true, source: true, subs: beside, items: besideItems},
		{name: "delta source beside shards", delta: true, source: true, locators: true, subs: besideShards, items: members},
		{name: "delta source glob beside", delta: true, source: true, subs: []string{"dir/*", "*"}, items: []string{"dir/a", "b", "dir/*"}},
		{name: "delta source glob beside shards", delta: true, source: true, locators: true, subs: []string{"dir/*{shard=0-5}", "*{shard=0-3}"}, items: append(members, "dir/*")},
	}
}
