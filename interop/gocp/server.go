package gocp

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/config"
	sotwv3 "github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/loopback"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// NodeID is the node that the Server has a snapshot for, the id of Bootstrap.
const NodeID = "interop-node"

// Mode is how go-control-plane treats a request that does not name every
// resource of its type.
type Mode int

const (
	// AnyNames answers with the resources that are named.
	AnyNames Mode = iota
	// ADSMode answers only a request that names every resource of its type in
	// the snapshot, in the order of the types that the protocol asks for. It
	// drops the watch of a request that it does not answer: the client gets
	// nothing of that type until its next request.
	ADSMode
	// Delta is AnyNames with a bootstrap that asks for the incremental variant.
	Delta
)

// Modes is every Mode, for table tests.
var Modes = []Mode{AnyNames, ADSMode, Delta}

func (m Mode) String() string {
	switch m {
	case ADSMode:
		return "ADS mode"
	case Delta:
		return "delta"
	default:
		return "any names"
	}
}

// Request is a request of a client, as the server saw it.
type Request struct {
	// Stream numbers the ADS streams of a Server, over restarts.
	Stream int64
	Node   *corepb.Node
	// TypeURL is the type of the resources, Names the names of those that the
	// client is now subscribed to, sorted.
	TypeURL string
	Names   []string
	// Version is version_info, empty in delta, Nonce response_nonce.
	Version, Nonce string
	// Err is error_detail: the request is a NACK if it is not nil.
	Err *statuspb.Status
}

// Server is go-control-plane's xDS server on a loopback port. It is safe for
// concurrent use.
type Server struct {
	mode   Mode
	server *loopback.Server

	mu      sync.Mutex
	cache   cachev3.SnapshotCache
	version int // of the snapshot that was set last
	streams int64

	record   xdstest.State
	requests []Request // guarded by record
}

// Start starts a Server that has no snapshot yet, so that it leaves every
// request open. It is stopped when the test ends; the test fails if a client
// has rejected a response by then.
func Start(t testing.TB, mode Mode) *Server { return StartOver(t, mode, nil) }

// StartOver is Start for a Server behind a link, if link is not nil.
func StartOver(t testing.TB, mode Mode, link *testutils.Link) *Server {
	t.Helper()
	s := &Server{mode: mode}
	s.forget()
	var wrap func(net.Listener) net.Listener
	if link != nil {
		wrap = link.Listener
	}
	var err error
	s.server, err = loopback.StartServer(s.run, wrap)
	xdstest.NoError(t, err)
	t.Cleanup(func() {
		s.server.Close()
		if link != nil {
			link.Wait()
		}
		for _, r := range s.Requests() {
			if r.Err != nil {
				t.Errorf("the client rejected %s: %v", r.TypeURL, r.Err.GetMessage())
			}
		}
		if t.Failed() {
			for _, r := range s.Requests() {
				t.Log(r)
			}
		}
	})
	return s
}

// Addr returns "127.0.0.1:port". It stays the same across restarts.
func (s *Server) Addr() string { return s.server.Addr() }

// Bootstrap returns a bootstrap for this server and the node it serves.
func (s *Server) Bootstrap(opts ...testutils.BootstrapOption) []byte {
	if s.mode == Delta {
		opts = append([]testutils.BootstrapOption{testutils.ServerFeatures("delta")}, opts...)
	}
	return testutils.Bootstrap(NodeID, s.Addr(), opts...)
}

// Stop breaks every stream and stops listening, as a crash does.
func (s *Server) Stop() { s.server.Stop() }

// Restart stops the server and starts a new one without its state on the same address. From
// its first request on it serves the resources, under the version that was used last, as a
// server does that counts its versions from 1. Given none, it leaves every request open
// until Set.
func (s *Server) Restart(t testing.TB, resources ...proto.Message) {
	t.Helper()
	s.Stop()
	s.forget()
	if len(resources) > 0 {
		s.publish(t, resources)
	}
	xdstest.NoError(t, s.server.Restart())
}

// forget has the next run begin without a snapshot.
func (s *Server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cache = cachev3.NewSnapshotCache(s.mode == ADSMode, cachev3.IDHash{}, nil)
}

// run returns what is served from a start until a stop, which waits for the handlers.
func (s *Server) run() loopback.Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	ctx, cancel := context.WithCancel(context.Background())
	discoverypb.RegisterAggregatedDiscoveryServiceServer(server, serverv3.NewServer(ctx, s.cache, s.callbacks(), s.mode.options()...))
	return loopback.Run{GRPC: server, EndStreams: cancel}
}

func (m Mode) options() []config.XDSOption {
	if m == ADSMode {
		return []config.XDSOption{sotwv3.WithOrderedADS()}
	}
	return nil
}

// Set makes the resources the snapshot that the node gets, under a version that
// was not used before, also not before a restart.
func (s *Server) Set(t testing.TB, resources ...proto.Message) {
	t.Helper()
	s.mu.Lock()
	s.version++
	s.mu.Unlock()
	s.publish(t, resources)
}

// publish makes the resources the snapshot under the version of the time.
func (s *Server) publish(t testing.TB, resources []proto.Message) {
	t.Helper()
	byType := map[resource.Type][]types.Resource{}
	for _, r := range resources {
		typeURL := resource.APITypePrefix + string(r.ProtoReflect().Descriptor().FullName())
		byType[typeURL] = append(byType[typeURL], r)
	}
	s.mu.Lock()
	version, cache := fmt.Sprint(s.version), s.cache
	s.mu.Unlock()
	snapshot, err := cachev3.NewSnapshot(version, byType)
	xdstest.NoError(t, err)
	xdstest.NoError(t, cache.SetSnapshot(t.Context(), NodeID, snapshot))
}

// Requests returns what clients have asked for since Start, in order.
func (s *Server) Requests() (all []Request) {
	s.record.Change(func() { all = slices.Clone(s.requests) })
	return all
}

// Streams returns how many ADS streams have begun since Start.
func (s *Server) Streams() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams
}

// Wait returns when done is true of what clients have asked for since Start. It fails the test if that does not
// happen in time.
func (s *Server) Wait(t testing.TB, what string, done func([]Request) bool) {
	t.Helper()
	s.record.Await(t, what, func() bool { return done(s.requests) })
}

// String is one line of a failed test's report.
func (r Request) String() string {
	return fmt.Sprintf("{stream %d %s %v version %q nonce %q error %q}", r.Stream, r.TypeURL, r.Names, r.Version, r.Nonce, r.Err.GetMessage())
}

// callbacks returns what records the requests of one run.
func (s *Server) callbacks() serverv3.Callbacks {
	r := &recording{server: s, number: map[int64]int64{}, subscribed: map[subscription]map[string]bool{}}
	return serverv3.CallbackFuncs{
		StreamOpenFunc:      r.open,
		DeltaStreamOpenFunc: r.open,
		StreamRequestFunc: func(id int64, req *discoverypb.DiscoveryRequest) error {
			s.add(Request{
				Stream: r.stream(id), Node: req.GetNode(), TypeURL: req.GetTypeUrl(), Names: slices.Sorted(slices.Values(req.GetResourceNames())),
				Version: req.GetVersionInfo(), Nonce: req.GetResponseNonce(), Err: req.GetErrorDetail(),
			})
			return nil
		},
		StreamDeltaRequestFunc: func(id int64, req *discoverypb.DeltaDiscoveryRequest) error {
			s.add(Request{
				Stream: r.stream(id), Node: req.GetNode(), TypeURL: req.GetTypeUrl(), Names: r.subscribe(id, req),
				Nonce: req.GetResponseNonce(), Err: req.GetErrorDetail(),
			})
			return nil
		},
	}
}

// recording is what is known of the streams of one run. go-control-plane numbers
// those from 1 in each run; they are renumbered here.
type recording struct {
	server *Server

	mu         sync.Mutex
	number     map[int64]int64
	subscribed map[subscription]map[string]bool
}

// subscription is what a delta stream is subscribed to of a type.
type subscription struct {
	stream  int64
	typeURL string
}

func (r *recording) open(_ context.Context, id int64, _ string) error {
	r.server.mu.Lock()
	r.server.streams++
	n := r.server.streams
	r.server.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number[id] = n
	return nil
}

func (r *recording) stream(id int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.number[id]
}

// subscribe returns what the stream is subscribed to after the request.
func (r *recording) subscribe(id int64, req *discoverypb.DeltaDiscoveryRequest) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := subscription{id, req.GetTypeUrl()}
	names := r.subscribed[of]
	if names == nil {
		names = map[string]bool{}
		r.subscribed[of] = names
	}
	for _, name := range req.GetResourceNamesSubscribe() {
		names[name] = true
	}
	for _, name := range req.GetResourceNamesUnsubscribe() {
		delete(names, name)
	}
	return slices.Sorted(maps.Keys(names))
}

func (s *Server) add(r Request) { s.record.Change(func() { s.requests = append(s.requests, r) }) }
