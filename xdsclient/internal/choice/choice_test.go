package choice

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// constraints reads a text like "env=prod v!=1 shard=0-5".
func constraints(text string) dynparam.Constraints {
	return xdstest.Constraints(strings.Fields(text)...)
}

// offer reads a text like "env=prod v=1", and "?" for parameters that cannot be read.
func offer(t *testing.T, index int, text string) Offer {
	t.Helper()
	if text == "?" {
		return Offer{Index: index, Unreadable: true}
	}
	values := make(map[string]string)
	for field := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(field, "=")
		values[key] = value
	}
	p, err := dynparam.NewParameters(values)
	xdstest.NoError(t, err)
	return Offer{Index: index, Parameters: p}
}

func offers(t *testing.T, texts ...string) (list []Offer) {
	for i, text := range texts {
		list = append(list, offer(t, i, text))
	}
	return list
}

// choiceOf compares offers as the first pass does.
func choiceOf(c dynparam.Constraints, offers []Offer) (choice Choice) {
	for _, o := range offers {
		choice = choice.With(o, c)
	}
	return choice
}

var letters = map[Outcome]string{
	Unmatched: "unmatched", Outranked: "outranked", Denied: "denied", Late: "late",
	Contested: "contested", Kept: "kept", KeptAsking: "kept, and asks", Taken: "taken",
}

// Each row is a response, in its order, and a subscription. want is what becomes of each
// resource.
func TestWhoGetsWhich(t *testing.T) {
	for _, test := range []struct {
		heading, name string
		variants      []string
		constraints   string
		want          string
		ambiguous     bool
	}{
		// "The client will use the dynamic parameters on the resource to determine which of its
		// subscriptions the resource is associated with."
		{heading: "Dynamic Parameters", name: "prod client", variants: []string{"env=prod", "env=test"}, constraints: "env=prod", want: "taken unmatched"},
		{heading: "Dynamic Parameters", name: "test client", variants: []string{"env=prod", "env=test"}, constraints: "env=test", want: "unmatched taken"},
		{heading: "Dynamic Parameters", name: "nothing matches", variants: []string{"env=prod", "env=test"}, constraints: "env=qa", want: "unmatched unmatched"},
		// "Allowing the set of constraints for a given key to match any resource variant that does
		// not specify that key at all."
		{heading: "Matching Ambiguity", name: "new key on the clients first", variants: []string{"env=prod", "env=test"}, constraints: "env=prod version=v1", want: "taken unmatched"},
		{heading: "Matching Ambiguity", name: "new key on the server first", variants: []string{"env=prod version=v1", "env=prod version=v2", "env=test version=v1", "env=test version=v2"},
			constraints: "env=prod", want: "taken outranked unmatched unmatched", ambiguous: true},
		// "These constraints can match either of the above variants of the resource."
		{heading: "Matching Ambiguity", name: "variants with different keys", variants: []string{"env=prod", "env=prod version=v1"}, constraints: "env=prod version=v1", want: "outranked taken", ambiguous: true},
		// "The cache implementation is free to pick one of the variants at random."
		{heading: "Matching Ambiguity", name: "two variants of a key that the client does not send", variants: []string{"env=prod version=v2", "env=prod version=v1"}, constraints: "env=prod", want: "outranked taken", ambiguous: true},
		// "So, the expected order of changes for this kind of transition would be."
		{heading: "Matching Ambiguity", name: "transition, step 1", variants: []string{"env=prod"}, constraints: "env=prod version=v1", want: "taken"},
		{heading: "Matching Ambiguity", name: "transition, step 2", variants: []string{"env=prod version=v1"}, constraints: "env=prod version=v1", want: "taken"},
		{heading: "Matching Ambiguity", name: "transition, step 3", variants: []string{"env=prod version=v1", "env=prod version=v2"}, constraints: "env=prod version=v1", want: "taken unmatched"},
		{heading: "Matching Ambiguity", name: "transition, step 4", variants: []string{"env=prod version=v1", "env=prod version=v2"}, constraints: "env=prod version=v2", want: "unmatched taken"},
		// "All variants must list the same set of keys. This allows the server to ignore
		// constraints on keys sent by the client that do not affect the choice."
		{heading: "Matching Behavior and Best Practices", name: "same set of keys", variants: []string{"env=prod", "env=test"}, constraints: "env=test region=eu", want: "unmatched taken"},
		// "Clients that do not send that parameter will get one of the variants at random."
		{heading: "Matching Behavior and Best Practices", name: "parameter that the client does not send", variants: []string{"version=v1", "version=v2"}, want: "taken outranked", ambiguous: true},
		// "There must be a variant of the resource for every value of a key."
		{heading: "Matching Behavior and Best Practices", name: "a variant for every value", variants: []string{"env=prod", "env=test", "env=qa"}, constraints: "env=qa", want: "unmatched unmatched taken"},
		// "The largest possible matching value is preferred."
		{heading: "Matching Behavior and Best Practices", name: "largest matching value", variants: []string{"shard=3", "shard=5", "shard=6"}, constraints: "shard=0-5", want: "outranked taken unmatched"},
		{heading: "Matching Behavior and Best Practices", name: "largest value by number, not by text", variants: []string{"shard=10", "shard=9"}, constraints: "shard=0-20", want: "taken outranked"},
		{heading: "Matching Behavior and Best Practices", name: "two ranges that disagree", variants: []string{"a=1 b=2", "a=2 b=1"}, constraints: "a=0-5 b=0-5", want: "outranked taken", ambiguous: true},
		{heading: "Matching Behavior and Best Practices", name: "a variant that is better than one of two that disagree", variants: []string{"a=1 b=3", "a=2 b=2", "a=3 b=2"}, constraints: "a=0-5 b=0-5", want: "outranked outranked taken", ambiguous: true},
		{heading: "Matching Behavior and Best Practices", name: "a variant that decides between two others", variants: []string{"a=1 b=2", "a=2 b=1", "a=2 b=2"}, constraints: "a=0-5 b=0-5", want: "outranked outranked taken"},
		// The examples of the document.
		{heading: "DPDS Example", name: "direct", variants: []string{"listener_type=direct", "listener_type=via_proxy"}, constraints: "listener_type=direct", want: "taken unmatched"},
		{heading: "DPDS Example", name: "via proxy", variants: []string{"listener_type=direct", "listener_type=via_proxy"}, constraints: "listener_type=via_proxy", want: "unmatched taken"},
		{heading: "xDS Minor/Patch Version Negotiation", name: "client at 3.0.5", variants: []string{"xds.version.patch=4", "xds.version.patch=5"}, constraints: "xds.version.patch=0-5", want: "outranked taken"},
		{heading: "xDS Minor/Patch Version Negotiation", name: "client at 3.0.4", variants: []string{"xds.version.patch=5", "xds.version.patch=4", "xds.version.patch=3"}, constraints: "xds.version.patch=0-4", want: "unmatched taken outranked"},
		{heading: "xDS Minor/Patch Version Negotiation", name: "the constraint on minor does not affect variants by patch", variants: []string{"xds.version.patch=4", "xds.version.patch=5"}, constraints: "xds.version.minor=0-5", want: "taken outranked", ambiguous: true},
		{heading: "Sharding Clusters", name: "single resource", variants: []string{"shards=[1-3]", "shards=[4-6],[11-15],[46-90]"}, constraints: "shards=[4-6],[11-15],[46-90]", want: "unmatched taken"},
		{heading: "Sharding Endpoints", name: "subset 123", variants: []string{"subset_id=123", "subset_id=456"}, constraints: "subset_id=123", want: "taken unmatched"},
		{heading: "Selecting Cluster Based on ACL", name: "behind the proxy", variants: []string{"use_proxy=true", "use_proxy=false"}, constraints: "use_proxy=true", want: "taken unmatched"},
		{heading: "Dynamic Route Selection", name: "nine variants", variants: []string{"env=prod version=v1", "env=prod version=v2", "env=canary version=v1", "env=test version=v3"}, constraints: "env=canary version=v1", want: "unmatched unmatched taken unmatched"},
		{heading: "Dynamic Route Selection", name: "four variants", variants: []string{"env=NOT_prod version=NOT_v1", "env=prod version=NOT_v1", "env=NOT_prod version=v1", "env=prod version=v1"}, constraints: "env!=prod version=v1", want: "unmatched unmatched taken unmatched"},
		// What the document does not speak of.
		{name: "equal variants, of which the second is a fault", variants: []string{"env=prod", "env=prod"}, constraints: "env=prod", want: "taken taken"},
		{name: "no constraints, no parameters", variants: []string{""}, want: "taken"},
		{name: "unreadable beside a match", variants: []string{"?", "env=prod"}, constraints: "env=prod", want: "unmatched taken"},
		{name: "unreadable after a match", variants: []string{"env=prod", "?"}, constraints: "env=prod", want: "taken unmatched"},
		{name: "the first unreadable one, if nothing matches", variants: []string{"?", "env=prod", "?"}, constraints: "env=test", want: "taken unmatched unmatched"},
	} {
		name := test.name
		if test.heading != "" {
			name = "xRFC TP2, " + test.heading + ": " + name
		}
		t.Run(name, func(t *testing.T) {
			list, c := offers(t, test.variants...), constraints(test.constraints)
			choice := choiceOf(c, list)
			xdstest.Equal(t, "ambiguous", test.ambiguous, choice.Ambiguous)
			var got []string
			for _, o := range list {
				got = append(got, letters[(&Case{Offer: o, Constraints: c, Choice: choice}).Outcome()])
			}
			xdstest.Equal(t, "outcomes", test.want, strings.Join(got, " "))
			slices.Reverse(list)
			if reversed := choiceOf(c, list); !reversed.Parameters.Equal(choice.Parameters) || reversed.Ambiguous != choice.Ambiguous {
				t.Errorf("in the reverse order %v is chosen, ambiguous %v, and not %v", reversed.Parameters, reversed.Ambiguous, choice.Parameters)
			}
		})
	}
}

// The rival is one that the chosen variant does not beat.
func TestRivalOfAnAmbiguousChoice(t *testing.T) {
	c := constraints("a=0-5 b=0-5")
	got := choiceOf(c, offers(t, "a=1 b=3", "a=2 b=2", "a=1 b=1"))
	if !got.Parameters.Equal(offer(t, 0, "a=2 b=2").Parameters) || !got.Ambiguous || !c.Match(got.Rival) {
		t.Errorf("got %v with rival %v, ambiguous %v", got.Parameters, got.Rival, got.Ambiguous)
	}
	if pick := c.Choose([]dynparam.Parameters{got.Parameters, got.Rival}); pick.Index != 0 || pick.Rival != 1 {
		t.Errorf("Choose() among the choice and its rival is %+v, want 0 with the rival 1", pick)
	}
}

// Each row is one resource and one subscription, with what else counts.
func TestOutcome(t *testing.T) {
	for _, test := range []struct {
		name        string
		variants    []string // the response; the resource is the first
		constraints string
		denied      bool
		began       bool // after the first pass
		held        string
		holds       bool
		want        Outcome
		passed      bool
	}{
		{name: "denied", variants: []string{"env=prod"}, constraints: "env=prod", denied: true, want: Denied, passed: true},
		{name: "denied, and unreadable", variants: []string{"?"}, constraints: "env=prod", denied: true, want: Denied, passed: true},
		{name: "denied, and no match", variants: []string{"env=test"}, constraints: "env=prod", denied: true, want: Unmatched},
		{name: "late", variants: []string{"env=prod"}, constraints: "env=prod", began: true, want: Late},
		{name: "late, and unreadable", variants: []string{"?"}, constraints: "env=prod", began: true, want: Late},
		{name: "late, and no match", variants: []string{"env=test"}, constraints: "env=prod", began: true, want: Unmatched},
		// xRFC TP2, Matching Behavior and Best Practices: "the preferred value is {shard=5}, not
		// {shard=3}".
		{name: "xRFC TP2, Matching Behavior and Best Practices: larger than what is held", variants: []string{"shard=5"}, constraints: "shard=0-5", holds: true, held: "shard=3", want: Taken},
		{name: "xRFC TP2, Matching Behavior and Best Practices: smaller than what is held", variants: []string{"shard=3"}, constraints: "shard=0-5", holds: true, held: "shard=5", want: Contested},
		{name: "xRFC TP2, Matching Behavior and Best Practices: what is held is gone", variants: []string{"shard=3"}, constraints: "shard=0-5", held: "shard=5", want: Taken},
		{name: "equal to what is held", variants: []string{"shard=5"}, constraints: "shard=0-5", holds: true, held: "shard=5", want: Taken},
	} {
		t.Run(test.name, func(t *testing.T) {
			list, c := offers(t, test.variants...), constraints(test.constraints)
			tested := Case{Offer: list[0], Constraints: c, Denied: test.denied, Holds: test.holds, Held: offer(t, 0, test.held).Parameters}
			if !test.began && !test.denied {
				tested.Choice = choiceOf(c, list)
			}
			if got := tested.Outcome(); got != test.want || got.Passed() != test.passed {
				t.Errorf("got %s, passed %v, want %s, %v", letters[got], got.Passed(), letters[test.want], test.passed)
			}
		})
	}
}

// xRFC TP2, Matching Behavior and Best Practices: a cache "must attempt to fetch a larger
// value even if" it has a smaller one. Of a smaller one that comes while the larger one is in
// use, the cause decides.
func TestSettle(t *testing.T) {
	exhausted := Question{Confirmed: MaxConfirmed}
	for _, test := range []struct {
		name     string
		question Question
		answer   bool
		want     Outcome
		become   Question
	}{
		{"of this subscription or another one", Question{}, false, KeptAsking, Question{Open: true}},
		{"may answer another one", Question{}, true, KeptAsking, Question{Open: true}},
		{"may answer another one, for the last time", Question{Confirmed: MaxConfirmed - 1}, true, KeptAsking, Question{Open: true, Confirmed: MaxConfirmed - 1}},
		{"may answer another one, too often", exhausted, true, Kept, exhausted},
		{"news is always a reason to ask", exhausted, false, KeptAsking, Question{Open: true, Confirmed: MaxConfirmed}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, become := test.question.Settle(test.answer); got != test.want || become != test.become {
				t.Errorf("got %s, %+v, want %s, %+v", letters[got], become, letters[test.want], test.become)
			}
		})
	}
}

// A resource that matches is passed over for something better, or not at all.
func TestPassed(t *testing.T) {
	for outcome, name := range letters {
		want := slices.Contains([]Outcome{Outranked, Denied, Kept, KeptAsking}, outcome)
		if got := outcome.Passed(); got != want {
			t.Errorf("%s: Passed() is %v", name, got)
		}
	}
}

func TestQuestionAnswered(t *testing.T) {
	for _, test := range []struct {
		name          string
		question      Question
		same, pending bool
		want          Question
	}{
		{"another variant", Question{Open: true, Confirmed: 2}, false, true, Question{}},
		{"the same, as asked", Question{Open: true, Confirmed: 2}, true, true, Question{Confirmed: 3}},
		{"the same, as asked, at the bound", Question{Open: true, Confirmed: MaxConfirmed}, true, true, Question{Confirmed: MaxConfirmed}},
		{"the same, before the server was asked", Question{Open: true}, true, false, Question{Open: true}},
		{"the same, unasked", Question{Confirmed: 1}, true, true, Question{Confirmed: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.question.Answered(test.same, test.pending); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
