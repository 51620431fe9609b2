package ads

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// next returns the request that is due, but for its type, or nil.
func (c *crosser) next() *wire.Request {
	r, _ := c.Next(false)
	if r != nil {
		r.TypeURL = ""
	}
	return r
}

func (c *crosser) wantNext(what string, want *wire.Request) {
	c.t.Helper()
	if diff := cmp.Diff(want, c.next()); diff != "" {
		c.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func listOf(names ...string) wire.Targets { return wire.Targets{Names: names} }

var protocols = map[string]wire.Protocol{"SotW": wire.SotW{}, "delta": wire.Delta{}}

// A new stream begins with all that is wanted, and with what the client has.
func TestFirstRequestOverDelta(t *testing.T) {
	t.Parallel()
	for _, probe := range []bool{false, true} {
		c := newCrosser(t, wire.Delta{}, &names, false)
		c.watch("b").version = "2"
		c.watch("a").version = "1"
		gone := c.watch("gone")
		c.request("+a +b +gone")
		if probe {
			c.stop(gone)
		} else { // nothing changes between the streams
			c.Drop(gone)
		}
		c.Version = "7"
		c.respond(c.subs[1])
		c.Begin()
		if gone.State != Dropped || c.subs[0].Listed() {
			t.Errorf("got state %v of the one that has ended, and listed %v before the first request", gone.State, c.subs[0].Listed())
		}
		cached := map[string]string{"a": "1", "b": "2"}
		if probe {
			c.Probe()
			cached["a"] = ""
		}
		c.wantNext(fmt.Sprintf("probe %v", probe), &wire.Request{Subscribe: listOf("a", "b"), Cached: cached})
		c.wantNext("after that", nil)
		if c.Version != "7" || c.Answered() {
			t.Errorf("version %q, answered %v, want 7 and no answer yet", c.Version, c.Answered())
		}
		c.watch("c").version = "3"
		c.wantNext("the next one", &wire.Request{Subscribe: listOf("c")})
	}
}

// In SotW there is one version, that of the type. The first request leaves it out if there is something new, or if
// an answer is wanted.
func TestFirstRequestInSotW(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ fresh, probe bool }{"as before": {}, "with a new name": {fresh: true}, "with a probe": {probe: true}} {
		c := newCrosser(t, wire.SotW{}, &names, true)
		a := c.watch("a")
		c.request("a")
		c.Version = "7"
		c.respond(a)
		c.wantNext(name+", the reply", &wire.Request{Version: "7", Nonce: "1", All: listOf("a")})
		c.Begin()
		want := &wire.Request{Version: "7", All: listOf("a")}
		if test.fresh {
			c.watch("b")
			want = &wire.Request{All: listOf("a", "b")}
		}
		if test.probe {
			c.Probe()
			want.Version = ""
		}
		c.wantNext(name, want)
		c.check(name+", a is listed", true, a.Listed())
		c.respond(a)
		c.wantNext(name+", the next one", &wire.Request{Version: "7", Nonce: "2", All: want.All})
	}
}

// On a new stream nothing is sent without subscriptions: an empty list would ask for everything. Later it ends them.
func TestEmptyLists(t *testing.T) {
	t.Parallel()
	for name, p := range protocols {
		c := newCrosser(t, p, &names, true)
		end := &wire.Request{All: wire.Targets{Names: []string{}}}
		if c.Dialect.Incremental() {
			end = &wire.Request{Unsubscribe: listOf("a")}
		}
		c.stop(c.watch("a"))
		c.wantNext(name+", one that has ended at once", nil)
		a := c.watch("a")
		c.next()
		c.stop(a)
		c.wantNext(name+", the end of the last one", end)
		c.wantNext(name+", after that", nil)
		c.stop(c.watch("a"))
		c.Version = "7"
		c.Begin()
		if c.Version != "" {
			t.Errorf("%s: the version is %q after the end of all subscriptions", name, c.Version)
		}
		c.wantNext(name+", a new stream", nil)
		c.respond()
		c.wantNext(name+", the reply to a response that was not asked for", nil)
		c.watch("b")
		if r := c.next(); r == nil || r.Nonce != "" && c.Dialect.Incremental() {
			t.Errorf("%s: the first request is %v", name, r)
		}
		c.wantNext(name+", after the first request", nil)
	}
}

// Only delta has collections.
func TestCollectionsOverDeltaOnly(t *testing.T) {
	t.Parallel()
	for name, p := range protocols {
		for _, server := range []*bootstrap.Server{&names, &locators} {
			c := newCrosser(t, p, server, false)
			all, a := c.watch("*"), c.watch("a")
			if c.Dialect.Incremental() {
				c.request("+* +a")
			} else {
				c.request("a")
			}
			if all.Pending() != c.Dialect.Incremental() || !a.Pending() || c.Serves(all) != c.Dialect.Incremental() {
				t.Errorf("%s: pending are %v and %v", name, all.Pending(), a.Pending())
			}
		}
	}
}

// While changes are held back, replies go out.
func TestHeldBack(t *testing.T) {
	t.Parallel()
	for name, p := range protocols {
		c := newCrosser(t, p, &names, false)
		held := func() *wire.Request { r, _ := c.Next(true); return r }
		a := c.watch("a")
		if r := held(); r != nil {
			t.Errorf("%s: the first request is not held back: %v", name, r)
		}
		c.next()
		c.respond(a)
		b := c.watch("b")
		if r := held(); r == nil || r.Nonce != "1" || len(r.Subscribe.Names) > 0 || len(r.All.Names) > 1 {
			t.Errorf("%s: got %v, want the reply alone", name, r)
		}
		if r := held(); r != nil {
			t.Errorf("%s: a change is not held back: %v", name, r)
		}
		if c.Asked(b) == c.Dialect.Incremental() || !c.Asked(a) {
			t.Errorf("%s: asked for are %v and %v", name, c.Asked(a), c.Asked(b))
		}
		if r := c.next(); r == nil || !b.Pending() {
			t.Errorf("%s: got %v, want b to be asked for", name, r)
		}
	}
}

// A delta request is made in parts, and a version that fits no request is not claimed.
func TestParts(t *testing.T) {
	t.Parallel()
	c := newCrosser(t, wire.Delta{}, &names, false)
	c.Limit = 2 * wire.Locator{Name: "a"}.Size(c.Dialect)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		c.watch(name)
	}
	a, b, d := c.subs[0], c.subs[1], c.subs[3]
	a.version, b.version = "much too long for a request", "1"
	c.wantNext("first", &wire.Request{Subscribe: listOf("a"), Cached: map[string]string{}})
	if a.version != "" {
		t.Error("the long version is claimed")
	}
	c.wantNext("second", &wire.Request{Subscribe: listOf("b", "c")})
	c.stop(d)
	f := c.watch("f")
	c.wantNext("third, without the one that has ended", &wire.Request{Subscribe: listOf("e")})
	c.wantNext("fourth, with a later one", &wire.Request{Subscribe: listOf("f")})
	c.wantNext("fifth", nil)
	c.stop(a, f, b)
	c.watch("g")
	c.wantNext("the ends", &wire.Request{Unsubscribe: listOf("a", "b")})
	c.wantNext("the last end", &wire.Request{Unsubscribe: listOf("f"), Subscribe: listOf("g")})
	c.wantNext("nothing more", nil)
}

// A server that goes by names is not told that one of two subscriptions to a name has ended.
func TestEndOfOneOfTwo(t *testing.T) {
	t.Parallel()
	for name, p := range protocols {
		c := newCrosser(t, p, &names, false)
		prod, test := c.watch("a{prod}"), c.watch("a{test}")
		c.watch("k")
		c.next()
		c.stop(prod)
		c.wantNext(name, nil)
		c.stop(test)
		if r := c.next(); r == nil || len(r.Unsubscribe.Names)+len(r.All.Names) != 1 {
			t.Errorf("%s: got %v, want the end of a", name, r)
		}
	}
}

// The reply to a repetition comes a second after the last one, and only the last one is sent.
func TestRepliesToRepetitions(t *testing.T) {
	t.Parallel()
	for _, p := range protocols {
		synctest.Test(t, func(t *testing.T) {
			c := newCrosser(t, p, &names, true)
			a := c.watch("a")
			c.next()
			c.respond(a)
			c.next()
			again := func(nonce string, want bool) {
				t.Helper()
				if due, err := c.ReplyAgain(Reply{nonce, "bad"}); err != nil || due != want {
					t.Fatalf("repetition %s: got %v, %v, want %v", nonce, due, err, want)
				}
			}
			sent := func(nonce string) {
				t.Helper()
				if r := c.next(); r == nil || r.Nonce != nonce {
					t.Fatalf("got %v, want the reply to %s", r, nonce)
				}
			}
			sentLate := func(nonce string) {
				t.Helper()
				began := time.Now()
				c.wantNext(nonce+" at once", nil)
				_, at := c.Replies.Due()
				time.Sleep(time.Until(at))
				sent(nonce)
				c.wantNext(nonce+", once more", nil)
				if took := time.Since(began); took != time.Second {
					t.Errorf("the reply to %s came after %v, want a second", nonce, took)
				}
			}
			again("2", true)
			again("3", false) // its reply takes the place of that to 2
			sentLate("3")
			again("4", true)
			sentLate("4")
			time.Sleep(10 * time.Second) // a repetition that comes late is answered at once
			again("5", true)
			sent("5")
			again("6", true)
			sentLate("6")
			// Another response lets go of a reply that waits; in SotW only the last one is sent.
			again("7", true)
			c.number = 7
			c.respond(a)
			if c.Dialect.Incremental() {
				sent("7")
			}
			sent("8")
			c.wantNext("nothing more", nil)
		})
	}
}

// The reply to a repetition repeats the list if the reply to the response did.
func TestRepetitionOfAResponseThatWasNotAskedFor(t *testing.T) {
	t.Parallel()
	for _, unasked := range []bool{false, true} {
		c := newCrosser(t, wire.SotW{}, &names, true)
		c.watch("a")
		c.request("a")
		err := c.EndResponse(1, Reply{Nonce: "1"}, unasked)
		c.request("a")
		if _, again := c.ReplyAgain(Reply{Nonce: "2"}); err != nil || again != nil {
			t.Fatal(err, again)
		}
		c.watch("b")
		if unasked {
			c.request("a", "a b")
		} else {
			c.request("a b")
		}
	}
}

// A response is a repetition only if nothing has changed that the work on it goes by.
func TestWhatDisturbsARepetition(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *crosser, a *fakeSub){
		"a reply":            func(c *crosser, _ *fakeSub) { c.next() },
		"a new subscription": func(c *crosser, _ *fakeSub) { c.watch("b") },
		"the end of one":     func(c *crosser, a *fakeSub) { c.Forget(a) },
		"a request":          func(c *crosser, _ *fakeSub) { c.next(); c.watch("b"); c.settled = true; c.next() },
		"a new stream":       func(c *crosser, _ *fakeSub) { c.Begin() },
		"a request for an end": func(c *crosser, a *fakeSub) {
			c.next()
			c.watch("b")
			c.next()
			c.stop(a)
			c.settled = true
			c.next()
		},
	} {
		for protocol, p := range protocols {
			c := newCrosser(t, p, &names, true)
			a := c.watch("a")
			c.next()
			c.BeginResponse(new(wire.Response), 5)
			if err := c.EndResponse(1, Reply{Nonce: "1"}, false); err != nil {
				t.Fatal(err)
			}
			change(c, a)
			c.check(name+", "+protocol, name == "a reply", c.Repeats(5))
		}
	}
}
