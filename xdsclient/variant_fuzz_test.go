package xdsclient

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

// fuzzedSubscriptions are the constraints of the subscriptions to "a"; those to a
// collection have the first two.
var fuzzedSubscriptions = [][]string{{"env=prod"}, {"shard=0-5"}, {"env!=prod"}, {}}

// A stream of wrapped resources into a set of subscriptions with constraints: whatever
// a server sends, each subscription has, if anything, a variant that it matches, and
// what comes next is understood.
func FuzzVariants(f *testing.F) {
	types := newTestTypes()
	seed := func(incremental bool, parts ...func(*answer)) {
		r := &answer{TypeUrl: types.clusters.TypeURL, SystemVersionInfo: "1", Nonce: "n"}
		for _, p := range parts {
			p(r)
		}
		if incremental {
			f.Add(true, mustMarshal(f, r), mustMarshal(f, r))
		} else {
			b := mustMarshal(f, inSotW(f, r))
			f.Add(false, b, b)
		}
	}
	for _, incremental := range []bool{false, true} {
		seed(incremental, variantOf("a", "env=prod,shard=3", "x"), variantOf("a", "env=test", "y"), variantOf("b", "env=x", "z"))
		seed(incremental, variantOf("a", "shard=3", "x"), variantOf("a", "shard=5", "y"), variantWith("a", "shard=9", "1", badCluster("a", "x")))
		seed(incremental, variantOf("a", "", "x"), gone("a", "env=prod"), gone("a"), refuses(5, "a", ""), refuses(7, "a", "shard=0-5"))
		seed(incremental, memberOf("m", "env=prod", "x"), memberOf("m", "shard=3", "x"), gone(collectionDir+"m", "env=prod"), refuses(2, collectionDir+"m", "shard=1"), gone(collectionName, "env=prod"))
		seed(incremental, func(r *answer) {
			variantOf("a", "env=prod", "x")(r)
			r.Resources[0].Aliases = []string{"b", collectionDir + "n"}
			r.Resources = append(r.Resources, &discoverypb.Resource{Name: "a", Version: "x", DynamicParameters: parameters("env=prod")})
		})
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
			_, d, err := k.channel.Receive(message)
			if d == nil { // nothing in it is subscribed to, or it is a repetition
				continue
			}
			if err != nil {
				t.Fatalf("a delivery beside error %v", err)
			}
			<-d
			k.channel.Delivered()
			k.channel.Reading()
			checkIdempotent(t, k, message)
			k.answer()
			checkMatches(t, k)
		}
		// Whatever came, the next good response counts.
		good := &answer{TypeUrl: types.clusters.TypeURL, SystemVersionInfo: "good", Nonce: "good"}
		for _, params := range []string{"env=prod,shard=5", "env=test,shard=9"} {
			variantOf("a", params, params)(good)
		}
		for range 2 { // the second time for those that were asked again
			message := mustMarshal(t, good)
			if !incremental {
				message = mustMarshal(t, inSotW(t, good))
			}
			if !k.push(message) {
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
	if !ts.Settled() {
		return
	}
	before, replies := stateOf(k, ts), ts.Replies
	k.push(message)
	if ts.Dialect.Incremental() {
		ts.Replies = replies // without that to the repetition
	}
	if diff := cmp.Diff(before, stateOf(k, ts)); diff != "" && ts.Settled() {
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
	return append(lines, ts.Requests.String())
}

// silentCollection is a watcher of a collection that only says that it is done.
type silentCollection struct{}

func newSilentCollection() CollectionWatcher { return silentCollection{} }

func (silentCollection) MemberChanged(_ Member, _ any, _ error, done func()) { done() }
func (silentCollection) CollectionChanged(_ error, done func())              { done() }
func (silentCollection) AmbientError(_ Member, _ error, done func())         { done() }

func memberOf(name, params, text string) func(*answer) {
	return variantOf(collectionDir+name, params, text)
}
