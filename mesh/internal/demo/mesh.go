package demo

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
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

// startMesh starts all parts. The control plane has no resource and the client makes no RPC yet. close is the caller's, also after
// an error.
func startMesh(ctx context.Context, record func(rpc)) (*mesh, error) {
	m := &mesh{store: controlplane.NewStore(), backends: map[string]*testutils.Backend{}, traffic: newTraffic(ctx, record)}
	for _, b := range backends {
		backend, err := testutils.NewBackend(b.name)
		if err != nil {
			return m, err
		}
		m.backends[b.name] = backend
		m.undo = append(m.undo, backend.Close)
	}
	if err := m.serve(); err != nil {
		return m, fmt.Errorf("control plane: %w", err)
	}
	if err := m.writeBootstrap(); err != nil {
		return m, fmt.Errorf("bootstrap: %w", err)
	}
	var err error
	m.channel, err = m.newChannel(target)
	return m, err
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
	folder, err := os.MkdirTemp("", "dynxds-demo-")
	if err != nil {
		return err
	}
	m.undo = append(m.undo, func() { os.RemoveAll(folder) })
	m.bootstrap = filepath.Join(folder, "bootstrap.json")
	content := testutils.Bootstrap("dynxds-demo", m.address, testutils.NodeField("cluster", "demo"))
	if err := os.WriteFile(m.bootstrap, content, 0o600); err != nil {
		return err
	}
	return os.Setenv("GRPC_XDS_BOOTSTRAP", m.bootstrap)
}

// newChannel returns a channel that close closes.
func (m *mesh) newChannel(target string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	channel, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", target, err)
	}
	m.undo = append(m.undo, func() { channel.Close() })
	return channel, nil
}

// describe lists what runs.
func (m *mesh) describe() (text styled.Text) {
	text.Add(styled.Plain, "A control plane, %d backends and a client, all in this process.", len(backends))
	text.Add(styled.Plain, "")
	text.Add(styled.Plain, "  client         %s", target)
	text.Add(styled.Plain, "  bootstrap      GRPC_XDS_BOOTSTRAP=%s", m.bootstrap)
	text.Add(styled.Plain, "  control plane  %s", m.address)
	label := "backends"
	for _, b := range backends {
		text.Add(styled.Plain, "  %-15s%s   %s   cluster %q", label, m.backends[b.name].Addr(), b.name, b.cluster)
		label = ""
	}
	return text
}
