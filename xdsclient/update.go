package xdsclient

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"strings"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// verdict says how a response was received, from worst to best.
type verdict int

const (
	// verdictNone: the server said nothing that was asked for.
	verdictNone verdict = iota
	// verdictRejected: the response was NACKed.
	verdictRejected
	// verdictAccepted: the response was ACKed.
	verdictAccepted
)

// handle works on a response. It returns the delivery that has to finish before
// the next response is read, or nil. An error means that the server does not
// speak the protocol. The message is not kept.
func (ch *serverChannel) handle(message []byte) (verdict, *delivery, error) {
	resp, err := ch.protocol.decode(message)
	if err != nil {
		return verdictNone, nil, err
	}
	u := ch.beginUpdate(resp)
	if u == nil {
		logger.Warningf("xDS management server %s sent a response for type %s, which nothing is subscribed to", ch.server, cut(resp.typeURL, maxServerText))
		return verdictNone, nil, nil
	}
	for r := range resp.resources {
		u.add(r)
	}
	u.flush()
	u.record()
	return u.finish(), u.delivery, nil
}

// beginUpdate starts to work on a response, or returns nil if nothing is
// subscribed to its type, so that the client cannot tell valid from invalid.
func (ch *serverChannel) beginUpdate(resp *response) *update {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	ch.answered()
	ts := ch.typeStateOf(resp.typeURL)
	if ts == nil {
		ch.client.stats.Ignored++
		return nil
	}
	ts.responses++
	ts.nonce = resp.nonce
	ch.delivery = newDelivery()
	ch.expiry.stop()
	return &update{ch: ch, types: ts, resp: resp, delivery: ch.delivery, number: ts.responses, stamp: stampNow(resp.version)}
}

// batchSize is how many resources are worked on at a time. It bounds the memory
// that a response needs, and how long the lock is held.
const batchSize = 256

// update is the work on one response. Only finding out what is unchanged, and
// taking over what is decoded, happens under the lock.
type update struct {
	ch       *serverChannel
	types    *typeState
	resp     *response
	delivery *delivery
	// number is that of the response among those for the type.
	number uint64
	// stamp is what the resources in the response are marked with.
	stamp  stamp
	batch  []item
	faults faultList
	// nameless counts the faulty resources whose name is not known. Any of them
	// may be one that seems to be missing.
	nameless int
	// panics counts the panics of the decoder.
	panics int

	total, unchanged, decoded, unasked int
}

// item is a resource of a response on its way into the cache.
type item struct {
	wireResource
	// hash is that of a bare resource's bytes.
	hash    uint64
	decoded string
	payload *payload
}

// add takes a resource.
func (u *update) add(r wireResource) {
	it := item{wireResource: r}
	if r.err == nil && len(r.name) == 0 {
		it.hash = maphash.Bytes(u.ch.client.seed, r.value)
	}
	u.batch = append(u.batch, it)
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
		if it := &u.batch[i]; !u.settled(it) {
			changed = append(changed, *it)
		}
	}
	return changed
}

// settled reports whether nothing is left to do for a resource.
func (u *update) settled(it *item) bool {
	var s *subscription
	if len(it.name) > 0 {
		if s = u.types.named(it.name); s == nil {
			u.unasked++
			return true
		}
	} else if s = u.types.find(it.value, it.hash, u.ch.server); s == nil {
		return false
	}
	known := s.known(it.value, u.ch.server)
	if it.err != nil || known == nil {
		return false
	}
	u.unchanged++
	if u.once(s) {
		u.received(s)
		u.ch.accept(s, known, u.stamp, u.delivery)
	}
	return true
}

// once notes that the response has a resource, and finds the second one of a name
// (Envoy, xDS protocol, "Duplicate Resource Names"). The first one counts.
func (u *update) once(s *subscription) bool {
	if s.seen == u.number {
		u.reject(s, errors.New("the response has more than one resource of this name"))
		return false
	}
	s.seen = u.number
	return true
}

// received notes that the server has the resource.
func (u *update) received(s *subscription) {
	if s.state == subscriptionMissing && s.resource.payload != nil {
		u.ch.client.infof("xDS %s %q is back on %s, which had deleted it; the deletion was ignored", u.types.typ.Name, s.resource.key.name, u.ch.server)
	}
	s.state = subscriptionReceived
}

// decode has the type decode a resource, without the lock.
func (u *update) decode(it *item) {
	if it.err != nil {
		return
	}
	u.decoded++
	defer func() {
		if p := recover(); p != nil {
			it.err = fmt.Errorf("the decoder panicked: %v", p)
			if u.panics++; u.panics == 1 { // of many, one shows where
				logger.Errorf("xDS %s: %v\n%s", u.types.typ.Name, it.err, debug.Stack())
			}
		}
	}()
	p := &payload{raw: bytes.Clone(it.value), server: u.ch.server}
	it.decoded, p.value, it.err = u.types.typ.Decode(
		&anypb.Any{TypeUrl: u.types.typ.TypeURL, Value: p.raw}, DecodeOptions{Server: u.ch.server})
	switch {
	case it.err != nil:
	case p.value == nil:
		it.err = errors.New("the decoder made nothing of it")
	case it.decoded == "" && len(it.name) == 0:
		it.err = errors.New("it has no name")
	case it.decoded != "" && len(it.name) > 0 && !sameName(it.decoded, string(it.name)):
		it.err = fmt.Errorf("it calls itself %q, other than its wrapper", it.decoded)
	default:
		it.payload = p
	}
}

// apply takes over what was decoded.
func (u *update) apply(items []item) {
	u.ch.client.mu.Lock()
	defer u.ch.client.unlock()
	for i := range items {
		it := &items[i]
		if len(it.name) == 0 {
			it.name = []byte(it.decoded)
		}
		s := u.types.named(it.name)
		switch {
		case len(it.name) == 0:
			u.nameless++
			u.faults.add(fmt.Sprintf("resources[%d]", it.index), it.err)
		case s == nil:
			u.unasked++
		case !u.once(s):
		case it.err != nil:
			u.reject(s, it.err)
		default:
			u.received(s)
			u.ch.index(u.types, s, it)
			u.ch.accept(s, it.payload, u.stamp, u.delivery)
		}
	}
}

// reject notes that a resource is invalid. Its last valid version stays in use,
// unless the server wants it otherwise (gRFC A88, "Handling Data Errors").
func (u *update) reject(s *subscription, err error) {
	u.received(s)
	u.faults.add(fmt.Sprintf("%s %q", u.types.typ.Name, s.resource.key.name), err)
	drop := u.ch.server.HasFeature(bootstrap.FeatureFailOnDataErrors)
	if drop {
		u.types.unindex(s)
	}
	u.ch.fail(s, setback{resourceRejected, u.fault(KindInvalid, s.resource, err), drop}, u.delivery)
}

// fault makes an Error that the response caused.
func (u *update) fault(kind ErrorKind, r *resource, err error) *Error {
	fault := u.ch.fault(kind, r, err)
	fault.stamp = u.stamp
	return fault
}

// record has the metrics count the resources. The lock is not held.
func (u *update) record() {
	invalid := u.faults.count
	u.ch.client.attached.received(u.ch.server.URI, u.types.typ, u.total-u.unasked-invalid, invalid)
}

// finish decides between ACK and NACK, and lets go of the delivery.
func (u *update) finish() verdict {
	u.ch.client.mu.Lock()
	defer u.ch.client.unlock()
	if u.resp.fullState && u.types.typ.FullStateInSotW && u.nameless == 0 {
		u.deleteOthers()
	}
	stats := &u.ch.client.stats
	stats.Responses++
	stats.Decoded += uint64(u.decoded)
	stats.Unchanged += uint64(u.unchanged)
	stats.Unasked += uint64(u.unasked)
	if u.unasked > 0 {
		u.ch.client.infof("xDS management server %s sent %d %s resources that nobody watches", u.ch.server, u.unasked, u.types.typ.Name)
	}
	u.types.unasked = u.unasked > 0
	result := verdictAccepted
	if u.faults.count == 0 {
		u.types.version, u.types.reply = u.resp.version, replyACK
	} else {
		stats.Rejected++
		u.types.reply, u.types.fault = replyNACK, u.faults.text(u.types.typ, u.total)
		u.ch.client.warningf("xDS response from %s, version %q: %s", u.ch.server, u.resp.version, u.types.fault)
		result = verdictRejected
	}
	u.delivery.release()
	u.ch.notify()
	return result
}

// deleteOthers deletes what the server had and has no more, as the response with
// its full state shows. What it never had may just be later than the response
// (Envoy, xDS protocol, "Deleting Resources" and "Knowing When a Requested
// Resource Does Not Exist").
func (u *update) deleteOthers() {
	for _, s := range u.types.subs {
		if s.state != subscriptionReceived || s.seen == u.number {
			continue
		}
		s.state = subscriptionMissing
		server := u.ch.server
		keep := server.HasFeature(bootstrap.FeatureIgnoreResourceDeletion) && !server.HasFeature(bootstrap.FeatureFailOnDataErrors)
		fault := u.fault(KindDoesNotExist, s.resource, errors.New("does not exist: the server deleted it"))
		if keep && s.resource.payload != nil {
			u.ch.client.warningf("%v; the deletion is ignored, as server_features has ignore_resource_deletion", fault)
		} else {
			u.ch.client.infof("%v", fault)
			u.types.unindex(s)
		}
		u.ch.fail(s, setback{resourceMissing, fault, !keep}, u.delivery)
	}
}

// maxFaultText bounds the text of a NACK. Servers commonly accept requests of 4
// MiB.
const maxFaultText = 256 << 10

// faultList collects the faults of a response.
type faultList struct {
	count   int
	omitted int
	b       strings.Builder
}

func (l *faultList) add(where string, err error) {
	l.count++
	text := cut(err.Error(), maxFaultText/4)
	if l.b.Len()+len(where)+len(text) > maxFaultText {
		l.omitted++
		return
	}
	fmt.Fprintf(&l.b, "; %s: %s", where, text)
}

// text is the error_detail of the NACK.
func (l *faultList) text(t *ResourceType, total int) string {
	more := ""
	if l.omitted > 0 {
		more = fmt.Sprintf("; and %d more", l.omitted)
	}
	text := fmt.Sprintf("%d of %d %s resources are invalid%s%s", l.count, total, t.Name, l.b.String(), more)
	return strings.ToValidUTF8(text, "\uFFFD")
}
