package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	_ "github.com/dynxds/dynxds" // the scheme "xds"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/styled"
	"github.com/dynxds/dynxds/testutils"
)

// target is what the client dials.
const target = "xds:///" + serviceName

// backends are those of the demo, each with its cluster.
var backends = []struct{ name, cluster string }{
	{stable1, stable}, {stable2, stable}, {canary1, canary}, {proxy1, proxy},
}

// mesh is everything that runs: control plane, backends and clients.
type mesh struct {
	store     *controlplane.Store
	control   *controlplane.Server
	address   string // of the control plane
	backends  map[string]*testutils.Backend
	bootstrap string // the path of the file
	channel   *grpc.ClientConn
	traffic   *traffic

	// aliceIsDirect decides which variant alice gets by DPDS.
	aliceIsDirect atomic.Bool

	// undo are the steps of close, last first.
	undo []func()
}

func newMesh(ctx context.Context, record func(rpc)) *mesh {
	more, noMore := context.WithCancel(ctx)
	return &mesh{
		store: controlplane.NewStore(), backends: map[string]*testutils.Backend{},
		traffic: &traffic{record: record, ctx: ctx, more: more, noMore: noMore},
	}
}

// start starts all parts. The control plane has no resource and the client makes no RPC yet. close is the caller's, also after an
// error.
func (m *mesh) start() (err error) {
	for _, b := range backends {
		backend, err := testutils.NewBackend(b.name)
		if err != nil {
			return err
		}
		m.backends[b.name] = backend
		m.undo = append(m.undo, backend.Close)
	}
	if err := m.serve(); err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	if err := m.writeBootstrap(); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	m.channel, err = m.dial(target)
	return err
}

// close ends all parts and removes the files.
func (m *mesh) close() {
	for _, undo := range slices.Backward(m.undo) {
		undo()
	}
}

// serve starts the control plane.
func (m *mesh) serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	m.address = listener.Addr().String()
	m.control = controlplane.NewServer(m.store, controlplane.Options{})
	server := grpc.NewServer()
	m.control.Register(server)
	go func() { _ = server.Serve(listener) }() // if the listener fails, the client cannot connect, and no step is observed
	m.undo = append(m.undo, server.Stop, m.control.Close)
	return nil
}

// writeBootstrap writes the client's bootstrap file and sets the environment variable, as a user's shell would.
func (m *mesh) writeBootstrap() error {
	file, err := os.CreateTemp("", "dynxds-demo-*.json")
	if err != nil {
		return err
	}
	m.bootstrap = file.Name()
	m.undo = append(m.undo, func() { os.Remove(m.bootstrap) })
	_, err = file.Write(testutils.Bootstrap("dynxds-demo", m.address, testutils.NodeField("cluster", "demo")))
	return errors.Join(err, file.Close(), os.Setenv("GRPC_XDS_BOOTSTRAP", m.bootstrap))
}

// dial returns a channel that close closes.
func (m *mesh) dial(target string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	channel, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err == nil {
		m.undo = append(m.undo, func() { channel.Close() })
	}
	return channel, err
}

// describe lists what runs.
func (m *mesh) describe() (text styled.Text) {
	line := func(format string, args ...any) { text.Add(styled.Plain, format, args...) }
	line("A control plane, %d backends and a client, all in this process.", len(backends))
	line("")
	line("  client         %s", target)
	line("  bootstrap      GRPC_XDS_BOOTSTRAP=%s", m.bootstrap)
	line("  control plane  %s", m.address)
	for _, b := range backends {
		line("  backend        %s   %-8s   cluster %s", m.backends[b.name].Addr(), b.name, b.cluster)
	}
	return text
}
