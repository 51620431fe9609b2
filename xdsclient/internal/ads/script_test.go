package ads

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// TestScripts follows testdata/requests.txt: the requests for one type, by the events of its subscriptions. Behind "@" is how
// the server is spoken to: SotW or delta, by locators or not, with the full state or not. Each line is a list of steps, and behind
// "->" what follows: the requests that are due then, what has become of subscriptions, and the unsubscriptions that
// are remembered.
//
//	watch a b{prod} c@1    starts subscriptions; b{prod} is the variant in which env is prod, and of c the client has version 1
//	stop a                 ends some; drop a: at once, as nothing is asked for any more
//	send 7 a -b -c{*}      a response of version 7 with a, a denial of b, and one of all subscriptions to c; ? is something
//	                       that is not subscribed to
//	again                  the same response again, which needs work only if something has changed
//	wait 1s                lets time pass
//	contest a              a lesser variant comes
//	timer a                the resource timer fires
//	stream, probe          a new stream, and one whose first request has to be answered
//	limit 2                two names fit into a request
//	hold, once             the steps of the line, but no requests, or one; held: only those that do not wait for a delivery
//	+a -b, ack 1           a delta request, and one that answers response 1
//	a b, ack 1 a b @7      a SotW request, and one that answers response 1 and has version 7
//	tell a                 the watchers of a hear that there is none
//	a Asked, read          the state of a; the server has read the request; absent: its silence says that there is none
func TestScripts(t *testing.T) {
	golden.Scripts(t, "testdata/requests.txt", 0, func(tb testing.TB) func(string) string {
		var y *scripted
		return func(line string) string {
			if how, ok := strings.CutPrefix(line, "@ "); ok {
				y = newScripted(tb.(*testing.T), how)
				return ""
			}
			return y.do(line)
		}
	})
}

// scripted is a type of a script.
type scripted struct {
	*fakeType
	t *testing.T
	// all are the subscriptions, also those that have ended; told is what was said of each.
	all  []*fakeSub
	told map[*fakeSub]string
	// number is that of the last response, and remembered the unsubscriptions that were printed last.
	number     uint64
	remembered string
	// follows is what the steps of the line say themselves.
	follows []string
}

func newScripted(t *testing.T, how string) *scripted {
	y := &scripted{fakeType: &fakeType{}, t: t, told: make(map[*fakeSub]string)}
	d := wire.Dialect{Incremental: strings.Contains(how, "delta"), Locators: strings.Contains(how, "locators")}
	y.Requests = NewRequests("type", strings.Contains(how, "full"), d, Subscriptions[*fakeSub](y.fakeType))
	return y
}

// do does the steps of a line, and returns what follows.
func (y *scripted) do(line string) string {
	rest, most, held := line, 100, false
	switch mode, after, _ := strings.Cut(line, " "); mode {
	case "hold":
		rest, most = after, 0
	case "once":
		rest, most = after, 1
	case "held":
		rest, held = after, true
	}
	for step := range strings.SplitSeq(rest, ", ") {
		verb, rest, _ := strings.Cut(step, " ")
		y.step(verb, strings.Fields(rest))
	}
	follows := y.follows
	y.follows = nil
	for range most {
		r, _ := y.Next(held)
		if r == nil {
			break
		}
		follows = append(follows, y.request(r))
	}
	if _, at := y.Replies.Due(); !at.IsZero() {
		follows = append(follows, fmt.Sprintf("ack in %v", time.Until(at)))
	}
	for _, s := range y.all {
		if text := s.text(y); text != y.told[s] {
			follows, y.told[s] = append(follows, text), text
		}
	}
	if text := y.remembers(); text != y.remembered {
		follows, y.remembered = append(follows, "remembers"+text), text
	}
	return strings.Join(follows, "; ")
}

func (y *scripted) step(verb string, words []string) {
	switch verb {
	case "send":
		y.send(words[0], words[1:])
		return
	case "again":
		y.number++
		if !y.Repeats(hash) {
			y.follows = append(y.follows, "needs work")
		}
		_, err := y.ReplyAgain(y.reply())
		xdstest.NoError(y.t, err)
	case "wait":
		d, err := time.ParseDuration(words[0])
		xdstest.NoError(y.t, err)
		time.Sleep(d)
	case "stream", "probe":
		if y.Begin(); verb == "probe" {
			y.Probe()
		}
	case "limit":
		y.Limit = len(words[0]) * wire.Locator{Name: "a"}.Size(y.Dialect)
	}
	for _, word := range words {
		switch s := y.named(word); verb {
		case "watch":
			y.watch(word)
		case "stop":
			s.wanted = false
			y.Touch(s)
		case "contest":
			y.Step(s, Contested)
		case "timer":
			y.note(s, y.Expire(s))
		case "drop":
			y.Drop(s)
		}
	}
}

func (y *scripted) watch(word string) {
	word, version, _ := strings.Cut(word, "@")
	name, env, _ := strings.Cut(strings.TrimSuffix(word, "}"), "{")
	s := y.subscribe(name)
	if s.version = version; env != "" {
		c, err := dynparam.Exact(map[string]string{"env": env})
		xdstest.NoError(y.t, err)
		s.constraints = c
	}
	y.all = append(y.all, s)
}

// named returns the subscription that a word means, or nil.
func (y *scripted) named(word string) *fakeSub {
	for _, s := range y.subs {
		if locatorText(s.Locator()) == word {
			return s
		}
	}
	return nil
}

func locatorText(l wire.Locator) string {
	if p, ok := l.Constraints.Parameters(); ok && !p.IsZero() {
		return l.Name + "{" + p.Map()["env"] + "}"
	}
	return l.Name
}

// send has the server send a response.
func (y *scripted) send(version string, words []string) {
	y.number++
	y.BeginResponse(hash)
	unasked := false
	for _, word := range words {
		name, denied := strings.CutPrefix(word, "-")
		all, scoped := strings.CutSuffix(name, "{*}")
		unasked = unasked || word == "?"
		for _, s := range slices.Clone(y.subs) {
			switch {
			case scoped && s.name != all || !scoped && locatorText(s.Locator()) != name:
			case !denied:
				p, _ := s.constraints.Parameters()
				y.NoteRead(s, p, false)
				y.Step(s, Sent)
				s.Seen = y.number
			case !y.IgnoresDenial(s, y.number, !scoped):
				y.Step(s, Denied)
				s.Seen = y.number
			}
		}
	}
	for _, s := range slices.Clone(y.subs) {
		if y.fullState && s.Seen != y.number && s.Listed() {
			y.note(s, y.Omit(s))
		}
	}
	y.Version = version
	xdstest.NoError(y.t, y.EndResponse(y.number, y.reply(), unasked))
}

// hash is that of all responses.
const hash = 5

// reply answers the last response.
func (y *scripted) reply() Reply { return Reply{Nonce: fmt.Sprint(y.number)} }

// note has what follows say that the watchers hear of an absence.
func (y *scripted) note(s *fakeSub, e Effect) {
	if e == Tell {
		y.follows = append(y.follows, "tell "+locatorText(s.Locator()))
	}
}

// request is the text of a request.
func (y *scripted) request(r *wire.Request) string {
	var words []string
	if r.Nonce != "" {
		words = append(words, "ack "+r.Nonce)
	}
	for _, list := range []struct {
		sign string
		of   wire.Targets
	}{{"", r.All}, {"+", r.Subscribe}, {"-", r.Unsubscribe}} {
		for _, l := range list.of.Locators {
			words = append(words, list.sign+locatorText(l))
		}
		for _, name := range list.of.Names {
			if len(list.of.Locators) == 0 {
				words = append(words, list.sign+name)
			}
		}
	}
	if r.Version != "" {
		words = append(words, "@"+r.Version)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Cached)) {
		words = append(words, "has "+name+"@"+r.Cached[name])
	}
	if len(words) == 0 {
		return "an empty list"
	}
	return strings.Join(words, " ")
}

// text is what is known of a subscription.
func (s *fakeSub) text(y *scripted) string {
	text := locatorText(s.Locator()) + " " + stateNames[s.State]
	if y.HasRead(s) {
		text += ", read"
	}
	if (s.State.Pending() || s.State == Silent) && y.SaysAbsent(s) {
		text += ", absent"
	}
	return text
}

// remembers lists the unsubscriptions that the server may not have read.
func (y *scripted) remembers() (text string) {
	for _, name := range slices.Sorted(maps.Keys(y.unsubscribed)) {
		for _, u := range y.unsubscribed[name] {
			text += " " + locatorText(wire.Locator{Name: name, Constraints: u.constraints})
		}
	}
	return text
}
