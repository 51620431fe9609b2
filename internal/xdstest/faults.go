package xdstest

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// Faults inject faults into the streams of a server. By default there are none. Messages are those of
// proto/dynxds/discovery/v3, which have the fields of xRFC TP2.
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
	onRequest       func(Request) error
	onResponse      func(uint64, *discoverypb.DiscoveryResponse) *discoverypb.DiscoveryResponse
	onDeltaResponse func(uint64, *discoverypb.DeltaDiscoveryResponse) *discoverypb.DeltaDiscoveryResponse
}

func newFaults() *Faults { return &Faults{streams: map[uint64]*stream{}} }

// begin registers a stream, or returns the error to refuse it with.
func (f *Faults) begin(wire grpc.ServerStream, recorder *Recorder) (*stream, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if refuse := f.switches.refuse; refuse != nil {
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

func (f *Faults) current() switches {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.switches
}

// RefuseStreams ends every new ADS stream with err before reading from it. nil, the default, accepts
// streams. Present streams are not affected.
func (f *Faults) RefuseStreams(err error) { f.set(func(s *switches) { s.refuse = err }) }

// BreakStreams ends every present ADS stream with err, stalled ones included. A nil err ends them with
// OK, as a server may.
func (f *Faults) BreakStreams(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.streams {
		s.breakWith(err)
	}
}

// StallSends withholds all responses until resume is called. The server continues to read.
func (f *Faults) StallSends() (resume func()) { return f.sends.shut() }

// StallReads withholds all requests until resume is called; they are not recorded either. The server
// continues to send.
func (f *Faults) StallReads() (resume func()) { return f.reads.shut() }

// OnRequest calls hook for every request after it was recorded and before the server reads it,
// one at a time per stream. Its error ends the stream. hook may block; Stop waits for it. nil removes
// the hook.
func (f *Faults) OnRequest(hook func(Request) error) {
	f.set(func(s *switches) { s.onRequest = hook })
}

// OnResponse calls hook for every SotW response of the server, and sends the result instead;
// nothing if it is nil. hook owns the message. nil removes the hook.
func (f *Faults) OnResponse(hook func(stream uint64, resp *discoverypb.DiscoveryResponse) *discoverypb.DiscoveryResponse) {
	f.set(func(s *switches) { s.onResponse = hook })
}

// OnDeltaResponse is OnResponse for delta responses.
func (f *Faults) OnDeltaResponse(hook func(stream uint64, resp *discoverypb.DeltaDiscoveryResponse) *discoverypb.DeltaDiscoveryResponse) {
	f.set(func(s *switches) { s.onDeltaResponse = hook })
}
