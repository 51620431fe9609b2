package gocp

import (
	"context"
	"fmt"
	"testing"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/config"
	sotwv3 "github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
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

func (m Mode) String() string { return []string{"any names", "ADS mode", "delta"}[m] }

// Server is go-control-plane's xDS server on a loopback port, for one goroutine of a test.
type Server struct {
	*loopback.Server
	*xdstest.Tap
	mode Mode

	cache   cachev3.SnapshotCache
	version int // of the snapshot that was set last
}

// Start starts a Server that has no snapshot yet, so that it leaves every
// request open. It is stopped when the test ends; the test fails if a client
// has rejected a response by then.
func Start(t testing.TB, mode Mode) *Server { return StartOver(t, mode, nil) }

// StartOver is Start for a Server behind a link, if link is not nil.
func StartOver(t testing.TB, mode Mode, link *testutils.Link) *Server {
	t.Helper()
	s := &Server{Tap: xdstest.NewTap(), mode: mode}
	s.forget()
	t.Cleanup(func() { // after the server is closed
		for _, r := range s.Requests() {
			if r.Err != nil {
				t.Errorf("the client rejected %s: %v", r.TypeURL, r.Err.Message())
			}
		}
		if t.Failed() {
			for _, r := range s.Requests() {
				t.Log(r)
			}
		}
	})
	s.Server = xdstest.StartLoopback(t, s.run, link)
	return s
}

// Bootstrap returns a bootstrap for this server and the node it serves.
func (s *Server) Bootstrap(opts ...testutils.BootstrapOption) []byte {
	if s.mode == Delta {
		opts = append([]testutils.BootstrapOption{testutils.ServerFeatures("delta")}, opts...)
	}
	return testutils.Bootstrap(NodeID, s.Addr(), opts...)
}

// Restart stops the server and starts a new one without its state on the same address. From
// its first request on it serves the resources, under the version that was used last, as a
// server does that counts its versions from 1. Given none, it leaves every request open
// until Set.
func (s *Server) Restart(t testing.TB, resources ...proto.Message) {
	t.Helper()
	s.Stop()
	s.forget()
	if len(resources) > 0 {
		s.publish(t, 0, resources)
	}
	xdstest.NoError(t, s.Server.Restart())
}

// forget has the next run begin without a snapshot.
func (s *Server) forget() {
	s.cache = cachev3.NewSnapshotCache(s.mode == ADSMode, cachev3.IDHash{}, nil)
}

// run returns what is served from a start until a stop, which waits for the handlers.
func (s *Server) run() loopback.Run {
	server := grpc.NewServer(grpc.WaitForHandlers(true), grpc.ChainStreamInterceptor(s.Intercept))
	ctx, cancel := context.WithCancel(context.Background())
	var opts []config.XDSOption
	if s.mode == ADSMode {
		opts = append(opts, sotwv3.WithOrderedADS())
	}
	discoverypb.RegisterAggregatedDiscoveryServiceServer(server, serverv3.NewServer(ctx, s.cache, nil, opts...))
	return loopback.Run{GRPC: server, EndStreams: cancel}
}

// Set makes the resources the snapshot that the node gets, under a version that
// was not used before, also not before a restart.
func (s *Server) Set(t testing.TB, resources ...proto.Message) {
	t.Helper()
	s.publish(t, 1, resources)
}

// publish makes the resources the snapshot, under a version so many later than the last one.
func (s *Server) publish(t testing.TB, later int, resources []proto.Message) {
	t.Helper()
	byType := map[resource.Type][]types.Resource{}
	for _, r := range resources {
		typeURL := resource.APITypePrefix + string(r.ProtoReflect().Descriptor().FullName())
		byType[typeURL] = append(byType[typeURL], r)
	}
	s.version += later
	snapshot, err := cachev3.NewSnapshot(fmt.Sprint(s.version), byType)
	xdstest.NoError(t, err)
	xdstest.NoError(t, s.cache.SetSnapshot(t.Context(), NodeID, snapshot))
}
