package demo

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	_ "github.com/dynxds/dynxds" // the scheme "xds"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/testutils"
)

// bootstrapEnv is the variable by which gRPC finds a bootstrap file (gRFC A27).
const bootstrapEnv = "GRPC_XDS_BOOTSTRAP"

// target is what the client dials.
const target = "xds:///" + serviceName

// mesh is everything that runs: control plane, backends and clients.
type mesh struct {
	plane      *testutils.FakeServer
	backends   map[string]*testutils.Backend
	folder     string     // of the files
	identities identities // nil without TLS
	relay      string     // the address of the relay, if there is one
	bootstrap  string     // the path of the file
	channel    *grpc.ClientConn
	traffic    *traffic

	// aliceIsDirect decides which variant alice gets by DPDS.
	aliceIsDirect atomic.Bool

	// undo are the steps of close, last first.
	undo []func()
}

// startMesh starts all parts, with mTLS between clients and backends, and with a relay between clients
// and control plane, if the options say so. The control plane has no resource and the client makes
// no RPC yet.
func startMesh(opts Options) (_ *mesh, err error) {
	m := &mesh{backends: map[string]*testutils.Backend{}}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if m.folder, err = os.MkdirTemp("", "dynxds-demo-"); err != nil {
		return nil, err
	}
	m.undo = append(m.undo, func() { os.RemoveAll(m.folder) })
	if opts.TLS {
		if m.identities, err = makeCertificates(m.folder); err != nil {
			return nil, fmt.Errorf("certificates: %w", err)
		}
	}
	if err := m.startBackends(); err != nil {
		return nil, err
	}
	removal := controlplane.Options{RemovalDelay: controlplane.DefaultRemovalDelay}
	if m.plane, err = testutils.NewFakeServer(testutils.ControlPlaneOptions(removal)); err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	m.undo = append(m.undo, m.plane.Close)
	if opts.Relay {
		if err := m.startRelay(); err != nil {
			return nil, fmt.Errorf("relay: %w", err)
		}
	}
	if err := m.writeBootstrap(); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	m.channel, err = m.newChannel(target)
	return m, err
}

// close ends all parts and removes the files.
func (m *mesh) close() {
	for _, undo := range slices.Backward(m.undo) {
		undo()
	}
}

func (m *mesh) startBackends() error {
	for _, c := range clusters {
		for _, id := range c.backends {
			b, err := testutils.NewBackend(id, m.identities.serverOptions(id)...)
			if err != nil {
				return err
			}
			b.SetBehaviour(stampConfiguration)
			m.backends[id] = b
			m.undo = append(m.undo, b.Close)
		}
	}
	return nil
}

// writeBootstrap writes the client's bootstrap file and sets the environment variable, as
// a user's shell would.
func (m *mesh) writeBootstrap() error {
	m.bootstrap = filepath.Join(m.folder, "bootstrap.json")
	content := m.bootstrapOf("dynxds-demo", testutils.NodeField("cluster", "demo"))
	if err := os.WriteFile(m.bootstrap, content, 0o600); err != nil {
		return err
	}
	old, wasSet := os.LookupEnv(bootstrapEnv)
	m.undo = append(m.undo, func() {
		if wasSet {
			os.Setenv(bootstrapEnv, old)
		} else {
			os.Unsetenv(bootstrapEnv)
		}
	})
	return os.Setenv(bootstrapEnv, m.bootstrap)
}

// bootstrapOf returns the bootstrap of a client.
func (m *mesh) bootstrapOf(nodeID string, opts ...testutils.BootstrapOption) []byte {
	if m.identities != nil {
		opts = append(opts, testutils.TopLevel("certificate_providers", certificateProviders(m.folder)))
	}
	return testutils.Bootstrap(nodeID, cmp.Or(m.relay, m.plane.Addr()), opts...)
}

// newChannel returns a channel that close closes.
func (m *mesh) newChannel(target string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	creds, err := m.credentials()
	if err != nil {
		return nil, err
	}
	channel, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(creds))...)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", target, err)
	}
	m.undo = append(m.undo, func() { channel.Close() })
	return channel, nil
}

// push puts resources into the control plane, all at once.
func (m *mesh) push(resources ...proto.Message) error {
	_, err := m.plane.Store().Update(func(tx *controlplane.Tx) { tx.Set(resources...) })
	return err
}

// pushes returns a step's change of resources.
func (m *mesh) pushes(resources ...proto.Message) func(context.Context) error {
	return func(context.Context) error { return m.push(resources...) }
}

// describe lists what runs.
func (m *mesh) describe(duration time.Duration) *setUp {
	s := &setUp{
		Event: "setup", Target: target, Bootstrap: m.bootstrap, ControlPlane: m.plane.Addr(), Relay: m.relay,
		Methods: []string{unaryCall, emptyCall, fullDuplexCall, alice, bob}, Duration: millis(duration), TLS: m.identities != nil,
	}
	for _, c := range clusters {
		for _, b := range c.backends {
			s.Backends = append(s.Backends, backendInfo{Name: b, Cluster: c.name, Address: m.backends[b].Addr()})
		}
	}
	return s
}

// rejections describes what the clients have rejected, as seen by the control plane.
func (m *mesh) rejections() []string {
	var all []string
	for _, c := range m.plane.Control().Clients() {
		for _, t := range c.Types {
			if t.Reply == controlplane.ReplyNACK {
				all = append(all, fmt.Sprintf("the client rejected version %s of %s: %s", t.NACK.Version, t.TypeURL, t.NACK.Err.Message()))
			}
		}
	}
	return all
}
