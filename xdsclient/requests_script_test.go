package xdsclient

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
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// TestRequests follows testdata/requests.txt: the requests for one type, by the events of its subscriptions. Behind "@" is how
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
func TestRequests(t *testing.T) {
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
	quietType
	t *testing.T
	// all are the subscriptions, also those that have ended; told is what was said of each.
	all  []*subscription
	told map[*subscription]string
	// number is that of the last response, and remembered the unsubscriptions that were printed last.
	number     uint64
	remembered string
	// follows is what the steps of the line say themselves.
	follows []string
}

func newScripted(t *testing.T, how string) *scripted {
	d := wire.Dialect{Incremental: strings.Contains(how, "delta"), Locators: strings.Contains(how, "locators")}
	return &scripted{quietType: newQuietType(d, strings.Contains(how, "full")), t: t, told: make(map[*subscription]string)}
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
		r, _, _ := y.next(held)
		if r == nil {
			break
		}
		follows = append(follows, y.request(r))
	}
	if _, at := y.replies.Due(); !at.IsZero() {
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
		if !y.settled {
			y.follows = append(y.follows, "needs work")
		}
		_, err := y.replyAgain(y.reply())
		xdstest.NoError(y.t, err)
	case "wait":
		d, err := time.ParseDuration(words[0])
		xdstest.NoError(y.t, err)
		time.Sleep(d)
	case "stream", "probe":
		y.begin()
		y.probe = y.probe || verb == "probe"
	case "limit":
		y.limit = len(words[0]) * wire.Locator{Name: "a"}.Size(y.channel.dialect)
	}
	for _, word := range words {
		switch s := y.find(word); verb {
		case "watch":
			y.watch(word)
		case "stop":
			y.stop(s)
		case "contest":
			s.step(ads.Contested)
		case "timer":
			y.note(s, s.runOut())
		case "drop":
			y.drop(s)
		}
	}
}

func (y *scripted) watch(word string) {
	word, version, _ := strings.Cut(word, "@")
	name, env, _ := strings.Cut(strings.TrimSuffix(word, "}"), "{")
	var c dynparam.Constraints
	if env != "" {
		var err error
		c, err = dynparam.Exact(map[string]string{"env": env})
		xdstest.NoError(y.t, err)
	}
	s := y.subscribe(name, c)
	if version != "" {
		s.payload, s.taken.version = &payload{}, version
	}
	if !slices.Contains(y.all, s) {
		y.all = append(y.all, s)
	}
}

// find returns the subscription that a word means, or nil.
func (y *scripted) find(word string) *subscription {
	for s := range y.subs.all() {
		if s.named() == word {
			return s
		}
	}
	return nil
}

// named is what scripts call a name with constraints.
func named(name string, c dynparam.Constraints) string {
	if p, ok := c.Parameters(); ok && !p.IsZero() {
		return name + "{" + p.Map()["env"] + "}"
	}
	return name
}

func (s *subscription) named() string { return named(s.resource.key.name, s.resource.constraints) }

// send has the server send a response.
func (y *scripted) send(version string, words []string) {
	y.number++
	y.repetition = repetition{settled: true}
	y.countResponse()
	unasked := false
	for _, word := range words {
		name, denied := strings.CutPrefix(word, "-")
		all, scoped := strings.CutSuffix(name, "{*}")
		unasked = unasked || word == "?"
		for s := range y.subs.all() {
			switch {
			case scoped && s.resource.key.name != all || !scoped && s.named() != name:
			case !denied:
				p, _ := s.resource.constraints.Parameters()
				y.noteRead(s, p, false)
				s.step(ads.Sent)
				s.seen = y.number
			case !y.ignoresDenial(s, y.number, !scoped):
				s.step(ads.Denied)
				s.seen = y.number
			}
		}
	}
	for s := range y.subs.all() {
		if y.typ.FullStateInSotW && s.seen != y.number && s.isListed() {
			y.note(s, y.omit(s))
		}
	}
	y.version = version
	xdstest.NoError(y.t, y.endResponse(y.number, y.reply(), unasked))
}

// reply answers the last response.
func (y *scripted) reply() ads.Reply { return ads.Reply{Nonce: fmt.Sprint(y.number)} }

// note has what follows say that the watchers hear of an absence.
func (y *scripted) note(s *subscription, e ads.Effect) {
	if e == ads.Tell {
		y.follows = append(y.follows, "tell "+s.named())
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
			words = append(words, list.sign+named(l.Name, l.Constraints))
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
func (s *subscription) text(y *scripted) string {
	text := s.named() + " " + s.State.String()
	if y.hasRead(s) {
		text += ", read"
	}
	if (s.State.Pending() || s.State == ads.Silent) && y.fullState() && s.saysAbsent() {
		text += ", absent"
	}
	return text
}

// remembers lists the unsubscriptions that the server may not have read.
func (y *scripted) remembers() (text string) {
	for _, name := range slices.Sorted(maps.Keys(y.unsubscribed)) {
		for _, u := range y.unsubscribed[name] {
			text += " " + named(name, u.constraints)
		}
	}
	return text
}
