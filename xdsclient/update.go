package xdsclient

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// A response takes this way, from its bytes to the watchers:
//
//	receive         decodes the envelope, and stops at a repetition (repeats.go)
//	offers.go       finds which variant each subscription prefers
//	resources.go    goes through the resources: reads the parameters,
//	recipients.go   finds the subscriptions and collections that each one is for,
//	                and whether the client has its bytes already,
//	decode.go       decodes new resources, without the lock,
//	apply.go        and has the subscriptions accept or reject it
//	absence.go      applies errors, removals, and omissions of a full state
//	finish          moves authorities between servers, counts, and answers with an ACK or a NACK
//
// From apply.go and absence.go it goes on to the cache entry (resource.go, collection.go), and from
// there to the watchers (watch.go).

// receive works on a response, whose bytes it does not keep unless they are more than transport.MaxPooled, and reports
// whether it is ACKed. The next response is not read before done is closed; done is nil if the response says nothing
// new. An error means that the server does not speak the protocol, and ends the stream.
func (ch *managementServer) receive(message []byte) (accepted bool, done <-chan struct{}, err error) {
	resp, err := ch.dialect.Decode(message)
	if err != nil {
		return false, nil, err
	}
	if n := len(resp.Nonce); n > bounds.Nonce {
		return false, nil, fmt.Errorf("a response has a nonce of %d bytes, which every reply would have to repeat; the limit is %d", n, bounds.Nonce)
	}
	hash := resp.Hash(ch.client.seed)
	if ts, err := ch.answerAgain(resp, hash); ts != nil {
		ch.client.attached.received(ch, ts.typ, &ts.last) // only changed on this goroutine
		return ts.last.nack == "", nil, err
	}
	u := ch.beginUpdate(resp, hash, len(message))
	if u == nil {
		return false, nil, nil
	}
	u.compareOffers()
	if err := u.applyResources(); err != nil {
		return false, nil, err
	}
	ch.client.attached.received(ch, u.types.typ, &u.outcome)
	u.applyAbsence()
	return u.finish()
}

// update is the work on one response. The lock is held to recognize unchanged resources and to
// apply decoded ones, and not while resources are decoded.
type update struct {
	ch    *managementServer
	types *typeState
	resp  *wire.Response
	size  int // of the response, in bytes
	// number is the number of the response: the channel counts them.
	number uint64
	// stamp marks the resources in the response.
	stamp      stamp
	parameters parameterReader
	decoder    resourceDecoder

	// found are the subscriptions, members of collections among them, that a resource or an error is for, until the next one.
	// collects says that a collection takes the resource.
	found    []*subscription
	collects bool
	// outranked says that the resource matches a subscription that takes a better one.
	outranked bool

	faults faultList
	// nameless counts the faulty resources and errors of an unknown name. Each may be for a
	// resource that seems to be missing.
	nameless int
	// failing are the collections for whose members the response has errors.
	failing []*subscription
	// answered are the collections that the response answered for.
	answered []*subscription
	// useful are the authorities that follow a server below, and for which the response has something of use.
	useful map[*authority]struct{}
	outcome
	// late says that a resource was for a subscription that began during the response.
	late bool
}

// beginUpdate starts to work on a response. It returns nil if the channel has closed, or nothing is subscribed to its type,
// as the client then has no decoder for it.
func (ch *managementServer) beginUpdate(resp *wire.Response, hash uint64, size int) *update {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	ch.answered(resp)
	if ch.link.Closed() {
		return nil
	}
	ts := ch.typeStateOf(resp.TypeURL)
	if ts == nil {
		ch.restored()
		ch.client.stats.Ignored++
		if name := bounds.Text(resp.TypeURL, bounds.ErrorText); ch.ignored != name {
			ch.ignored = name
			ch.client.warningf("xDS management server %s sends responses for type %s, which nothing is subscribed to", ch.server, name)
		}
		return nil
	}
	ch.responses++
	ch.delivery = newDelivery()
	ch.expiry.stop()
	ts.countResponse()
	ts.repetition = repetition{hash: hash, settled: true}
	return &update{
		ch: ch, types: ts, resp: resp, size: size, number: ch.responses, stamp: stampNow(resp.Version),
		decoder: resourceDecoder{types: ts, server: ts.channel.server, size: size},
	}
}

// each calls f, under the lock, with each element of seq.
func each[T any](c *XDSClient, seq iter.Seq[T], f func(T)) {
	for x := range seq {
		c.mu.Lock()
		f(x)
		c.unlock()
	}
}

// finish decides between ACK and NACK, and releases the delivery.
func (u *update) finish() (accepted bool, done <-chan struct{}, err error) {
	u.ch.client.mu.Lock()
	defer u.ch.client.unlock()
	u.applyOmissions()
	u.answerEmpty()
	u.reportAnswered()
	u.ch.restored()
	for a := range u.useful {
		if slices.Contains(a.channels, u.ch) { // or its watches ended during the response
			a.moveUpTo(u.ch)
		}
	}
	unasked := u.unasked + u.unaskedErrors
	if unasked > 0 {
		u.ch.client.infof("xDS management server %s sent %d %s resources or errors that are not watched", u.ch.server, unasked, u.types.typ.Name)
	}
	invalid := u.invalid + u.invalidErrors
	if accepted = invalid == 0; accepted {
		u.types.version = echo(u.resp.Version)
	} else {
		u.nack = u.faults.text(u.types.typ, invalid, u.total+u.invalidErrors)
		u.ch.client.warningf("xDS response from %s, version %q: %s", u.ch.server, u.resp.Version, u.nack)
	}
	u.ch.client.stats.add(&u.outcome)
	u.types.last = u.outcome
	u.ch.delivery.release()
	u.ch.notify()
	if err = u.types.endResponse(u.number, ads.Reply{Nonce: u.resp.Nonce, Fault: u.nack}, unasked > 0 || u.late); err != nil {
		return accepted, nil, err
	}
	return accepted, u.ch.delivery.finished, nil
}

// faultList collects the errors of a response.
type faultList struct {
	omitted int
	b       strings.Builder
}

func (l *faultList) add(where string, err error) {
	text := bounds.Error(err, bounds.FaultText).Error()
	if l.b.Len()+len(where)+len(text) > bounds.NACKText {
		l.omitted++
		return
	}
	fmt.Fprintf(&l.b, "; %s: %s", where, text)
}

// text is the error_detail of the NACK of a response in which some resources are
// invalid.
func (l *faultList) text(t *ResourceType, invalid, total int) string {
	more := ""
	if l.omitted > 0 {
		more = fmt.Sprintf("; and %d more", l.omitted)
	}
	text := fmt.Sprintf("%d of %d %s resources are invalid%s%s", invalid, total, t.Name, l.b.String(), more)
	return strings.ToValidUTF8(text, "\uFFFD")
}
