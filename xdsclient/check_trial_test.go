package xdsclient

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/internal/explore"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// checkEnv is what the trials of one way share.
type checkEnv struct {
	t      testing.TB
	way    *checkWay
	config *bootstrap.Config
	types  *testTypes
	// messages are responses by their words, version and nonce.
	messages map[string][]byte
}

// checkSeed has equal bytes have equal hashes in all trials.
var checkSeed = maphash.MakeSeed()

func newCheckEnv(t testing.TB, way *checkWay) *checkEnv {
	features := way.features()
	if way.delta {
		features = append(features, "delta")
	}
	env := &checkEnv{t: t, way: way, types: newTestTypes(), messages: make(map[string][]byte)}
	if way.lapses {
		env.types.clusters = envelopedClusters()
	}
	env.types.clusters.FullStateInSotW = way.full
	options := []testutils.BootstrapOption{testutils.ServerFeatures(features...), testutils.Authority("auth", "", nil)}
	if way.fallback {
		options = append(options, testutils.FurtherServer(uri(1), features...))
	}
	if way.lower {
		options = append(options, authorityWith("auth", [][]string{nil, features}, 1))
	}
	env.config = parseBootstrap(t, "passthrough:///nowhere", options...)
	return env
}

// trial is one path: a client without goroutines but those that do nothing, and a server, and what is under way
// between them.
type trial struct {
	*checkEnv
	c       *XDSClient
	watches [maxCheckLocators]*trialWatch
	// said has the last error of each locator since a watch of it had a resource.
	said [maxCheckLocators]ErrorKind
	// checkSide is that of sides where something happens.
	*checkSide
	sides []*checkSide
	// selected is the locator that the client is to watch.
	selected int
	// kind is the type that the server answers.
	kind int
	used checkScope
	// reading is the response that the client works on, or nil.
	reading *checkResponse
	timing  bool
	// steps, if not nil, collects what the client sees.
	steps *stepList
	last  *checkLast
	// free says that events may come in any order, even if another one leads to the same state.
	free bool
	explore.Tale
}

// checkSide is a server, with the client's channel to it.
type checkSide struct {
	index  int
	ch     *managementServer
	world  checkWorld
	server checkServer
	memory [checkKinds]checkMemory
	// sentSelected is the locator that the client was told to watch.
	sentSelected int
	// up has the requests that the server has not read, and down the responses that the client has not.
	up   []*checkRequest
	down []*checkResponse
	// dirty says that requests may be due.
	dirty bool
	// lastRead is the last response of the stream that the client has read.
	lastRead *checkResponse
}

// inUse reports whether the client watches something from the server.
func (s *checkSide) inUse() bool { return len(s.ch.authorities) > 0 }

// at has events happen at a server.
func (x *trial) at(side int) *trial {
	x.checkSide = x.sides[side]
	return x
}

// newTrial returns a trial at the start of the scope. steps may be nil.
func (env *checkEnv) newTrial(steps *stepList) *trial {
	x := env.newBareTrial()
	x.steps = steps
	for _, l := range env.way.scope.start {
		x.watch(int(l - '0'))
	}
	if len(env.way.scope.start) > 0 {
		x.talk()
	}
	return x
}

func (env *checkEnv) newBareTrial() *trial {
	x := &trial{checkEnv: env, sides: []*checkSide{{}}}
	if env.way.fallback {
		x.sides = append(x.sides, &checkSide{index: 1, world: checkWorld{checkY, checkY}})
	}
	x.at(0)
	for i, c := range env.way.scope.held {
		if c == 'x' {
			x.world[i] = checkX
		}
	}
	c, err := New(env.config, Options{})
	xdstest.NoError(env.t, err)
	c.seed = checkSeed
	synctest.Wait()
	// The goroutine that calls watchers waits for ever; they are called by pump.
	c.dispatcher = &dispatcher{client: c, wake: transport.NewSignal()}
	x.c = c
	for side := range x.sides {
		x.at(side).connect()
	}
	x.at(0).ch.opened()
	return x
}

// connect gives the client a channel without a stream.
func (x *trial) connect() {
	server := x.c.config.Servers[x.index]
	x.c.mu.Lock()
	x.ch = newManagementServer(x.c, server, "")
	x.c.channels[channelKey{server: server.Key()}] = x.ch
	x.c.mu.Unlock()
	x.lose()
}

// lose loses what is under way, and what the server knows of the stream.
func (x *trial) lose() {
	x.up, x.down, x.server, x.lastRead, x.dirty, x.sentSelected = nil, nil, checkServer{}, nil, true, -1
}

func (x *trial) watch(l int) {
	if x.at(0).ch.link.Closed() {
		x.connect()
		x.ch.opened()
	}
	w, loc := &trialWatch{x: x, locator: l}, &x.way.locators_[l]
	x.steps.add("watch " + loc.watchText())
	x.watches[l] = w
	if loc.collection {
		w.stop = x.c.WatchCollectionLocator(x.typeOf(loc.kind), loc.name, loc.constraints, trialCollection{w})
	} else {
		w.stop = x.c.WatchLocator(x.typeOf(loc.kind), loc.name, loc.constraints, w)
	}
	x.pump()
}

// typeOf returns a type.
func (env *checkEnv) typeOf(kind int) *ResourceType {
	return []*ResourceType{env.types.clusters, env.types.endpoints}[kind]
}

func (x *trial) unwatch(l int) {
	x.steps.add("stop " + x.way.locators_[l].watchText())
	x.watches[l].stop()
	x.watches[l] = nil
	x.pump()
	if x.at(0).ch.link.Closed() {
		x.lose()
	}
}

// pump calls the watchers.
func (x *trial) pump() {
	for _, s := range x.sides {
		s.dirty = true
	}
	d := x.c.dispatcher
	for e := d.next(); e != nil; e = d.next() {
		e.call(func() { d.done(e) })
	}
	now := x.index
	for _, s := range x.sides[1:] {
		if s.ch.link.Closed() { // the client does not need the server any more; it may do so again
			x.at(s.index).connect()
		}
	}
	x.at(now)
}

// flush has the client send what is due. It reports whether it sent something.
func (x *trial) flush() (sent bool) {
	x.dirty = false
	if !x.ch.link.Streaming() {
		return false
	}
	x.steps.wrote()
	for {
		r, fresh, at := x.ch.nextRequest()
		if r == nil && at.IsZero() {
			return sent
		}
		if r == nil {
			if sent {
				x.dirty = true
				return true
			}
			x.sleep(2 * time.Until(at)) // more than it can be by chance
			continue
		}
		x.ch.sent(fresh)
		sent = true
		if q := x.request(r); q != nil {
			x.up = append(x.up, q)
		}
	}
}

func (x *trial) sleep(d time.Duration) {
	x.steps.add("wait " + d.String())
	time.Sleep(d)
	synctest.Wait()
	x.pump()
}

// request returns a request as the model sees it, or nil if it says nothing to a server.
func (x *trial) request(r *wire.Request) *checkRequest {
	q := &checkRequest{version: r.Version, nack: r.Fault != ""}
	if r.TypeURL == x.types.endpoints.TypeURL {
		q.kind = 1
	}
	if q.nack && !x.way.faulty {
		x.Fail("the client rejects a response: %s", r.Fault)
	}
	if !x.way.delta {
		n, _ := strconv.Atoi(r.Nonce)
		q.nonce, q.subs = uint32(n), x.bits(q.kind, &r.All)
		return q
	}
	q.subs, q.leaves = x.bits(q.kind, &r.Subscribe), x.bits(q.kind, &r.Unsubscribe)
	if q.subs == 0 && q.leaves == 0 {
		return nil
	}
	for name, version := range r.Cached {
		v := x.way.valueOfText(version)
		if i := slices.IndexFunc(x.way.things, func(it checkItem) bool { return it.kind == q.kind && it.name == name }); v == checkUnsaid && i >= 0 && !x.way.locators {
			v = checkValueOf(i, checkDenied) // it has some version
		}
		if v != checkUnsaid {
			q.claims = append(q.claims, v)
		}
	}
	slices.Sort(q.claims)
	return q
}

func (x *trial) bits(kind int, t *wire.Targets) (bits uint) {
	list := t.Locators
	if !x.way.locators {
		list = nil
		for _, name := range t.Names {
			list = append(list, wire.Locator{Name: name})
		}
	}
	for _, l := range list {
		i := x.way.locatorOf(kind, l.Name, l.Constraints)
		if i < 0 {
			x.Fail("the client asks for %q", l.Name)
			continue
		}
		bits |= 1 << i
	}
	return bits
}

// deliver has the client read a response.
func (x *trial) deliver() {
	r := x.down[0]
	x.down = x.down[1:]
	if r.selects > 0 {
		x.moveTo(r.selects - 1)
		return
	}
	x.reading, x.lastRead = r, r
	x.step(x.steps.send(r))
	x.receive(x.message(r))
	x.reading = nil
}

// moveTo has the client watch another locator in place of that which it watches.
func (x *trial) moveTo(l int) {
	for old, w := range x.watches {
		if w != nil && old != l {
			if x.watches[l] == nil {
				x.watch(l)
			}
			x.unwatch(old)
			return
		}
	}
}

// receive hands over a response.
func (x *trial) receive(message []byte) {
	_, done, err := x.ch.receive(message)
	if err != nil {
		x.Fail("the client does not understand a response: %v", err)
		return
	}
	x.pump()
	if done != nil {
		select {
		case <-done:
			x.ch.delivered()
			x.ch.reading()
		default:
			x.Fail("a response is not released")
		}
	}
}

func (env *checkEnv) message(r *checkResponse) []byte {
	key := fmt.Sprint(r.kind, "/", r.words, "/", r.version, "/", r.nonce)
	m := env.messages[key]
	if m == nil {
		server := &transcriptServer{delta: env.way.delta}
		if env.way.lapses {
			server.ttl = checkTTL
		}
		x := &transcript{t: env.t, types: env.types}
		m = mustMarshal(env.t, server.response(x, env.typeOf(r.kind), r.version, strconv.Itoa(int(r.nonce)), strings.Fields(r.words)))
		env.messages[key] = m
	}
	return m
}

// checkTTL is the TTL of resources, if they have one. While there is a stream the server extends it in time.
const checkTTL = time.Minute

// lapse lets the TTLs of resources run out: those to whom the client has passed them on no longer have them.
func (x *trial) lapse() {
	x.sleep(checkTTL + time.Second)
	for _, w := range x.watches {
		if w != nil {
			w.value = checkUnsaid
		}
	}
}

// End closes the client.
func (x *trial) End() { x.c.Close() }

// talk has client and server talk, with all that is new in each response, until both are silent. It returns the
// number of responses that took.
func (x *trial) talk() (responses int) {
	quiet := 0 // sides in a row at which nothing happens
	for n := range 40 * len(x.sides) {
		x.at(n % len(x.sides))
		more := x.flush()
		for len(x.up) > 0 {
			x.read(x.up[0])
			x.up, more = x.up[1:], true
		}
		if len(x.down) > 0 {
			x.deliver()
			responses++
			quiet = 0
			continue
		}
		if x.answer() {
			quiet = 0
			continue
		}
		if quiet++; more {
			quiet = 0
		}
		if quiet >= len(x.sides) {
			return responses
		}
	}
	x.Fail("client and server do not come to an end")
	return responses
}

// answer has the server send all that is new of a type, and reports whether there was something.
func (x *trial) answer() bool {
	for kind := range checkKinds {
		if list := x.answersOf(kind); len(list) > 0 && !list[0].spare {
			x.send(&list[0])
			return true
		}
	}
	return false
}

// Settle implements explore.Trial: client and server talk until both are silent, and then each watch is checked. It returns the
// number of responses that took. SotW has no way to say that something is not there but to leave it out: if that crosses
// a request, it is the resource timer that tells.
func (x *trial) Settle() (responses int) {
	if x.way.fallback {
		x.fallBack()
	}
	for side := range x.sides {
		if x.at(side); !x.ch.link.Streaming() && !x.ch.link.Closed() && (side == 0 || x.inUse()) {
			x.open()
		}
	}
	responses = x.talk()
	x.at(0)
	if x.compare(true); x.Fault() == "" && !x.way.delta && x.way.full && x.compare(false) {
		x.timing = true
		x.sleep(defaultResourceTimeout + time.Second)
		x.talk()
		x.at(0)
		for n := 0; n < 2 && x.compare(false) && x.sayAgain(); n++ { // or a later full state
			x.talk()
			x.sleep(defaultResourceTimeout + time.Second)
			x.talk()
			x.at(0)
		}
	}
	if x.Fault() == "" && !x.sides[len(x.sides)-1].follows(x.c) && x.compare(false) {
		x.Fail("in the end a watch has what is not there")
	}
	return responses
}

// sayAgain has each server that is asked for something send what it has, and reports whether one is.
func (x *trial) sayAgain() (sent bool) {
	for side := range x.sides {
		if list := x.at(side).answers(); len(list) > 0 {
			x.send(&list[0])
			sent = true
		}
	}
	x.at(0)
	return sent
}

// follows reports whether it is the second server, and the client follows it: the first one answers, and has said nothing of use.
func (s *checkSide) follows(c *XDSClient) bool {
	for _, a := range c.authorities {
		if s.index > 0 && len(a.channels) == s.index+1 {
			return true
		}
	}
	return false
}

// fallBack has the preferred server stay unreachable, if it is, until the client has what the other one has.
func (x *trial) fallBack() {
	if x.at(0); x.ch.link.Streaming() || x.ch.link.Closed() {
		return
	}
	x.fail()
	if x.at(1); !x.inUse() {
		return
	}
	if !x.ch.link.Streaming() {
		x.open()
	}
	x.talk()
	x.at(1)
	for l := range x.way.locators_ {
		stays := x.way.authorities && x.said[l] == KindDoesNotExist // each authority moves by itself, and not because of what was said
		if w, want := x.watches[l], x.world.of(x.way, l); w != nil && want.isThere() && w.value == checkUnsaid && !stays {
			x.Fail("the watch of %s has nothing, though the second server has %s", x.way.locators_[l].text, x.describe(want))
		}
	}
}

// fail has an attempt to reach a server fail.
func (x *trial) fail() {
	x.step("fail")
	x.ch.ended(transport.ErrNoAnswer)
	x.pump()
}

// step adds what happens at a server to the steps.
func (x *trial) step(text string) {
	if x.way.fallback {
		text = transcriptServers[x.index] + ": " + text
	}
	x.steps.add(text)
}

// compare checks that each watch has what the server has, and reports whether one has what is not there.
func (x *trial) compare(fail bool) (more bool) {
	check := func(l int, has, want checkValue, failed bool) {
		switch text := x.way.locators_[l].text; {
		case want.isThere() && has != want:
			if fail {
				x.Fail("in the end the watch of %s has %s, not %s", text, x.describe(has), x.describe(want))
			}
		case want.isThere() && failed && !x.saidNothing():
			x.Fail("in the end the watch of %s has an error beside %s", text, x.describe(has))
		case !want.isThere() && has != checkUnsaid && !(x.way.keeps && failed):
			more = true
		case want.content() == checkFaulty && !failed:
			x.Fail("in the end the watch of %s has not heard that its resource is invalid", text)
		}
	}
	for l, w := range x.watches {
		if x.way.lower && w != nil {
			x.at(l)
		}
		switch {
		case w == nil:
		case x.way.locators_[l].collection:
			for i := range x.way.things {
				check(l, w.members[i], x.world.member(x.way, l, i), false)
			}
		default:
			check(l, w.value, x.world.of(x.way, l), w.failed)
		}
	}
	x.at(0)
	return more
}

// saidNothing reports whether the server has read what the client asks for, has nothing to say, and so is unreachable for all
// that the client knows.
func (x *trial) saidNothing() bool { return x.lastRead == nil && x.ch.link.Streaming() }

func (x *trial) describe(v checkValue) string {
	if v < checkFirst {
		return "nothing"
	}
	return x.way.things[v.item()].text + "=" + x.way.text(v.item(), v.content())
}

func (x *trial) breakOff() {
	x.step("break")
	x.ch.ended(transport.ErrNoAnswer)
	x.lose()
	x.pump()
}

func (x *trial) open() {
	x.step("open")
	x.ch.opened()
	x.pump()
}
