package xdsclient

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// quietType is a type at a server that there is none of: a test takes the requests and makes the responses.
type quietType struct {
	*typeState
	of *authority
}

func newQuietType(d wire.Dialect, full bool) quietType {
	ch := &managementServer{dialect: d, server: &bootstrap.Server{}}
	of := &authority{client: &XDSClient{}, channels: []*managementServer{ch}}
	return quietType{newTypeState(&ResourceType{TypeURL: "type", FullStateInSotW: full}, ch), of}
}

func (y quietType) subscribe(name string, c dynparam.Constraints) *subscription {
	key := resourceKey{y.typ, name, c.Key()}
	s := y.subs.get(key)
	if s == nil {
		s = y.add(newResource(y.of, key, c))
	}
	s.resource.watches = []*watch{nil}
	y.touch(s)
	return s
}

func (y quietType) stop(s *subscription) {
	s.resource.watches = nil
	y.touch(s)
}

// ask makes the requests that are due.
func (y quietType) ask() {
	for r, _, _ := y.next(false); r != nil; {
		r, _, _ = y.next(false)
	}
}

// What is remembered of names that were given up is bounded.
func TestNamesThatWereGivenUpAreBounded(t *testing.T) {
	t.Parallel()
	for name, incremental := range map[string]bool{"SotW": false, "delta": true} {
		f := newQuietType(wire.Dialect{Incremental: incremental, Locators: true}, false)
		kept := f.subscribe("kept", dynparam.Constraints{})
		for i := range maxUnsubscribed + 10 {
			f.subscribe(fmt.Sprint("c", i), dynparam.Constraints{})
		}
		f.ask()
		for s := range f.subs.all() {
			if s != kept {
				f.stop(s)
			}
		}
		f.ask()
		if f.subs.size != 1 || f.unsubscriptions != maxUnsubscribed || len(f.unsubscribed) != maxUnsubscribed {
			t.Errorf("%s: %d subscriptions, and %d names that were given up, want 1 and %d", name, f.subs.size, len(f.unsubscribed), maxUnsubscribed)
		}
	}
}

// A server that reads no replies is cut off before they fill the memory, also if it only repeats
// itself.
func TestBacklogIsBounded(t *testing.T) {
	t.Parallel()
	nonce := strings.Repeat("n", ads.MaxBacklog/4)
	for _, again := range []bool{false, true} {
		f := newQuietType(wire.Dialect{Incremental: true}, false)
		f.subscribe("a", dynparam.Constraints{})
		f.ask()
		var err error
		i := 0
		for ; i < 10 && err == nil; i++ {
			if again {
				_, err = f.replyAgain(ads.Reply{Nonce: nonce})
			} else {
				err = f.endResponse(uint64(i), ads.Reply{Nonce: nonce}, false)
			}
		}
		if !errors.Is(err, ads.ErrUnread) || i != 4 {
			t.Errorf("repetitions %v: after %d responses got error %v, want %v after 4", again, i, err, ads.ErrUnread)
		}
	}
}
