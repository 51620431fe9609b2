package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/internal/access"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// stream is the state of one client's stream that both protocols share: the client, its
// subscriptions, and which of them are due.
type stream struct {
	origin
	// opts are those of the server. ctx is for their functions.
	opts    *Options
	ctx     context.Context
	usage   *streamUsage
	replies replies
	last    lastOverview
	// onlyType is the type of a DPDS stream, whose requests may omit it; empty for ADS.
	onlyType string
	// fetches says that the stream is one request, whose response has to be complete.
	fetches bool
	// grant is what Options.Access gives the client. Only the reader uses it.
	grant access.Grant
	// waits are those of the server, which are notified of each request that was processed.
	waits *sync.Map
	// nonces is used only by push, which runs once at a time, and so is computing, the next of what is to be computed.
	nonces    nonces
	computing *computed
	// wake holds a token while something may be due.
	wake chan struct{}

	// failing is done once the stream is to end with an error, its cause. fail makes it so, unless the stream is to end with another one. No
	// further response is sent, whether or not the client reads the last one.
	failing context.Context
	fail    context.CancelCauseFunc

	// changing lets one change of the subscriptions run at a time: a request's, constrain or reauthorize. It is locked before
	// the turn of the stream among those of its peer, and that before Store.mu.
	changing sync.Mutex
	// yields says that the change, which is large, gives other streams of the peer their turns. changing guards it.
	yields bool
	// request is the present one. Only the reader uses it.
	request carriedOut

	// recheck calls Options.Identify again.
	recheck recheck

	// released is set, under Store.mu, when the stream has ended; the reader may still be
	// processing a last request.
	released bool

	mu sync.Mutex
	// greeted says that the node and the store are set, and over that the stream has ended, though its reader may be processing a last
	// request.
	greeted, over bool
	// store is the server's until the stream is greeted, then that of storeFor; it does not change
	// once there are subscriptions.
	store *Store
	// reportsAbsence says that the client can be told that a resource does not exist: over SotW only with Options.NotFoundErrors.
	reportsAbsence bool
	// node is set before there are subscriptions, and does not change.
	node *corepb.Node
	// implicit are the constraints by the node, for the types that the client does not subscribe to by locators, or for all
	// with Options.BindLocators.
	implicit dynparam.ByType
	subs     map[string]*subscription
	// retention has the deletions that were not sent to the client yet; it and dueSubs are guarded as the items of subscriptions are.
	retention retention
	// dueSubs are the subscriptions of which something is due, each once.
	dueSubs []*subscription
}

// origin is what is known of a stream when it begins.
type origin struct {
	id       uint64
	protocol Protocol
	began    time.Time
	peer     *peer.Peer
}

func newStream(ctx context.Context, id uint64, protocol Protocol, store *Store, opts *Options, u *streamUsage) *stream {
	from, _ := peer.FromContext(ctx)
	failing, fail := context.WithCancelCause(context.Background())
	return &stream{
		origin: origin{id: id, protocol: protocol, began: time.Now(), peer: from},
		opts:   opts, ctx: ctx, store: store, reportsAbsence: protocol == ProtocolDelta || opts.NotFoundErrors, usage: u, replies: replies{usage: u},
		nonces: nonces{prefix: fmt.Sprintf("%08x", rand.Uint32())}, wake: make(chan struct{}, 1), failing: failing, fail: fail,
		subs: map[string]*subscription{}, retention: newRetention(),
	}
}

// greet stores the node of the first request. Nodes of later requests are ignored.
func (s *stream) greet(node *corepb.Node) error {
	if _, greeted := s.greeting(); greeted {
		return nil
	}
	if err := s.usage.take(ofNodes, access.NodeWeight(node)); err != nil {
		return err
	}
	if err := s.stepAside(s.opts.Identify != nil); err != nil {
		return err
	}
	return onOtherStack(func() error {
		if err := s.move(node); err != nil {
			return err
		}
		s.constrain()
		return nil
	})
}

// move stores the node, and the store for it.
func (s *stream) move(node *corepb.Node) error {
	var err error
	if s.grant, node, err = s.recheck.begin(s.ctx, s.opts.Identify, s.opts.Access, node, s.fail); err != nil {
		return err
	}
	to := s.store
	if s.opts.StoreFor != nil {
		if to, err = s.opts.StoreFor(s.ctx, node); err != nil {
			return status.Convert(err).Err()
		}
		to = cmp.Or(to, s.store)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return errClosed
	}
	s.greeted, s.node, s.store = true, node, to
	return nil
}

// end returns the store that the stream is to be released from.
func (s *stream) end() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return s.store
}

// failed returns the error of fail, or nil.
func (s *stream) failed() error { return context.Cause(s.failing) }

// subscription returns the stream's subscription to the type of a request with these locators, which is
// made if there was none. Only the reader calls it.
func (s *stream) subscription(typeURL string, locators []*discoverypb.ResourceLocator) (*subscription, error) {
	switch {
	case s.onlyType != "" && typeURL != "" && typeURL != s.onlyType:
		return nil, status.Errorf(codes.InvalidArgument, "type_url: %q on a DPDS stream, which has %q only; use the aggregated discovery service", typeURL, s.onlyType)
	case s.onlyType != "":
		typeURL = s.onlyType
	case typeURL == "":
		return nil, status.Error(codes.InvalidArgument, "type_url: empty; on an aggregated stream every request has to name its type")
	}
	s.mu.Lock()
	sub := s.subs[typeURL]
	s.mu.Unlock()
	if sub != nil {
		return sub, sub.checkAddressing(locators)
	}
	// A type counts as a name: otherwise a client could invent any number of types.
	if err := s.usage.use(1); err != nil {
		return nil, err
	}
	if err := s.usage.take(ofNames, int64(len(typeURL)/nameBytes)); err != nil {
		return nil, err
	}
	sub = &subscription{stream: s, typeURL: typeURL, mode: modeOf(s.protocol, s.fetches || hasWildcard(typeURL)), addressing: addressingOf(locators)}
	sub.wraps = s.wraps(sub)
	return sub, s.store.begin(sub)
}

// begin adds a subscription, without names, to its stream and its table.
func (s *Store) begin(sub *subscription) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := sub.stream
	if st.released {
		return errClosed
	}
	sub.table = s.table(sub.typeURL)
	sub.number = sub.table.index.subs.add(sub)
	st.mu.Lock()
	defer st.mu.Unlock()
	sub.implicit = st.implicitFor(sub.typeURL, sub.addressing)
	st.subs[sub.typeURL] = sub
	return nil
}

// resubscribe applies a request's change of a subscription, if the client may have what it asks for.
func (s *stream) resubscribe(sub *subscription, asked map[topic]locator, compare func() subscriptionChange) error {
	return onOtherStack(func() error {
		defer s.changing.Unlock()
		if !s.changing.TryLock() {
			s.leaveTurn()
			s.changing.Lock()
			s.enter()
		}
		s.yields = s.request.large
		s.bind(sub, asked)
		if err := s.stepAside(s.opts.Authorize != nil); err != nil {
			return err
		}
		if err := s.authorize(sub, asked); err != nil {
			return err
		}
		s.enter()
		change := compare()
		if len(change.added)+len(change.repeated)+len(change.removed) == 0 && change.interest == sub.interest {
			return nil
		}
		if err := s.usage.use(len(change.added) - len(change.removed)); err != nil {
			return err
		}
		return s.store.resubscribe(sub, change)
	})
}

// onOtherStack calls f on another goroutine and waits: the stack of the reader, which is there as long
// as its stream, is to stay small: once grown from 4 kB to 8 kB, it does not shrink while the reader waits.
func onOtherStack(f func() error) error {
	done := make(chan error, 1)
	go func() {
		defer close(done)
		done <- f()
	}()
	return <-done
}

// protocolHandler is a protocol, SotW or delta, on one stream.
type protocolHandler[Req, Resp any] interface {
	// receive returns the next request, if it is within the limits.
	receive(grpc.ServerStream) (*Req, error)
	// handleRequest processes one request. Calls are sequential.
	handleRequest(*Req) error
	// number gives a batch its version, and what else its responses have from one state of the store. The caller holds Store.mu for
	// reading, and stream.mu.
	number(*batch)
	// response moves something from a batch that is not empty into the next response.
	response(*batch) *Resp
}

// push sends everything that is due, from one state of the store. Calls are sequential, but concurrent with handleRequest. send
// blocks while the client does not read.
func push[Req, Resp any](s *stream, v protocolHandler[Req, Resp], send func(*Resp) error) error {
	var all []batch
	s.withStore(func() {
		all = s.collect()
		for i := range all {
			v.number(&all[i])
		}
	})
	for i := range all {
		for n := &all[i]; !n.empty(); {
			s.usage.peer.enter()
			resp := v.response(n)
			s.usage.peer.leave()
			if n.empty() {
				*n = batch{} // the client may not read for long
			}
			if err := send(resp); err != nil {
				return err
			}
		}
	}
	return nil
}

// exchange runs one stream until the client ends it, v or the stream fails, or stop is closed. A client that sends no more requests is
// sent what is due.
//
// The gRPC handler's goroutine waits, a second one reads. A third one exists while there is
// something to send: a blocked Send must not keep the handler from returning, which is the only
// way to end the stream.
func exchange[Req, Resp any](
	s *stream,
	v protocolHandler[Req, Resp],
	wire grpc.BidiStreamingServer[Req, Resp],
	group *sync.WaitGroup,
	stop <-chan struct{},
) error {
	received := make(chan error, 1)
	group.Go(func() { received <- receiveAll(s, wire, v) })
	wake, pushed := s.wake, make(chan error, 1)
	var over, last bool // the client sends no more requests; what is being sent is the last
	for {
		select {
		case err := <-received:
			if err != nil {
				return err
			}
			over = true
			s.signal()
		case <-stop:
			return errClosed
		case <-s.failing.Done():
			return s.failed()
		case <-s.retention.timer.C:
			s.endRetention()
		case <-wake:
			last = over
			group.Go(func() {
				if err := s.reserve(wire.Context()); err != nil {
					pushed <- err
					return
				}
				err := push(s, v, func(r *Resp) error {
					if err := s.failed(); err != nil {
						return err // the rest was composed before
					}
					s.last.changes.Add(1)
					return s.replies.send(wire, any(r).(reply))
				})
				s.replies.unreserve(0)
				pushed <- err
			})
			wake = nil
		case err := <-pushed:
			s.last.changes.Add(1)
			if err != nil || last {
				return err
			}
			wake = s.wake
		}
	}
}

func receiveAll[Req, Resp any](s *stream, wire grpc.ServerStream, v protocolHandler[Req, Resp]) error {
	for {
		req, err := v.receive(wire)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			s.leave()
			return err
		}
		s.replies.answered(any(req).(interface{ GetResponseNonce() string }).GetResponseNonce())
		if err := v.handleRequest(req); err != nil {
			return err
		}
		s.noteChange()
	}
}

// nonces numbers the responses of one stream. They are unique across streams: a client may repeat
// the nonce of an earlier stream.
type nonces struct {
	prefix string
	last   uint64
}

func (n *nonces) next() string {
	n.last++
	return fmt.Sprintf("%s-%d", n.prefix, n.last)
}

// wraps reports whether the resources of a subscription are sent with their names, versions and TTLs: over delta, over SotW if the client has asked for it, and
// always for their parameters (TP2, "API Changes"), or for the name and cache control of a DPDS resource.
func (s *stream) wraps(sub *subscription) bool {
	return s.protocol == ProtocolDelta || sub.addressing == byLocators || sub.typeURL == dynparam.MapTypeURL ||
		s.opts.WrapResources && slices.Contains(s.node.GetClientFeatures(), wrapFeature)
}
