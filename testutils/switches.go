package testutils

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// RefuseStreams ends every ADS stream that begins from now on with err, before
// anything is read from it. nil, the default, lets streams in. Streams that
// exist are not touched.
func (f *FakeServer) RefuseStreams(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = err
}

// RefuseDelta ends every delta ADS stream that begins from now on with
// UNIMPLEMENTED, as a server does that knows only SotW. RefuseDelta(false), the
// default, lets them in. Streams that exist are not touched. For a server that
// never offers delta see [controlplane.Options].
func (f *FakeServer) RefuseDelta(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuseDelta = nil
	if on {
		f.refuseDelta = status.Error(codes.Unimplemented, "this fake server refuses delta")
	}
}

// DropStaleRequests has the server take no notice of a delta request with a nonce that is
// not of the last response for its type, nor of a NACK, as Istio does: neither of the
// answer, nor of the subscriptions that come with it. Such requests are recorded.
// DropStaleRequests(false), the default, ends that.
func (f *FakeServer) DropStaleRequests(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropStale = on
}

func (f *FakeServer) dropsStale() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dropStale
}

// BreakStreams ends every present ADS stream with err, also those that are
// stalled. A nil err ends them with OK, as a server may.
func (f *FakeServer) BreakStreams(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.streams {
		s.breakWith(err)
	}
}

// StallSends lets no response out until resume is called. The control plane
// goes on reading.
func (f *FakeServer) StallSends() (resume func()) { return f.sends.shut() }

// StallReads lets no request in until resume is called: requests are not
// recorded either. The control plane goes on sending.
func (f *FakeServer) StallReads() (resume func()) { return f.reads.shut() }

// OnRequest calls hook for every request after it was recorded and before the
// control plane sees it, one at a time per stream. An error ends the stream
// with it. hook may block; Stop waits for it. nil removes the hook.
func (f *FakeServer) OnRequest(hook func(Request) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onRequest = hook
}

// OnResponse calls hook for every SotW response of the control plane. What it
// returns is sent instead, nothing for nil. hook owns the message. nil removes
// the hook.
func (f *FakeServer) OnResponse(hook func(stream uint64, resp *discoverypb.DiscoveryResponse) *discoverypb.DiscoveryResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onResponse = hook
}

// OnDeltaResponse is OnResponse for delta responses.
func (f *FakeServer) OnDeltaResponse(hook func(stream uint64, resp *discoverypb.DeltaDiscoveryResponse) *discoverypb.DeltaDiscoveryResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onDeltaResponse = hook
}

func (f *FakeServer) requestHook() func(Request) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.onRequest
}

func (f *FakeServer) responseHook() func(uint64, *discoverypb.DiscoveryResponse) *discoverypb.DiscoveryResponse {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.onResponse
}

func (f *FakeServer) deltaResponseHook() func(uint64, *discoverypb.DeltaDiscoveryResponse) *discoverypb.DeltaDiscoveryResponse {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.onDeltaResponse
}
