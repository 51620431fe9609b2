package xdsclient

import (
	"context"
	"fmt"
	"time"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// linkState says how a channel stands with its server.
type linkState int

const (
	// linkConnecting: there is no stream, and none failed since the server last
	// answered.
	linkConnecting linkState = iota
	// linkOpen: a stream is open, and the server has not answered on it.
	linkOpen
	// linkAnswered: a stream is open, and the server answered on it.
	linkAnswered
	// linkDown: the last attempt failed without an answer.
	linkDown
	// linkClosed: nothing is watched from the server any more.
	linkClosed
)

// serverChannel is the way to one management server: a connection, one ADS stream
// at a time, and what is subscribed to on it. It exists while a resource of the
// server is watched.
type serverChannel struct {
	client *XDSClient
	server *bootstrap.Server
	cancel context.CancelFunc
	// wake tells the writer that a request may be due. It has room for one, so
	// that a wake-up is never lost.
	wake chan struct{}

	// protocol is changed between two streams only, under XDSClient.mu.
	protocol protocol

	// What follows is guarded by XDSClient.mu.

	authorities map[*authority]struct{}
	// watched counts the subscriptions that are watched.
	watched int
	state   linkState
	// failure is why the server counts as unreachable. It is nil again when the
	// server answers.
	failure error
	// types are the types in the order of their first subscription, which is
	// that of their dependencies.
	types []*typeState
	// delivery is the response that watchers are still busy with, or nil. Until
	// they are done, changes of subscriptions are held back, so that those that
	// the response caused go out together.
	delivery *delivery
	expiry   expiry
	// responses and finds number the responses, and the searches for what
	// something in a response is for.
	responses, finds uint64
}

func newServerChannel(c *XDSClient, server *bootstrap.Server) *serverChannel {
	ch := &serverChannel{
		client:      c,
		server:      server,
		protocol:    c.protocolFor(server),
		wake:        make(chan struct{}, 1),
		authorities: make(map[*authority]struct{}),
	}
	ch.expiry.timeout = c.options.resourceTimeout
	if server.HasFeature(bootstrap.FeatureResourceTimerIsTransientError) {
		ch.expiry.timeout *= 2
	}
	ch.expiry.fire = ch.expire
	return ch
}

// notify wakes the writer.
func (ch *serverChannel) notify() {
	select {
	case ch.wake <- struct{}{}:
	default:
	}
}

func (ch *serverChannel) typeState(t *ResourceType) *typeState {
	for _, ts := range ch.types {
		if ts.typ == t {
			return ts
		}
	}
	ts := newTypeState(t, ch.server, ch.protocol.incremental())
	ch.types = append(ch.types, ts)
	return ts
}

// typeStateOf returns the state of a type by its URL, or nil.
func (ch *serverChannel) typeStateOf(typeURL string) *typeState {
	for _, ts := range ch.types {
		if ts.typ.TypeURL == typeURL {
			return ts
		}
	}
	return nil
}

// subscribe asks the server for a resource that is about to be watched. If the
// server still has the subscription of an earlier watch, that one goes on.
func (ch *serverChannel) subscribe(r *resource) {
	ch.watched++
	ts := ch.typeState(r.key.typ)
	if ts.subs[r.key.name] != nil {
		return
	}
	if s := ts.add(r); !ts.served(s) {
		ch.unserved(s)
	}
	if ch.failure != nil {
		r.linkDown(ch.unreachable(r))
	}
	ch.notify()
}

// unsubscribe notes that a resource is no longer watched. If the server knows of
// the subscription, it stays until the server is told. With the last one the
// channel closes.
func (ch *serverChannel) unsubscribe(r *resource) {
	if ch.watched--; ch.watched == 0 {
		ch.close()
		return
	}
	ts := ch.typeState(r.key.typ)
	s := ts.subs[r.key.name]
	if ts.touch(s); s.state == subscriptionUnsent || !ch.streaming() {
		ts.drop(s)
	}
	if !ch.streaming() {
		ts.forgetVersion()
	}
	ch.notify()
}

// streaming reports whether a stream is open.
func (ch *serverChannel) streaming() bool {
	return ch.state == linkOpen || ch.state == linkAnswered
}

// close ends all subscriptions, the stream and the connection. The goroutines end
// soon after; a watch that starts before that gets a new channel.
func (ch *serverChannel) close() {
	for _, ts := range ch.types {
		for _, s := range ts.subs {
			ts.drop(s)
		}
	}
	delete(ch.client.channels, ch.server.Key())
	ch.state = linkClosed
	ch.expiry.stop()
	ch.expiry.clear()
	ch.cancel()
}

// run keeps a stream open until the context ends. It waits longer with every
// attempt that brought nothing. The wait counts from the start of the attempt: a
// stream that ends after a long life is replaced at once, one that ends right
// after its first answer is not.
func (ch *serverChannel) run(ctx context.Context) {
	tries := retries{config: ch.client.options.backoff}
	var conn connection
	defer conn.close()
	for ctx.Err() == nil {
		started := time.Now()
		verdict, err := ch.attempt(ctx, &conn)
		if ctx.Err() != nil {
			return
		}
		if ch.refused(err) {
			continue
		}
		ch.ended(err)
		if verdict == verdictAccepted {
			tries.reset()
		}
		conn.pause(ctx, tries.next()-time.Since(started))
	}
}

// attempt opens a stream and stays with it until it ends. The verdict is the best
// that a response on it got.
func (ch *serverChannel) attempt(ctx context.Context, conn *connection) (verdict, error) {
	if err := conn.open(ch.server, &ch.client.options); err != nil {
		return verdictNone, err
	}
	return ch.stream(ctx, conn.cc)
}

// opened notes that a stream is open. Everything is subscribed to anew, with the
// last accepted versions. Types that nobody watches are forgotten.
func (ch *serverChannel) opened() {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	ch.client.stats.Streams++
	if ch.state == linkClosed {
		return
	}
	ch.state = linkOpen
	kept := ch.types[:0]
	for _, ts := range ch.types {
		if ts.begin(); len(ts.subs) > 0 {
			kept = append(kept, ts)
		}
	}
	clear(ch.types[len(kept):])
	ch.types = kept
	if len(kept) > 0 {
		kept[0].probe = ch.failure != nil
	}
	ch.expiry.start()
	ch.notify()
}

// answered notes that the server answered on the stream, which ends every
// connectivity error.
func (ch *serverChannel) answered() {
	if ch.state == linkClosed {
		return
	}
	ch.state = linkAnswered
	if ch.failure == nil {
		return
	}
	ch.failure = nil
	ch.client.infof("xDS management server %s answers again", ch.server)
	for a := range ch.authorities {
		a.serverUp()
	}
}

// reset forgets what is of a stream that ended.
func (ch *serverChannel) reset() {
	ch.delivery = nil
	ch.expiry.stop()
	ch.expiry.clear()
	for _, ts := range ch.types {
		ts.begin()
	}
}

// ended notes that a stream ended, or could not be opened. It counts as a
// connectivity error only if the server did not answer on it (gRFC A57, "Handling
// ADS Stream Termination").
func (ch *serverChannel) ended(err error) {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	if ch.state == linkClosed {
		return
	}
	ch.reset()
	if ch.state == linkAnswered {
		ch.state = linkConnecting
		ch.client.infof("xDS stream to %s ended, will be opened again: %v", ch.server, reason(err))
		return
	}
	ch.state = linkDown
	failure := reason(err)
	if ch.failure != nil && ch.failure.Error() == failure.Error() {
		return
	}
	ch.failure = failure
	ch.client.warningf("xDS management server %s is unreachable: %v", ch.server, failure)
	for a := range ch.authorities {
		a.serverDown(ch)
	}
}

// expire declares the resources overdue that the server did not send in time.
func (ch *serverChannel) expire() {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	ch.expiry.armed = false
	if !ch.expiry.running() {
		return
	}
	for x, ok := ch.expiry.next(); ok; x, ok = ch.expiry.next() {
		ch.overdue(x.types, x.sub)
	}
	ch.expiry.arm()
}

// overdue declares one resource overdue (gRFC A88, "Changes to Resource Timer
// Behavior"). A server of an incremental variant that has answered for the type on
// this stream says what does not exist, so that its silence only means that it is
// late. It must not go unnoticed all the same: there are servers that say so only
// of what they had before, and clients are "encouraged to use a timeout" (Envoy,
// xDS protocol, "Knowing When a Requested Resource Does Not Exist").
func (ch *serverChannel) overdue(ts *typeState, s *subscription) {
	s.state = subscriptionMissing
	kind, state := KindDoesNotExist, resourceMissing
	text := "does not exist: the server did not send it within %v"
	if ts.incremental && ts.answered || ch.server.HasFeature(bootstrap.FeatureResourceTimerIsTransientError) {
		kind, state = KindTimeout, resourceTimedOut
		text = "the server did not send it within %v"
	}
	fault := ch.fault(kind, s.resource, fmt.Errorf(text, ch.expiry.timeout))
	ch.client.warningf("%v", fault)
	s.resource.fail(state, fault, false, nil)
}

// fault makes an Error about a resource.
func (ch *serverChannel) fault(kind ErrorKind, r *resource, err error) *Error {
	return &Error{
		Kind:     kind,
		Code:     kind.code(),
		TypeName: r.key.typ.Name,
		Resource: r.key.name,
		Server:   ch.server.URI,
		NodeID:   ch.client.config.Node.GetId(),
		Err:      err,
	}
}

// unreachable makes the Error for a resource while the server is unreachable.
func (ch *serverChannel) unreachable(r *resource) *Error {
	return ch.fault(KindUnreachable, r, ch.failure)
}
