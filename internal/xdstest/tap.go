package xdstest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

const (
	adsMethods  = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
	dpdsMethods = "/envoy.service.dynamic_parameters.v3.DynamicParametersDiscoveryService/"

	// maxRecorded bounds the requests that a Tap keeps by default; soak tests run for long.
	maxRecorded = 100_000
)

// Tap stands between an xDS server and its clients: it keeps the requests that clients sent, counts their streams, and injects
// errors, of which there are none by default. It applies to ADS and DPDS streams, and outlives the server. Messages are those of
// proto/dynxds/discovery/v3, which have the fields of xRFC TP2; of a server that has Envoy's own, it only keeps the requests. It is
// safe for concurrent use.
type Tap struct {
	state State
	// limit bounds requests, and next is the one at which Wait continues.
	limit, next int
	requests    []Request
	// attempts counts all streams; streams are the present ones.
	attempts uint64
	streams  map[uint64]*stream

	refuse               error
	sendsHeld, readsHeld bool
	onRequest            func(Request) error
	onResponse           ResponseHook
}

// NewTap returns a Tap. Its Intercept must be an interceptor of the gRPC server.
func NewTap() *Tap { return &Tap{limit: maxRecorded, streams: map[uint64]*stream{}} }

// Intercept is a grpc.StreamServerInterceptor. It runs the handler of a stream until BreakStreams. gRPC
// ends the stream when Intercept returns, which ends the handler too; whoever stops the server waits for it.
func (t *Tap) Intercept(srv any, wire grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	method := info.FullMethod
	if !strings.HasPrefix(method, adsMethods) && !strings.HasPrefix(method, dpdsMethods) {
		return handler(srv, wire)
	}
	s := &stream{ServerStream: wire, tap: t, broken: make(chan error, 1)}
	var refuse error
	t.state.Change(func() {
		t.attempts++
		if s.id, refuse = t.attempts, t.refuse; refuse == nil {
			t.streams[s.id] = s
		}
	})
	if refuse != nil {
		if _, ok := status.FromError(refuse); !ok {
			return status.Error(codes.Unavailable, refuse.Error())
		}
		return refuse
	}
	defer t.state.Change(func() { delete(t.streams, s.id) })
	ended := make(chan error, 1)
	go func() { ended <- handler(srv, s) }()
	select {
	case err := <-ended:
		return err
	case err := <-s.broken:
		return err
	}
}

// stream is a proxy between the wire and the server on one ADS stream.
type stream struct {
	grpc.ServerStream
	tap *Tap
	id  uint64
	// broken receives the error that ends the stream.
	broken chan error
}

// pass waits while held is true.
func (s *stream) pass(held *bool) error {
	return s.tap.state.Wait(s.Context(), func() bool { return !*held })
}

// RecvMsg is called by the server to read a request, which is recorded.
func (s *stream) RecvMsg(m any) error {
	if err := s.pass(&s.tap.readsHeld); err != nil {
		return err
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if err := s.pass(&s.tap.readsHeld); err != nil { // requests may be held since RecvMsg waited
		return err
	}
	recorded, message := Request{Stream: s.id}, m.(proto.Message).ProtoReflect()
	if message.Descriptor().Name() == "DeltaDiscoveryRequest" {
		recorded.read(message, new(discoverypb.DeltaDiscoveryRequest))
	} else {
		recorded.read(message, new(discoverypb.DiscoveryRequest))
	}
	if hook := s.tap.add(recorded); hook != nil {
		return hook(recorded)
	}
	return nil
}

// SendMsg is called by the server to send a response.
func (s *stream) SendMsg(m any) error {
	if err := s.pass(&s.tap.sendsHeld); err != nil {
		return err
	}
	var hook ResponseHook
	s.tap.state.Look(func() { hook = s.tap.onResponse })
	if hook != nil {
		sotw, delta := new(discoverypb.DiscoveryResponse), new(discoverypb.DeltaDiscoveryResponse)
		switch resp := m.(type) {
		case *discoverypb.DiscoveryResponse:
			sotw = proto.CloneOf(resp)
			m = sotw
		case *discoverypb.DeltaDiscoveryResponse:
			delta = proto.CloneOf(resp)
			m = delta
		}
		if !hook(sotw, delta) {
			return nil
		}
	}
	return s.ServerStream.SendMsg(m)
}

// RefuseStreams ends every new ADS stream with err before reading from it. nil, the default, accepts
// streams. Present streams are not affected.
func (t *Tap) RefuseStreams(err error) { t.state.Change(func() { t.refuse = err }) }

// BreakStreams ends every present ADS stream with err, stalled ones included. A nil err ends them with
// OK, as a server may.
func (t *Tap) BreakStreams(err error) {
	t.state.Look(func() {
		for _, s := range t.streams {
			select {
			case s.broken <- err:
			default: // it ends already
			}
		}
	})
}

// StallSends withholds all responses until resume is called. The server continues to read.
func (t *Tap) StallSends() (resume func()) { return t.hold(&t.sendsHeld) }

// StallReads withholds all requests until resume is called; they are not recorded either. The server
// continues to send.
func (t *Tap) StallReads() (resume func()) { return t.hold(&t.readsHeld) }

func (t *Tap) hold(what *bool) (resume func()) {
	t.state.Change(func() { *what = true })
	return func() { t.state.Change(func() { *what = false }) }
}

// OnRequest calls hook for every request after it was recorded and before the server reads it,
// one at a time per stream. Its error ends the stream. hook may block; Stop waits for it. nil removes
// the hook.
func (t *Tap) OnRequest(hook func(Request) error) { t.state.Change(func() { t.onRequest = hook }) }

// ResponseHook may change a response of either protocol; the other message is empty. It returns false if nothing is to be sent.
type ResponseHook func(sotw *discoverypb.DiscoveryResponse, delta *discoverypb.DeltaDiscoveryResponse) (send bool)

// OnResponse calls hook for every response of the server; it owns the messages. nil removes the hook.
func (t *Tap) OnResponse(hook ResponseHook) { t.state.Change(func() { t.onResponse = hook }) }

// add records a request, and returns the hook to call.
func (t *Tap) add(req Request) (hook func(Request) error) {
	t.state.Change(func() {
		if len(t.requests) >= t.limit {
			drop := len(t.requests) - t.limit/2
			t.requests, t.next = slices.Delete(t.requests, 0, drop), max(0, t.next-drop)
		}
		t.requests, hook = append(t.requests, req), t.onRequest
	})
	return hook
}

// Keep bounds the requests that are kept for Requests and Wait, at least 2: the newest n/2 are always
// kept. It is for tests that measure memory.
func (t *Tap) Keep(n int) { t.state.Change(func() { t.limit = n }) }

// Requests returns all requests so far, or at least the newest 50,000.
func (t *Tap) Requests() (all []Request) {
	t.state.Look(func() { all = slices.Clone(t.requests) })
	return all
}

// Skip makes the next Wait ignore all requests so far.
func (t *Tap) Skip() { t.state.Look(func() { t.next = len(t.requests) }) }

// Wait returns the next request that matches. It looks at each request once: it continues after the one
// that the last successful Wait returned. The error lists the last requests.
func (t *Tap) Wait(ctx context.Context, match Match) (found Request, err error) {
	err = t.state.Wait(ctx, func() bool {
		i := slices.IndexFunc(t.requests[t.next:], match)
		if i < 0 {
			return false
		}
		found, t.next = t.requests[t.next+i], t.next+i+1
		return true
	})
	if err != nil {
		all := t.Requests()
		return Request{}, fmt.Errorf("no matching request: %w; the last ones were %v", err, all[max(0, len(all)-20):])
	}
	return found, nil
}

// MustWait is Wait that fails the test instead of returning an error.
func (t *Tap) MustWait(ctx context.Context, tb testing.TB, match Match) Request {
	tb.Helper()
	req, err := t.Wait(ctx, match)
	NoError(tb, err)
	return req
}

// WaitOpen returns when exactly n ADS streams are open.
func (t *Tap) WaitOpen(ctx context.Context, n int) error {
	var open int
	if err := t.state.Wait(ctx, func() bool { open = len(t.streams); return open == n }); err != nil {
		return fmt.Errorf("%d streams are open, want %d: %w", open, n, err)
	}
	return nil
}

// WaitAttempts returns when at least n ADS streams have begun, refused ones included.
func (t *Tap) WaitAttempts(ctx context.Context, n int) error {
	if err := t.state.Wait(ctx, func() bool { return int(t.attempts) >= n }); err != nil {
		return fmt.Errorf("%d streams have begun, want %d: %w", t.Attempts(), n, err)
	}
	return nil
}

// Attempts returns the number of ADS streams so far, refused ones included.
func (t *Tap) Attempts() (n int) {
	t.state.Look(func() { n = int(t.attempts) })
	return n
}
