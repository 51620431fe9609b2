package xdsclient

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/testutils"
)

// fuzzedSubscriptions are the constraints of the subscriptions to "a"; those to a
// collection have the first two.
var fuzzedSubscriptions = [][]string{{"env=prod"}, {"shard=0-5"}, {"env!=prod"}, {}}

// A stream of wrapped resources into a set of subscriptions with constraints: whatever
// a server sends, each subscription has, if anything, a variant that it matches, and
// what comes next is understood.
func FuzzVariants(f *testing.F) {
	for _, features := range [][]string{nil, {"delta"}} {
		k := newCore(f, features...)
		seed := func(words ...string) {
			types := newTestTypes()
			b := k.response(types, types.clusters, "1", words...)
			f.Add(features != nil, b, b)
		}
		seed("a{env=prod,shard=3}@x=x", "a{env=test}@y=y", "b{env=x}@z=z")
		seed("a{shard=3}@x=x", "a{shard=5}@y=y", "a{shard=9}@1!x")
		seed("a@x=x", "-a{env=prod}", "-a{}", "a{}?NotFound", "a{shard=0-5}?PermissionDenied")
		seed("dir/m{env=prod}@x=x", "dir/m{shard=3}@x=x", "-dir/m{env=prod}", "dir/m{shard=1}?Unknown", "-dir/*{env=prod}")
		seed("a{env=prod}|b|"+collectionDir+"n@x=x", "a{env=prod}@x~")
	}
	f.Fuzz(func(t *testing.T, incremental bool, first, second []byte) {
		features := []string{"dynamic_parameter_constraints"}
		if incremental {
			features = append(features, "delta")
		}
		types := newTestTypes()
		k := newCoreWith(t, testutils.ServerFeatures(features...), testutils.Authority("auth", "", nil))
		for i, constraints := range fuzzedSubscriptions {
			k.c.WatchLocator(types.clusters, "a", choose(constraints...), &counter{})
			if i < 2 && incremental {
				k.c.WatchCollectionLocator(types.clusters, collectionName, choose(constraints...), newSilentCollection())
			}
		}
		k.answer()
		for _, message := range [][]byte{first, second, first} {
			_, d, err := k.channel.receive(message)
			if d == nil { // nothing in it is subscribed to, or it is a repetition
				continue
			}
			if err != nil {
				t.Fatalf("a delivery beside error %v", err)
			}
			<-d
			k.channel.delivered()
			k.channel.reading()
			checkIdempotent(t, k, message)
			k.answer()
			checkMatches(t, k)
		}
		// Whatever came, the next good response counts.
		good := k.response(types, types.clusters, "good", "a{env=prod,shard=5}@1=1", "a{env=test,shard=9}@2=2")
		for range 2 { // the second time for those that were asked again
			if !k.push(good) {
				t.Fatal("a good response was not accepted")
			}
			k.answer()
		}
		checkMatches(t, k)
		for _, r := range k.c.Dump().Resources {
			if r.Name == "a" && (r.State != StateACKed || !r.Cached()) {
				t.Fatalf("%s %v is in state %v at the end", r.Name, r.Constraints, r.State)
			}
		}
	})
}

// checkMatches checks that no watch has a variant that does not match.
func checkMatches(t *testing.T, k *core) {
	t.Helper()
	for _, r := range k.c.Dump().Resources {
		if (r.Cached() || r.Member) && !r.Constraints.Match(r.Parameters) {
			t.Fatalf("%s, watched with %v, has the variant %v", r.Name, r.Constraints, r.Parameters)
		}
	}
}

// checkIdempotent checks that to work on a response again changes nothing if the client
// takes that for granted.
func checkIdempotent(t *testing.T, k *core, message []byte) {
	t.Helper()
	ts := k.channel.typeState(k.channel.types[0].typ)
	if !ts.settled {
		return
	}
	before, replies := stateOf(k, ts), ts.replies
	k.push(message)
	if ts.channel.dialect.Incremental {
		ts.replies = replies // without that to the repetition
	}
	if diff := cmp.Diff(before, stateOf(k, ts)); diff != "" && ts.settled {
		t.Fatalf("a response that came again changed something: %s", diff)
	}
}

// stateOf describes what a client knows of a type, but not when it came to know it.
func stateOf(k *core, ts *typeState) (lines []string) {
	for _, r := range k.c.Dump().Resources {
		fault := ""
		if r.Failure != nil {
			fault = r.Failure.Version + r.Failure.Err.Error()
		}
		lines = append(lines, fmt.Sprint(r.Name, r.Constraints, r.Parameters, r.State, r.Cached(), r.Version, fault))
	}
	for s := range ts.subs.all() {
		lines = append(lines, fmt.Sprint(s.resource.key.name, s.resource.key.variant, s.State, len(slices.Collect(s.members.all())), s.taken.version, s.taken.parameters))
	}
	slices.Sort(lines)
	return append(lines, fmt.Sprintf("version %q, %d changes, repeats the previous list: %t", ts.version, len(ts.touched), ts.repeatPreviousList))
}

// silentCollection is a watcher of a collection that only says that it is done.
type silentCollection struct{}

func newSilentCollection() CollectionWatcher { return silentCollection{} }

func (silentCollection) MemberChanged(_ Member, _ any, _ error, done func()) { done() }
func (silentCollection) CollectionChanged(_ error, done func())              { done() }
func (silentCollection) AmbientError(_ Member, _ error, done func())         { done() }
