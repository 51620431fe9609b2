package ads

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// fakeSub is a subscription to a resource.
type fakeSub struct {
	Progress
	name        string
	constraints dynparam.Constraints
	wanted      bool
	version     string
}

func (s *fakeSub) Locator() wire.Locator {
	return wire.Locator{Name: s.name, Constraints: s.constraints}
}
func (s *fakeSub) IsCollection() bool { return s.name == "*" }
func (s *fakeSub) Wanted() bool       { return s.wanted }

// fakeType has the subscriptions to one type.
type fakeType struct {
	Requests[*fakeSub]
	subs []*fakeSub
}

func newFakeType(d wire.Dialect) *fakeType {
	t := &fakeType{}
	t.Requests = NewRequests("type", false, d, Subscriptions[*fakeSub](t))
	return t
}

func (t *fakeType) Len() int                    { return len(t.subs) }
func (t *fakeType) All() iter.Seq[*fakeSub]     { return slices.Values(slices.Clone(t.subs)) }
func (t *fakeType) VersionsSize(s *fakeSub) int { return len(s.version) }
func (t *fakeType) ForgetAnswers(s *fakeSub)    { s.version = "" }
func (t *fakeType) Versions() map[string]string {
	versions := make(map[string]string)
	for _, s := range t.subs {
		if s.version != "" && s.Listed() {
			versions[s.name] = s.version
		}
	}
	return versions
}
func (t *fakeType) Drop(s *fakeSub) {
	t.Forget(s)
	t.subs = slices.DeleteFunc(t.subs, func(x *fakeSub) bool { return x == s })
}
func (t *fakeType) First(name string) *fakeSub { return firstOf(t.subs, name) }
func (t *fakeType) Sibling(s *fakeSub) *fakeSub {
	return firstOf(t.subs[slices.Index(t.subs, s)+1:], s.name)
}

func firstOf(subs []*fakeSub, name string) *fakeSub {
	for _, s := range subs {
		if s.name == name {
			return s
		}
	}
	return nil
}

func (t *fakeType) subscribe(name string) *fakeSub {
	s := &fakeSub{name: name, wanted: true}
	t.subs = append(t.subs, s)
	t.Touch(s)
	return s
}

// ask makes the requests that are due.
func (t *fakeType) ask() {
	for r, _ := t.Next(false); r != nil; {
		r, _ = t.Next(false)
	}
}

// What is remembered of names that were given up is bounded.
func TestNamesThatWereGivenUpAreBounded(t *testing.T) {
	t.Parallel()
	for name, incremental := range map[string]bool{"SotW": false, "delta": true} {
		f := newFakeType(wire.Dialect{Incremental: incremental, Locators: true})
		f.subscribe("kept")
		for i := range MaxUnsubscribed + 10 {
			f.subscribe(fmt.Sprint("c", i))
		}
		f.ask()
		for _, s := range f.subs[1:] {
			s.wanted = false
			f.Touch(s)
		}
		f.ask()
		if len(f.subs) != 1 || f.unsubscriptions != MaxUnsubscribed || len(f.unsubscribed) != MaxUnsubscribed {
			t.Errorf("%s: %d subscriptions, and %d names that were given up, want 1 and %d", name, len(f.subs), len(f.unsubscribed), MaxUnsubscribed)
		}
	}
}

// A server that reads no replies is cut off before they fill the memory, also if it only repeats
// itself.
func TestBacklogIsBounded(t *testing.T) {
	t.Parallel()
	nonce := strings.Repeat("n", MaxBacklog/4)
	for _, again := range []bool{false, true} {
		f := newFakeType(wire.Dialect{Incremental: true})
		f.subscribe("a")
		f.ask()
		var err error
		i := 0
		for ; i < 10 && err == nil; i++ {
			if again {
				_, err = f.ReplyAgain(Reply{Nonce: nonce})
			} else {
				err = f.EndResponse(uint64(i), Reply{Nonce: nonce}, false)
			}
		}
		if !errors.Is(err, ErrUnread) || i != 4 {
			t.Errorf("repetitions %v: after %d responses got error %v, want %v after 4", again, i, err, ErrUnread)
		}
	}
}
