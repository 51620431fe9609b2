package testutils

import (
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/loopback"
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
	service *service
	server  *loopback.Server
	opts    []grpc.ServerOption
}

// NewFakeServer starts a FakeServer with options, such as credentials, for the gRPC server. The caller must Close it.
func NewFakeServer(opts ...grpc.ServerOption) (*FakeServer, error) {
	f := &FakeServer{service: newService(newStore()), opts: opts}
	var err error
	if f.server, err = loopback.StartServer(f.run, nil); err != nil {
		return nil, fmt.Errorf("fake server: %w", err)
	}
	return f, nil
}

// run returns what is served from a start until a stop.
func (f *FakeServer) run() loopback.Run {
	server := grpc.NewServer(append([]grpc.ServerOption{grpc.WaitForHandlers(true)}, f.opts...)...)
	f.service.register(server)
	return loopback.Run{GRPC: server, EndStreams: f.service.endStreams}
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
func (f *FakeServer) TryUpdate(change func(*Tx)) error { return f.service.store.update(change) }

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
