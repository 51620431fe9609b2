package ads

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// crosser is a type whose requests and responses may cross.
type crosser struct {
	*fakeType
	t      *testing.T
	number uint64 // of the last response
}

// The ways to speak to a server. One that is asked for locators goes by the parameter env.
var (
	names    = bootstrap.Server{}
	locators = bootstrap.Server{Features: []bootstrap.Feature{bootstrap.FeatureDynamicParameterConstraints}}
)

func newCrosser(t *testing.T, p wire.Protocol, server *bootstrap.Server, fullState bool) *crosser {
	t.Helper()
	f := &fakeType{}
	f.Requests = NewRequests("type", fullState, p.Dialect(server), Subscriptions[*fakeSub](f))
	return &crosser{fakeType: f, t: t}
}

// watch subscribes to "a", or to "a{prod}": the variant of a in which env is prod.
func (c *crosser) watch(text string) *fakeSub {
	c.t.Helper()
	name, env, _ := strings.Cut(strings.TrimSuffix(text, "}"), "{")
	s := c.subscribe(name)
	if env != "" {
		var err error
		if s.constraints, err = dynparam.Exact(map[string]string{"env": env}); err != nil {
			c.t.Fatal(err)
		}
	}
	return s
}

func (c *crosser) stop(subs ...*fakeSub) {
	for _, s := range subs {
		s.wanted = false
		c.Touch(s)
	}
}

// env returns the parameters of a variant, or none.
func env(value string) dynparam.Parameters {
	if value == "" {
		return dynparam.Parameters{}
	}
	p, err := dynparam.NewParameters(map[string]string{"env": value})
	if err != nil {
		panic(err)
	}
	return p
}

// request makes the requests that are due, and checks what they list; in delta "+a -b", with "ack" for a reply.
func (c *crosser) request(want ...string) {
	c.t.Helper()
	var got []string
	for r, _ := c.Next(false); r != nil; r, _ = c.Next(false) {
		text := strings.Join(append(targets("", r.All), append(targets("+", r.Subscribe), targets("-", r.Unsubscribe)...)...), " ")
		if c.Dialect.Incremental() && r.Nonce != "" {
			text = "ack"
		}
		got = append(got, text)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		c.t.Fatalf("requests (-want +got):\n%s", diff)
	}
}

func targets(sign string, all wire.Targets) (texts []string) {
	for _, l := range all.Locators {
		text := sign + l.Name
		if p, ok := l.Constraints.Parameters(); ok && !p.IsZero() {
			text += "{" + p.Map()["env"] + "}"
		}
		texts = append(texts, text)
	}
	for _, name := range all.Names {
		if len(all.Locators) == 0 {
			texts = append(texts, sign+name)
		}
	}
	return texts
}

// respond has the server send the resources of subscriptions.
func (c *crosser) respond(received ...*fakeSub) {
	c.t.Helper()
	c.number++
	c.BeginResponse(new(wire.Response), 0)
	for _, s := range received {
		p, _ := s.constraints.Parameters()
		c.NoteRead(s, p, false)
		s.State, s.Seen = Received, c.number
	}
	if err := c.EndResponse(c.number, Reply{Nonce: fmt.Sprint(c.number)}, false); err != nil {
		c.t.Fatal(err)
	}
}

func (c *crosser) check(what string, want, got bool) {
	c.t.Helper()
	if got != want {
		c.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// What a delta server may still send for a subscription that has ended is remembered until the server has read
// the request, or a later one.
func TestUnsubscriptionsUntilTheServerHasReadThem(t *testing.T) {
	t.Parallel()
	c := newCrosser(t, wire.Delta{}, &locators, false)
	prod := c.watch("a{prod}")
	c.request("+a{prod}")
	c.respond(prod)
	c.check("anything before", false, c.GaveUpAny())
	c.stop(prod)
	again := c.watch("a{test}")
	c.request("ack", "+a{test} -a{prod}")
	c.check("anything", true, c.GaveUpAny())
	c.check("prod", true, c.GaveUp("a", env("prod")))
	c.check("test", false, c.GaveUp("a", env("test")))
	c.check("of another name", false, c.GaveUp("b", env("prod")))
	c.stop(again)
	other := c.watch("b{prod}")
	c.request("+b{prod} -a{test}")
	final := c.watch("a{prod}")
	c.request("+a{prod}")
	for range maxCrossings + 1 {
		c.respond()
		c.request("ack")
	}
	c.stop(final)
	c.request("-a{prod}")
	c.check("test, after many responses", true, c.GaveUp("a", env("test")))
	if c.unsubscriptions != 2 {
		t.Errorf("%d unsubscriptions are remembered, want those of prod and test", c.unsubscriptions)
	}
	c.respond(other) // so it has read the third request, but not the fifth
	c.check("test, which it has read", false, c.GaveUp("a", env("test")))
	c.check("prod, which has ended again", true, c.GaveUp("a", env("prod")))
	c.stop(other)
	c.request("ack", "-b{prod}")
	if c.unsubscriptions != 2 || len(c.unsubscribed) != 2 {
		t.Errorf("%d unsubscriptions from %d names are remembered, want 2 from 2", c.unsubscriptions, len(c.unsubscribed))
	}
}

// In SotW they are remembered for four responses.
func TestUnsubscriptionsInSotW(t *testing.T) {
	t.Parallel()
	c := newCrosser(t, wire.SotW{}, &locators, true)
	prod, test, other, kept := c.watch("a{prod}"), c.watch("a{test}"), c.watch("b"), c.watch("k")
	c.request("a{prod} a{test} b k")
	c.respond(prod, test, other, kept)
	c.stop(prod, other)
	c.request("a{test} k")
	c.respond(kept)
	c.stop(test)
	c.request("a{test} k", "k") // the reply repeats the list, as the response may have crossed the request
	for range 2 {
		c.respond(kept)
	}
	c.check("prod after three", true, c.GaveUp("a", env("prod")))
	c.respond(kept)
	c.check("prod after four", false, c.GaveUp("a", env("prod")))
	c.check("test after three", true, c.GaveUp("a", env("test")))
	c.check("b after four", false, c.GaveUp("b", env("")))
	if c.unsubscriptions != 1 || len(c.unsubscribed) != 1 {
		t.Errorf("%d unsubscriptions from %d names are remembered, want 1 from 1", c.unsubscriptions, len(c.unsubscribed))
	}
	c.respond(kept)
	c.check("anything after all", false, c.GaveUpAny())
}

// A SotW server that has not read that a is no longer wanted, and then wanted again, takes it for known. So it is asked again for as
// long as responses may cross, and not longer.
func TestAskedAgainABoundedNumberOfTimes(t *testing.T) {
	t.Parallel()
	c := newCrosser(t, wire.SotW{}, &names, false)
	a, kept := c.watch("a"), c.watch("k")
	c.request("a k")
	c.respond(a, kept)
	c.stop(a)
	c.request("k")
	c.watch("a")
	c.request("a k")
	for range maxCrossings {
		c.respond(kept)
		c.request("a k", "k", "a k")
	}
	c.respond(kept)
	c.request("a k")
}

// The first response after several requests is taken for the answer to the first of them.
func TestAbsenceIsSaidByTheAnswer(t *testing.T) {
	t.Parallel()
	c := newCrosser(t, wire.SotW{}, &names, true)
	a := c.watch("a")
	c.request("a")
	b := c.watch("b")
	c.request("a b")
	c.respond(a)
	c.check("after the answer to the first", false, c.SaysAbsent(b))
	c.respond(a)
	c.check("after the answer to the second", true, c.SaysAbsent(b))
	c.check("of the one that it has", false, c.SaysAbsent(a))
	late := c.watch("c")
	c.request("a b c")
	c.check("before the answer", false, c.SaysAbsent(late))
	c.Expire(late)
	c.respond(a)
	c.check("after the timer and a response", true, c.SaysAbsent(late))
	if late.State != Missing {
		t.Errorf("got state %v after the timer, want Missing", late.State)
	}
	c.request("a b c") // the replies ask for nothing
	next := c.watch("d")
	c.request("a b c d")
	c.check("before the answer to the next request", false, c.SaysAbsent(next))
	c.respond(a)
	c.check("after it", true, c.SaysAbsent(next))
	last := c.watch("e")
	c.request("a b c d e")
	if _, err := c.ReplyAgain(Reply{Nonce: "5"}); err != nil {
		t.Fatal(err)
	}
	c.check("after the same response again", true, c.SaysAbsent(last))
	first := newCrosser(t, wire.SotW{}, &names, true)
	only := first.watch("a")
	first.request("a")
	first.respond()
	first.check("of the first request", true, first.SaysAbsent(only))
	for name, other := range map[string]*crosser{
		"delta": newCrosser(t, wire.Delta{}, &names, true), "no full state": newCrosser(t, wire.SotW{}, &names, false),
	} {
		s := other.watch("a")
		other.Next(false)
		other.respond()
		other.respond()
		other.check(name, false, other.SaysAbsent(s))
	}
}

// A full state may be that of a list without the resource.
func TestKeptThoughOmitted(t *testing.T) {
	t.Parallel()
	c := newCrosser(t, wire.SotW{}, &names, true)
	a, kept := c.watch("a"), c.watch("k")
	c.request("a k")
	c.respond(a, kept)
	c.check("without a crossing", false, c.KeepsOmitted(kept))
	c.stop(a)
	c.request("k")
	a = c.watch("a")
	c.request("a k")
	c.respond(a, kept)
	c.check("of another name", false, c.KeepsOmitted(kept))
	c.check("after a crossing", true, c.KeepsOmitted(a))
	if a.State != Unsent || !a.KeptDespiteDenial() || !c.Omits(a) {
		t.Errorf("got state %v, %v and %v, want it to be asked for again, kept, and omitted", a.State, a.KeptDespiteDenial(), c.Omits(a))
	}
	c.request("a k")
	c.check("pending", true, a.Pending())
	a.State = Requested
	c.check("after it was asked for again", true, c.KeepsOmitted(a))
	if a.State != Requested {
		t.Errorf("got state %v, want the one before", a.State)
	}
	c.respond(a, kept)
	c.check("kept, after the server sent it", false, a.KeptDespiteDenial())
	c.Begin()
	c.request("a k")
	c.respond()
	c.check("on a new stream", false, c.KeepsOmitted(a))
}

// With locators the resource may have come for another subscription, before the server read the request for this one.
func TestKeptThoughOmittedWithLocators(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		server    *bootstrap.Server
		older     string
		responses int
		want      bool
	}{
		{&locators, "a", 1, true},
		{&locators, "a{prod}", 1, false},
		{&locators, "b", 1, false},
		{&locators, "a", maxCrossings, true},
		{&locators, "a", maxCrossings + 1, false},
		{&names, "a", 1, false},
	} {
		c := newCrosser(t, wire.SotW{}, test.server, true)
		c.watch(test.older)
		c.request(test.older)
		s := c.watch("a{test}")
		c.Next(false)
		s.State = Received
		c.NoteRead(s, env("test"), false)
		for range test.responses {
			c.respond()
		}
		what := fmt.Sprintf("locators %v, older %s, %d responses", test.server == &locators, test.older, test.responses)
		c.check(what, test.want, c.KeepsOmitted(s))
		c.Next(false)
		c.check(what+", after it was asked for again", test.want, c.KeepsOmitted(s))
		s.State, s.keptDespiteDenial = Missing, false
		c.check("one that it has not sent", false, c.KeepsOmitted(s))
	}
}

// By a full state without it the server says that it does not have a resource.
func TestOmits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		p         wire.Protocol
		fullState bool
		want      bool
	}{"SotW": {wire.SotW{}, true, true}, "SotW, no full state": {wire.SotW{}, false, false}, "delta": {wire.Delta{}, true, false}} {
		c := newCrosser(t, test.p, &names, test.fullState)
		a := c.watch("a")
		c.Next(false)
		c.check(name+", before a response", false, c.Omits(a))
		c.respond()
		c.check(name+", without it", test.want, c.Omits(a))
		c.respond(a)
		c.check(name+", with it", false, c.Omits(a))
	}
}

// A denial that the server may have sent before it read the request is ignored once, and the server asked again.
func TestIgnoredDenials(t *testing.T) {
	t.Parallel()
	moved := func(t *testing.T, to string) (*crosser, *fakeSub) {
		c := newCrosser(t, wire.Delta{}, &locators, false)
		prod := c.watch("a{prod}")
		c.request("+a{prod}")
		c.respond(prod)
		c.stop(prod)
		c.request("ack", "-a{prod}")
		s := c.watch(to)
		return c, s
	}
	for _, test := range []struct {
		to     string
		scoped bool
		want   bool
	}{
		{"a{test}", false, true},
		{"a{test}", true, false}, // it names this very subscription, which it knows
		{"a{prod}", true, false}, // it may be for the earlier one, and is as true of this one
		{"a{prod}", false, false},
		{"b{prod}", false, false},
		{"b{prod}", true, false},
	} {
		what := fmt.Sprintf("%s, scoped %v", test.to, test.scoped)
		c, s := moved(t, test.to)
		c.check(what+", not asked for yet", test.want, c.IgnoresDenial(s, 2, test.scoped))
		c.request("+" + test.to)
		c.check(what+", while it is pending", test.want, c.IgnoresDenial(s, 2, test.scoped))
		if !test.want {
			continue
		}
		c.check(what+", again in one response", true, c.IgnoresDenial(s, 2, test.scoped))
		c.request("+" + test.to)
		c.check(what+", in the next response", false, c.IgnoresDenial(s, 3, test.scoped))

		c, s = moved(t, test.to)
		c.request("+" + test.to)
		s.State = Received
		c.check(what+", after it was received", true, c.IgnoresDenial(s, 2, test.scoped))
		c.check(what+", kept", true, s.KeptDespiteDenial())
		c.request("+" + test.to)
		c.NoteRead(s, env("test"), true) // a collection may have it
		c.check(what+", kept, after it came", false, s.KeptDespiteDenial())
		s.State = Failed
		c.check(what+", after an error", true, c.IgnoresDenial(s, 3, test.scoped))

		c, s = moved(t, test.to)
		other := c.watch("b")
		c.request("+" + test.to + " +b")
		c.respond(other)
		c.check(what+", after the server has read it", false, c.IgnoresDenial(s, 2, test.scoped))
	}
	// Another subscription counts if it is older.
	c := newCrosser(t, wire.Delta{}, &locators, false)
	first := c.watch("a{prod}")
	c.request("+a{prod}")
	second := c.watch("a{test}")
	c.request("+a{test}")
	c.check("of the older one", false, c.IgnoresDenial(first, 1, false))
	c.check("of the newer one", true, c.IgnoresDenial(second, 1, false))
	third := c.watch("a{dev}")
	c.check("of one that is not asked for yet", true, c.IgnoresDenial(third, 1, false))
	c.request("+a{dev} +a{test}")
	c.respond(third)
	c.check("of the newest one, after the server has read it", false, c.IgnoresDenial(third, 1, false))
}

// A SotW server is asked again for what it has sent by a list without it. That it then may have known of the same
// subscription before is no reason to ignore a denial of all.
func TestReask(t *testing.T) {
	t.Parallel()
	c := newCrosser(t, wire.SotW{}, &locators, false)
	a := c.watch("a")
	c.watch("k")
	c.request("a k")
	c.respond() // with one that may be for other subscriptions, so that the server need not have read the request
	c.request("a k")
	a.State = Reask
	c.Touch(a)
	c.request("k", "a k")
	c.check("pending", true, a.Pending())
	c.check("a denial of all", false, c.IgnoresDenial(a, 2, false))
	c.check("a denial of this one", false, c.IgnoresDenial(a, 2, true))
}

// A resource may be for another subscription to its name, or for one that the server does not know to have ended.
func TestMayBeForAnother(t *testing.T) {
	t.Parallel()
	c := newCrosser(t, wire.Delta{}, &locators, false)
	prod, test, other := c.watch("a{prod}"), c.watch("a{test}"), c.watch("b")
	c.request("+a{prod} +a{test} +b")
	c.check("the other one's", true, c.MayBeForAnother(prod, env("test")))
	c.check("its own", false, c.MayBeForAnother(prod, env("prod")))
	c.check("nobody's", false, c.MayBeForAnother(prod, env("dev")))
	c.check("alone", false, c.MayBeForAnother(other, env("prod")))
	c.stop(test)
	c.request("-a{test}")
	c.check("of the ended one", true, c.MayBeForAnother(prod, env("test")))
	c.check("its own, after an end", false, c.MayBeForAnother(prod, env("prod")))
	c.stop(prod)
	c.request("-a{prod}")
	prod = c.watch("a{prod}")
	c.request("+a{prod}")
	c.check("its own, after its own end", false, c.MayBeForAnother(prod, env("prod")))
}

// A server that goes by names says nothing of a request by what it sends, and a resource of a collection nothing of that for
// its name.
func TestNotedAsRead(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		server    *bootstrap.Server
		collected bool
		want      bool
	}{{&locators, false, true}, {&locators, true, false}, {&names, false, false}} {
		c := newCrosser(t, wire.Delta{}, test.server, false)
		s := c.watch("a")
		c.request("+a")
		c.NoteRead(s, env(""), test.collected)
		c.check(fmt.Sprintf("locators %v, collected %v", test.server == &locators, test.collected), test.want, c.hasRead(&s.Progress))
	}
	// What may be for a subscription that has ended says nothing either.
	for next, want := range map[string]bool{"a{prod}": false, "a{test}": true} {
		c := newCrosser(t, wire.Delta{}, &locators, false)
		s := c.watch("a{prod}")
		c.request("+a{prod}")
		c.respond(s)
		c.stop(s)
		c.request("ack", "-a{prod}")
		s = c.watch(next)
		c.request("+" + next)
		c.respond(s)
		c.check(next+" after a{prod}", want, c.hasRead(&s.Progress))
	}
}

// On a new stream all is unsent but what was received.
func TestStatesOnANewStream(t *testing.T) {
	t.Parallel()
	p := Progress{repeats: 3, State: Unsent}
	p.noteSending(5)
	if p.repeats != 0 || p.asked != 5 || p.isToBeAsked() {
		t.Errorf("after a request got %+v, want no repeats", p)
	}
	p = Progress{repeats: 3, State: Requested, mustReask: true}
	if p.noteSending(5); p.repeats != 3 || p.isToBeAsked() {
		t.Errorf("after a request that asks again got %+v, want 3 repeats", p)
	}
	for state, want := range map[State]State{
		Unsent: Unsent, Sending: Unsent, Requested: Unsent, Received: Received, Reask: Unsent, Missing: Missing, Failed: Failed,
	} {
		for _, kept := range []bool{false, true} {
			p := Progress{State: state, keptDespiteDenial: kept, request: 3, ignoredDenialIn: 2, mustReask: true}
			asked := kept && slices.Contains([]State{Unsent, Sending, Requested, Reask}, state)
			if p.KeptDespiteDenial() != asked {
				t.Errorf("state %v, kept %v: KeptDespiteDenial is %v, want %v", state, kept, p.KeptDespiteDenial(), asked)
			}
			if got := p.isToBeAsked(); got != (state == Reask || state == Sending || state == Requested) {
				t.Errorf("state %v: isToBeAsked is %v", state, got)
			}
			p.beginStream()
			if asked {
				want = Received
			}
			if diff := cmp.Diff(Progress{State: want}, p, cmp.AllowUnexported(Progress{})); diff != "" {
				t.Errorf("state %v, kept %v, on the next stream (-want +got):\n%s", state, kept, diff)
			}
		}
	}
}
