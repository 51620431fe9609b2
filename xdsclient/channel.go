package xdsclient

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// managementServer is a client's side of one management server: an ADS stream, and the subscriptions
// on it. It exists while a resource of the server is watched. Guarded by
// XDSClient.mu.
type managementServer struct {
	client *XDSClient
	server *bootstrap.Server
	share  *serverShare
	// ctx ends when the channel closes. wake is for the writer.
	ctx    context.Context
	cancel context.CancelFunc
	wake   transport.Signal
	// nextAttempt is when the next attempt to open a stream begins, nil while one is under way or a stream is open.
	nextAttempt atomic.Pointer[time.Time]
	// dialect changes between two streams only, so the stream reads it without the lock.
	dialect wire.Dialect
	link    ads.Link

	// target is that of the authorities with several servers, for which the channel is, or "".
	target string
	// authorities are those that ask the server for something.
	authorities map[*authority]struct{}
	// types are in the order of their first subscription, which is that of their
	// dependencies.
	types []*typeState
	// delivery is the response that watchers are still busy with, or nil. Until they are
	// done, changes of subscriptions are held back, so that all changes that the response caused
	// go out together.
	delivery *delivery
	expiry   expiry
	// responses and finds number the responses, and the searches for the recipients of a
	// resource.
	responses, finds uint64
	// ignored is the type of the last response that was ignored.
	ignored string
	// withoutDelta says that the server has just answered that it does not implement delta, and saidWithoutDelta that a warning said so.
	withoutDelta, saidWithoutDelta bool
	// saidSoon: there was a warning that the server ends streams soon (ads.EndSoon).
	saidSoon bool
}

func newManagementServer(c *XDSClient, server *bootstrap.Server, target string) *managementServer {
	ch := &managementServer{
		client:  c,
		server:  server,
		share:   c.shareOf(server),
		wake:    transport.NewSignal(),
		dialect: promised(server),
		target:  target,

		authorities: make(map[*authority]struct{}),
	}
	ch.ctx, ch.cancel = context.WithCancel(c.ctx)
	ch.expiry.timeout = c.options.ResourceTimeout
	if server.HasFeature(bootstrap.FeatureResourceTimerIsTransientError) {
		ch.expiry.timeout *= 2
	}
	ch.expiry.fire = ch.expire
	return ch
}

// typeState returns the state of a type, which it makes unless there is one.
func (ch *managementServer) typeState(t *ResourceType) *typeState {
	ts := ch.typeStateOf(t.TypeURL)
	if ts == nil {
		ts = newTypeState(t, ch)
		ch.types = append(ch.types, ts)
	}
	return ts
}

// typeStateOf returns the state of a type by its URL, or nil.
func (ch *managementServer) typeStateOf(typeURL string) *typeState {
	for _, ts := range ch.types {
		if ts.typ.TypeURL == typeURL {
			return ts
		}
	}
	return nil
}

// subscribe asks the server for a resource. If the server still has the subscription of an
// earlier watch, that one goes on.
func (ch *managementServer) subscribe(r *resource) {
	ts := ch.typeState(r.key.typ)
	s := ts.subs.get(r.key)
	if s == nil {
		s = ts.add(r)
		s.adoptAnswer()
		s.refuseUnserved()
	}
	ts.disturb()
	ch.notify()
}

// subscriptionTo returns the subscription to a resource, or nil.
func (ch *managementServer) subscriptionTo(r *resource) *subscription {
	return ch.typeState(r.key.typ).subs.get(r.key)
}

// unsubscribe notes that a resource is no longer watched from this server. A subscription that
// the server knows of stays until a request has ended it. The channel closes when no authority uses it.
func (ch *managementServer) unsubscribe(r *resource) {
	if len(ch.authorities) == 0 {
		ch.close()
		return
	}
	ts := ch.typeState(r.key.typ)
	s := ts.subs.get(r.key)
	if ts.touch(s); s.State == ads.Unsent || !ch.link.Streaming() {
		ts.drop(s)
	}
	if !ch.link.Streaming() {
		ts.forgetVersion()
	}
	ch.notify()
}

// close ends all subscriptions, the stream and the connection. The goroutines end soon after; a
// watch that starts before that gets a new channel.
func (ch *managementServer) close() {
	for _, ts := range ch.types {
		for s := range ts.subs.all() {
			ts.drop(s)
		}
	}
	ch.types = nil
	clear(ch.authorities)
	delete(ch.client.channels, channelKey{ch.server.Key(), ch.target})
	ch.link.Close()
	ch.expiry.stop()
	ch.expiry.clear()
	ch.cancel()
}

// reinstate gives the cache entry of a resource, which is watched from this server from now on, the server's last
// answer, also one from earlier watches or from another subscription to the name. Members leave that the server
// does not have, and the resource timer starts over if it expired before.
func (ch *managementServer) reinstate(r *resource, d *delivery) {
	s := ch.subscriptionTo(r)
	s.types.disturb()
	for m := range s.members.all() {
		m.admit()
		m.resource.adopt(m, d)
	}
	r.adopt(s, d)
	s.cullMembers(d)
	if r.cached() || s.step(ads.WatchedAgain) == ads.Ignore || !ch.link.Streaming() {
		return
	}
	s.step(ads.Listed)
	ch.expiry.expect(s)
}

// expire is called by the timer of the resources that the server did not send in time.
func (ch *managementServer) expire() {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	ch.expiry.disarm()
	if !ch.expiry.running() {
		return
	}
	ch.expiry.next = 0
	for _, ts := range ch.types {
		for _, s := range ch.expiry.overdue(ts) {
			s.expire(ch.expiry.timeout)
		}
	}
	ch.expiry.arm()
}

// fault makes an Error about a resource that is from the server, or about the server.
func (ch *managementServer) fault(kind ErrorKind, r *resource, err error) *Error {
	e := ch.client.fault(kind, r.key.typ, wire.Locator{Name: r.key.name, Constraints: r.watchedEntry().constraints}, err)
	e.Server = ch.server.URI
	e.Transient = kind == KindUnreachable ||
		kind == KindTimeout && ch.server.HasFeature(bootstrap.FeatureResourceTimerIsTransientError)
	return e
}
