package xdsclient

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// Receive implements ads.Handler: it works on a response. An error means that the server does not
// speak the protocol.
func (ch *serverChannel) Receive(message []byte) (ads.Verdict, <-chan struct{}, error) {
	resp, err := ch.protocol.Decode(message)
	if err != nil {
		return ads.VerdictNone, nil, err
	}
	hash := ch.identify(resp)
	if v, ok, err := ch.repeated(resp, hash); ok {
		return v, nil, err
	}
	u := ch.beginUpdate(resp, hash)
	if u == nil {
		return ads.VerdictNone, nil, nil
	}
	u.weigh()
	for r := range resp.Resources {
		u.add(r)
	}
	u.flush()
	u.record()
	inBatches(u, resp.Errors, u.report)
	inBatches(u, resp.Removed, u.remove)
	if u.types.Dialect.Locators() {
		inBatches(u, resp.RemovedLocators, u.remove)
	}
	return u.finish()
}

// beginUpdate starts to work on a response, or returns nil if nothing is
// subscribed to its type, so that the client cannot tell valid from invalid.
func (ch *serverChannel) beginUpdate(resp *wire.Response, hash uint64) *update {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	ch.answered()
	ts := ch.typeStateOf(resp.TypeURL)
	if ts == nil {
		ch.client.stats.Ignored++
		if name := faults.Shorten(resp.TypeURL, transport.MaxServerText); ch.ignored != name {
			ch.ignored = name
			ch.client.warningf("xDS management server %s sends responses for type %s, which nothing is subscribed to", ch.server, name)
		}
		return nil
	}
	ch.responses++
	ch.delivery = newDelivery()
	ch.expiry.stop()
	ts.BeginResponse(resp, hash)
	return &update{ch: ch, types: ts, resp: resp, delivery: ch.delivery, number: ch.responses, stamp: stampNow(resp.Version)}
}

// batchSize is how many resources are worked on at a time. It bounds the memory
// that a response needs, and how long the lock is held.
const batchSize = 32

// update is the work on one response. Only finding out what is unchanged, and
// taking over what is decoded, happens under the lock.
type update struct {
	ch       *serverChannel
	types    *typeState
	resp     *wire.Response
	delivery *delivery
	// number is that of the response among those of the channel.
	number uint64
	// stamp is what the resources in the response are marked with.
	stamp  stamp
	batch  []item
	faults faultList
	// found and entering are what find returned last. outranked says that the
	// resource would be for somebody if there were no better one.
	found     []*subscription
	entering  []newcomer
	outranked bool
	// before is the last bare resource that was found unchanged.
	before *subscription
	// memo has the parameters that were read, by their bytes.
	memo map[string]dynparam.Parameters
	// nameless counts what is faulty and of an unknown name. Any of it may be
	// of a resource that seems to be missing.
	nameless int
	// panics counts the panics of the decoder.
	panics int
	// contradicted is the first resource of which the response says that it is
	// there and that it is not, and contradictions how many there are.
	contradicted   string
	contradictions int
	// collections are those that the response answered for.
	collections []*subscription
	// lifting are those that the response has something for that is of use to watches
	// which stand by.
	lifting map[*resource]struct{}
	// failing are the collections for whose members the response has errors.
	failing []*subscription

	tally
	// metered is what the metrics were told of.
	metered meterReading
	// late says that something was for a subscription that began too late for it.
	late bool
}

// item is a resource of a response on its way into the cache.
type item struct {
	wire.Resource
	// bare says that the resource's name is in its bytes. Their hash is made when it
	// is needed.
	bare bool
	hash uint64
	// parameters are those of the wrapper. unreadable says that they cannot be read.
	parameters dynparam.Parameters
	unreadable bool
	// published says that the resource is in the published form of xRFC TP2. It is taken
	// for one without parameters, which is for everybody who watches its name.
	published bool
	decoded   string
	payload   *payload
	// invalid says that the resource was counted among the invalid ones.
	invalid bool
}

// inBatches calls f, under the lock, with what seq yields.
func inBatches[T any](u *update, seq iter.Seq[T], f func(T)) {
	n := 0
	for x := range seq {
		if n == 0 {
			u.ch.client.mu.Lock()
		}
		f(x)
		if n++; n == batchSize {
			u.ch.client.unlock()
			n = 0
		}
	}
	if n > 0 {
		u.ch.client.unlock()
	}
}

// add takes a resource.
func (u *update) add(r wire.Resource) {
	u.batch = append(u.batch, item{Resource: r, bare: len(r.Name) == 0})
	if len(u.batch) == batchSize {
		u.flush()
	}
}

// flush works on the resources that were taken.
func (u *update) flush() {
	u.total += len(u.batch)
	changed := u.match()
	for i := range changed {
		u.decode(&changed[i])
	}
	u.apply(changed)
	clear(u.batch)
	u.batch = u.batch[:0]
}

// match puts aside the resources that are unchanged, and those that nobody
// watches as far as their name is known, and returns the others.
func (u *update) match() []item {
	u.ch.client.mu.Lock()
	defer u.ch.client.unlock()
	changed := u.batch[:0]
	for i := range u.batch {
		it := &u.batch[i]
		u.readParameters(it)
		if !u.settled(it) {
			changed = append(changed, *it)
		}
	}
	return changed
}

// accept takes over a resource that is known, or was decoded to p, or is known to
// another subscription as p.
func (u *update) accept(s *subscription, it *item, p *payload) {
	if !u.once(s, it) {
		return
	}
	if known := s.known(it.Value, u.ch.server); known != nil {
		p = known
	}
	if it.payload != nil {
		u.types.index(s, it.hash)
	}
	u.settleChoice(s)
	s.judge(it.parameters)
	u.received(s, it)
	u.ch.accept(s, p, u.taken(s, it), u.delivery)
	u.lift(s.resource)
}

// heartbeat notes that the server still has a version. If that is not the version
// that the client has from it, there is nothing to do: the server does not send it.
func (u *update) heartbeat(found []*subscription, it *item) {
	u.unchanged++
	for _, s := range found {
		if u.once(s, it) && s.payload != nil && s.taken.version == string(it.Version) && s.taken.parameters.Equal(it.parameters) {
			u.received(s, it)
			u.ch.accept(s, s.payload, u.taken(s, it), u.delivery)
			u.lift(s.resource)
		}
	}
}

// taken returns the mark of a resource that the response has: with its own version
// if the server gives it one.
func (u *update) taken(s *subscription, it *item) stamp {
	taken := u.stamp
	taken.parameters = it.parameters
	switch {
	case !u.types.Dialect.Incremental() && len(it.Version) == 0:
	case s.taken.version == string(it.Version):
		taken.version = s.taken.version
	default:
		taken.version = string(it.Version)
	}
	return taken
}

// once notes that the response has a resource, and finds the second one of a name
// (Envoy, xDS protocol, "Duplicate Resource Names"). The first one counts.
func (u *update) once(s *subscription, it *item) bool {
	if s.Seen == u.number {
		s.State = ads.Received
		u.reject(s, it, errors.New("the response has more than one resource of this name"))
		return false
	}
	s.Seen = u.number
	return true
}

// received notes that the server has the resource. A member stands for its
// collection, unless it is faulty and those who watch the collection follow another
// server: as with other resources, that is no reason for this one to take over.
func (u *update) received(s *subscription, it *item) {
	u.types.NoteRead(s)
	s.State = ads.Received
	switch c := s.resource.collection; {
	case c == nil:
		if len(it.Name) > 0 && (len(u.types.own) > 0 || s.resource.key.name != string(it.Name)) {
			u.types.setOwn(s, xdsname.Canonical(string(it.Name)))
		}
	case it.Err == nil || !c.aside():
		u.answer(u.types.subs.get(c.key))
	}
}

// decode has the type decode a resource, without the lock.
func (u *update) decode(it *item) {
	if it.Err != nil {
		return
	}
	u.decoded++
	defer func() {
		if p := recover(); p != nil {
			it.Err = fmt.Errorf("the decoder panicked: %v", p)
			if u.panics++; u.panics == 1 { // of many, one shows where
				logger.Errorf("xDS %s: %v\n%s", u.types.typ.Name, it.Err, debug.Stack())
			}
		}
	}()
	p := &payload{raw: bytes.Clone(it.Value), server: u.ch.server}
	it.decoded, p.value, it.Err = u.types.typ.Decode(
		&anypb.Any{TypeUrl: u.types.typ.TypeURL, Value: p.raw}, DecodeOptions{Server: u.ch.server, Loads: u.ch.loads, Last: u.last})
	switch {
	case it.Err != nil:
	case p.value == nil:
		it.Err = errors.New("the decoder made nothing of it")
	case it.decoded == "" && len(it.Name) == 0:
		it.Err = errors.New("it has no name")
	case it.decoded != "" && len(it.Name) > 0 && !sameName(it.decoded, string(it.Name)):
		it.Err = fmt.Errorf("it calls itself %q, other than its wrapper", it.decoded)
	default:
		it.payload = p
	}
}

// last returns the value that the client has of a resource from the server, or nil.
func (u *update) last(name string) any {
	u.ch.client.mu.Lock()
	defer u.ch.client.unlock()
	for s := range u.types.named([]byte(name)).siblings() {
		if s.payload != nil && s.payload.server == u.ch.server {
			return s.payload.value
		}
	}
	return nil
}

// apply takes over what was decoded.
func (u *update) apply(items []item) {
	u.ch.client.mu.Lock()
	defer u.ch.client.unlock()
	for i := range items {
		it := &items[i]
		if len(it.Name) == 0 {
			it.Name = []byte(it.decoded)
		}
		if len(it.Name) == 0 {
			u.nameless++
			u.blame(it, fmt.Sprintf("resources[%d]", it.Index), it.Err)
			continue
		}
		u.applyTo(it)
	}
}

// applyTo takes over what was decoded for those that asked for it.
func (u *update) applyTo(it *item) {
	u.find(it)
	if u.nobody() {
		if it.unreadable {
			u.nameless++
			u.blame(it, u.where(it), it.Err)
			return
		}
		u.drop(it)
	}
	u.enterAll(it)
	for _, s := range u.found {
		switch {
		case it.Err == nil:
			u.accept(s, it, it.payload)
		case u.once(s, it):
			u.received(s, it)
			u.reject(s, it, it.Err)
		}
	}
}

// where says which resource a fault is of.
func (u *update) where(it *item) string { return fmt.Sprintf("%s %q", u.types.typ.Name, it.Name) }

// blame notes a fault of a resource.
func (u *update) blame(it *item, where string, err error) {
	u.faults.add(where, err)
	if !it.invalid { // one that goes by several names counts once
		it.invalid = true
		u.invalid++
	}
}

// reject notes that a resource is invalid.
func (u *update) reject(s *subscription, it *item, err error) {
	where := fmt.Sprintf("%s %q", u.types.typ.Name, s.resource.key.name)
	if u.types.Dialect.Locators() && !it.parameters.IsZero() {
		where += " " + it.parameters.String()
	}
	u.blame(it, where, err)
	u.dataError(s, resourceRejected, u.fault(KindInvalid, s.resource, err))
}

// dataError notes that the server's last word on a resource is an error in the
// data. The last valid version stays in use, unless the server wants it otherwise
// (gRFC A88, "Handling Data Errors").
func (u *update) dataError(s *subscription, state resourceState, fault *Error) {
	drop := u.ch.server.HasFeature(bootstrap.FeatureFailOnDataErrors)
	if drop {
		u.types.unindex(s)
	}
	u.ch.fail(s, lastError{state, fault, drop}, u.delivery)
	if fault.final() {
		u.lift(s.resource)
	}
}

// lift notes that the response has something that is of use to those who stand by at a
// resource, or at the collection of the member. They follow this server when all that is
// in the response is known.
func (u *update) lift(r *resource) {
	if r.collection != nil {
		r = r.collection
	}
	if r.standby == 0 {
		return
	}
	if u.lifting == nil {
		u.lifting = make(map[*resource]struct{})
	}
	u.lifting[r] = struct{}{}
}

// fault makes an Error that the response caused.
func (u *update) fault(kind ErrorKind, r *resource, err error) *Error {
	fault := u.ch.fault(kind, r, err)
	fault.stamp = u.stamp
	return fault
}

// record has the metrics count the resources, but not what the server says in place
// of resources. The lock is not held.
func (u *update) record() {
	u.metered = meterReading{u.total - u.unasked - u.passed - u.invalid, u.invalid, u.unmatched}
	u.ch.client.attached.received(u.ch.server.URI, u.types.typ, u.metered)
}

// finish decides between ACK and NACK, and lets go of the delivery.
func (u *update) finish() (ads.Verdict, <-chan struct{}, error) {
	u.ch.client.mu.Lock()
	defer u.ch.client.unlock()
	if u.resp.FullState && u.types.typ.FullStateInSotW && u.nameless == 0 {
		u.deleteOthers()
	}
	u.answerFailing()
	for _, s := range u.collections {
		u.ch.cull(s, u.delivery)
	}
	for r := range u.lifting {
		r.lift(u.delivery)
	}
	if u.before != nil {
		u.before.after = nil // it would keep what was removed
	}
	u.count()
	result, answer := ads.VerdictAccepted, ads.Reply{Nonce: u.resp.Nonce}
	if u.invalid == 0 {
		u.types.Version = u.resp.Version
	} else {
		u.ch.client.stats.Rejected++
		answer.Fault = u.faults.text(u.types.typ, u.invalid, u.total)
		u.ch.client.warningf("xDS response from %s, version %q: %s", u.ch.server, faults.Shorten(u.resp.Version, transport.MaxServerText), answer.Fault)
		result = ads.VerdictRejected
	}
	u.types.last = outcome{answer.Fault, u.tally, u.metered}
	u.delivery.release()
	u.ch.stream.Notify()
	if err := u.types.EndResponse(u.number, answer, u.unasked > 0 || u.late); err != nil {
		return result, nil, err
	}
	return result, u.delivery.finished, nil
}

// count adds the response to the statistics.
func (u *update) count() {
	stats := &u.ch.client.stats
	stats.Responses++
	stats.Decoded += uint64(u.decoded)
	stats.Unchanged += uint64(u.unchanged)
	stats.Unasked += uint64(u.unasked)
	stats.Unmatched += uint64(u.unmatched)
	stats.Ambiguous += uint64(u.ambiguous)
	stats.ServerErrors += uint64(u.serverErrors)
	if u.unasked > 0 {
		u.ch.client.infof("xDS management server %s sent %d %s resources or errors that nobody watches", u.ch.server, u.unasked, u.types.typ.Name)
	}
	if u.contradictions > 0 {
		u.ch.client.warningf("xDS management server %s sent %d %s resources and said in the same response that it does not, first %q; the resources count",
			u.ch.server, u.contradictions, u.types.typ.Name, u.contradicted)
	}
}
