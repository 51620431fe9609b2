package testutils

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/await"
	"github.com/dynxds/dynxds/internal/loopback"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// FakeServer is an xDS server on a real loopback port: ADS, SotW and delta, for any type of
// resource, with variants (xRFC TP2), errors in place of resources (xRFC TP3), glob collections (xRFC TP1)
// and DPDS. A test stops and restarts it at the same address; the resources survive both. It is safe for
// concurrent use.
//
// It is for small tests: after each request and update it computes from scratch what each client is to know,
// and sends what the client was not told. Removals are sent at once, those of Clusters and their endpoints
// after all other changes of an update. Versions of responses count the updates.
type FakeServer struct {
	server *loopback.Server
	opts   []grpc.ServerOption
	// running counts the goroutines of streams.
	running sync.WaitGroup
	// updating is held during an update, so that functions that collect changes run one at a time.
	updating sync.Mutex

	// state guards what follows.
	state   await.State
	store   store
	streams []*stream // in the order in which they began
}

// NewFakeServer starts a FakeServer with options, such as credentials, for the gRPC server. The caller must Close it.
func NewFakeServer(opts ...grpc.ServerOption) (*FakeServer, error) {
	f := &FakeServer{opts: opts, store: store{
		types: map[string]map[string]variants{}, dpds: map[string]func(*corepb.Node) (dynparam.ByType, error){},
	}}
	var err error
	if f.server, err = loopback.StartServer(f.run, nil); err != nil {
		return nil, fmt.Errorf("fake server: %w", err)
	}
	return f, nil
}

var errStopped = status.Error(codes.Unavailable, "the server stops")

// run returns what is served from a start until a stop, which ends all streams with UNAVAILABLE and waits for them.
func (f *FakeServer) run() loopback.Run {
	server := grpc.NewServer(append([]grpc.ServerOption{grpc.WaitForHandlers(true)}, f.opts...)...)
	lasts, stop := context.WithCancel(context.Background())
	method := func(name string, delta bool) grpc.StreamDesc {
		return grpc.StreamDesc{StreamName: name, ServerStreams: true, ClientStreams: true, Handler: func(_ any, wire grpc.ServerStream) error {
			return f.serve(lasts, &stream{delta: delta, types: map[string]*typeState{}}, wire)
		}}
	}
	// The messages are copies of the published ones under other names; the service has the published name.
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "envoy.service.discovery.v3.AggregatedDiscoveryService",
		Streams:     []grpc.StreamDesc{method("StreamAggregatedResources", false), method("DeltaAggregatedResources", true)},
	}, nil)
	return loopback.Run{GRPC: server, EndStreams: func() {
		f.state.Look(stop) // no stream begins any more
		f.running.Wait()
	}}
}

// StartFakeServer starts a FakeServer that is closed when the test ends.
func StartFakeServer(t testing.TB, opts ...grpc.ServerOption) *FakeServer {
	t.Helper()
	f, err := NewFakeServer(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// Addr returns "127.0.0.1:port", the server_uri of the bootstrap. It stays the
// same across restarts.
func (f *FakeServer) Addr() string { return f.server.Addr() }

// TryUpdate makes the changes that change collects, all of them or, if any is invalid, none. Clients see either
// none or all of them. change must not use the server.
func (f *FakeServer) TryUpdate(change func(*Tx)) error {
	f.updating.Lock() // and not state, so that streams do not wait for change
	defer f.updating.Unlock()
	tx := new(Tx)
	change(tx)
	if err := errors.Join(tx.faults...); err != nil {
		return err
	}
	f.state.Change(func() {
		f.store.version++
		for _, apply := range tx.changes {
			apply(&f.store)
		}
		for _, st := range f.streams {
			st.due = true
		}
	})
	return nil
}

// Update is TryUpdate. It fails the test on an error.
func (f *FakeServer) Update(t testing.TB, change func(*Tx)) {
	t.Helper()
	if err := f.TryUpdate(change); err != nil {
		t.Fatal(err)
	}
}

// Set sets resources in one update. It fails the test on an error.
func (f *FakeServer) Set(t testing.TB, messages ...proto.Message) {
	t.Helper()
	f.Update(t, func(tx *Tx) { tx.Set(messages...) })
}

// SetVariant sets the variants of resources with these dynamic parameters in one update.
func (f *FakeServer) SetVariant(t testing.TB, parameters map[string]string, messages ...proto.Message) {
	t.Helper()
	f.Update(t, func(tx *Tx) { tx.SetVariant(parameters, messages...) })
}

// Delete removes resources of one type in one update.
func (f *FakeServer) Delete(t testing.TB, typeURL string, names ...string) {
	t.Helper()
	f.Update(t, func(tx *Tx) {
		for _, name := range names {
			tx.Delete(typeURL, name)
		}
	})
}

// Stop ends every connection as a crash does, and stops listening: connections are refused until
// Restart. It does nothing if the server is stopped.
func (f *FakeServer) Stop() { f.server.Stop() }

// GracefulStop ends every stream with UNAVAILABLE, sends GOAWAY and stops listening.
func (f *FakeServer) GracefulStop() { f.server.GracefulStop() }

// Restart listens on the same address again, with the same resources. It stops the server first if it is
// running.
func (f *FakeServer) Restart() error {
	if err := f.server.Restart(); err != nil {
		return fmt.Errorf("fake server: %w", err)
	}
	return nil
}

// Close stops the server and releases its port.
func (f *FakeServer) Close() { f.server.Close() }
