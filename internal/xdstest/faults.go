package xdstest

import (
	"errors"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// Faults are the switches of a Server. Without one thrown the control plane is package
// controlplane as it is. Messages are twins of the published ones, in
// proto/dynxds/discovery/v3, which have what xRFC TP2 adds.
type Faults struct {
	reads gate
	sends gate

	mu       sync.Mutex
	switches switches
	streams  map[uint64]*stream
	opened   uint64
}

// switches are the settings of Faults.
type switches struct {
	refuse          error
	refuseDelta     error
	dropStale       bool
	onRequest       func(Request) error
	onResponse      func(uint64, *discoverypb.DiscoveryResponse) *discoverypb.DiscoveryResponse
	onDeltaResponse func(uint64, *discoverypb.DeltaDiscoveryResponse) *discoverypb.DeltaDiscoveryResponse
}

func newFaults() *Faults { return &Faults{streams: map[uint64]*stream{}} }

// begin registers a stream, or returns the error to refuse it with.
func (f *Faults) begin(method string, wire grpc.ServerStream, recorder *Recorder) (*stream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	refuse := f.switches.refuse
	if refuse == nil && (method == deltaMethod || method == dpdsDeltaMethod) {
		refuse = f.switches.refuseDelta
	}
	if refuse != nil {
		if _, ok := status.FromError(refuse); !ok {
			return nil, status.Error(codes.Unavailable, refuse.Error())
		}
		return nil, refuse
	}
	f.opened++
	s := newStream(f, recorder, f.opened, wire)
	f.streams[s.id] = s
	return s, nil
}

func (f *Faults) end(s *stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.streams, s.id)
}

func (f *Faults) set(change func(*switches)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.switches)
}

func (f *Faults) thrown() switches {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.switches
}

// RefuseStreams ends every ADS stream that begins from now on with err, before
// anything is read from it. nil, the default, lets streams in. Streams that
// exist are not touched.
func (f *Faults) RefuseStreams(err error) { f.set(func(s *switches) { s.refuse = err }) }

// RefuseDelta ends every delta ADS stream that begins from now on with
// UNIMPLEMENTED, as a server does that knows only SotW. RefuseDelta(false), the
// default, lets them in. Streams that exist are not touched. For a server that
// never offers delta see [controlplane.WithoutDelta].
func (f *Faults) RefuseDelta(on bool) {
	f.set(func(s *switches) {
		s.refuseDelta = nil
		if on {
			s.refuseDelta = status.Error(codes.Unimplemented, "this server refuses delta")
		}
	})
}

// DropStaleRequests has the server take no notice of a delta request with a nonce that is
// not of the last response for its type, nor of a NACK, as Istio does: neither of the
// answer, nor of the subscriptions that come with it. Such requests are recorded.
// DropStaleRequests(false), the default, ends that.
func (f *Faults) DropStaleRequests(on bool) { f.set(func(s *switches) { s.dropStale = on }) }

// BreakStreams ends every present ADS stream with err, also those that are
// stalled. A nil err ends them with OK, as a server may.
func (f *Faults) BreakStreams(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.streams {
		s.breakWith(err)
	}
}

// StallSends lets no response out until resume is called. The control plane
// goes on reading.
func (f *Faults) StallSends() (resume func()) { return f.sends.shut() }

// StallReads lets no request in until resume is called: requests are not
// recorded either. The control plane goes on sending.
func (f *Faults) StallReads() (resume func()) { return f.reads.shut() }

// OnRequest calls hook for every request after it was recorded and before the
// control plane sees it, one at a time per stream. An error ends the stream
// with it. hook may block; Stop waits for it. nil removes the hook.
func (f *Faults) OnRequest(hook func(Request) error) {
	f.set(func(s *switches) { s.onRequest = hook })
}

// OnResponse calls hook for every SotW response of the control plane. What it
// returns is sent instead, nothing for nil. hook owns the message. nil removes
// the hook.
func (f *Faults) OnResponse(hook func(stream uint64, resp *discoverypb.DiscoveryResponse) *discoverypb.DiscoveryResponse) {
	f.set(func(s *switches) { s.onResponse = hook })
}

// OnDeltaResponse is OnResponse for delta responses.
func (f *Faults) OnDeltaResponse(hook func(stream uint64, resp *discoverypb.DeltaDiscoveryResponse) *discoverypb.DeltaDiscoveryResponse) {
	f.set(func(s *switches) { s.onDeltaResponse = hook })
}

// Send sends a hand-made message, usually a *DiscoveryResponse or a
// *DeltaDiscoveryResponse as the stream's protocol has it, on the newest ADS
// stream, whatever switches are thrown. The client's answer to it is recorded; the
// control plane sees only its subscription. To be told apart, the response needs a nonce
// that the control plane does not use: any word does.
func (f *Faults) Send(m proto.Message) error {
	f.mu.Lock()
	var newest *stream
	for _, s := range f.streams {
		if newest == nil || s.id > newest.id {
			newest = s
		}
	}
	f.mu.Unlock()
	if newest == nil {
		return errors.New("there is no ADS stream to send on")
	}
	return newest.inject(m)
}
