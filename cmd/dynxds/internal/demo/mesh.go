package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	_ "github.com/dynxds/dynxds" // the scheme "xds"
	"github.com/dynxds/dynxds/internal/loopback"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/testutils"
)

// bootstrapEnv is the variable by which gRPC finds a bootstrap file (gRFC A27).
const bootstrapEnv = "GRPC_XDS_BOOTSTRAP"

// target is what the client dials.
const target = "xds:///" + serviceName

// mesh is everything that runs: control plane, backends and clients.
type mesh struct {
	store     *controlplane.Store
	plane     *controlplane.Server
	server    *loopback.Server // serves the plane
	backends  map[string]*testutils.Backend
	bootstrap string // the path of the file
	channel   *grpc.ClientConn
	traffic   *traffic

	// aliceIsDirect decides which variant alice gets by DPDS.
	aliceIsDirect atomic.Bool

	// undo are the steps of close, last first.
	undo []func()
}

// startMesh starts all parts. The control plane has no resource and the client makes no RPC yet.
func startMesh() (_ *mesh, err error) {
	m := &mesh{backends: map[string]*testutils.Backend{}}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if err := m.startBackends(); err != nil {
		return nil, err
	}
	if err := m.startPlane(); err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
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
			b, err := testutils.NewBackend(id)
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

// startPlane starts the control plane over an empty store.
func (m *mesh) startPlane() (err error) {
	m.store = controlplane.NewStore()
	m.plane = controlplane.NewServer(m.store, controlplane.Options{})
	m.server, err = loopback.StartServer(func() loopback.Run {
		run := loopback.Run{GRPC: grpc.NewServer(), EndStreams: m.plane.Close}
		m.plane.Register(run.GRPC)
		return run
	}, nil)
	if err == nil {
		m.undo = append(m.undo, m.server.Close)
	}
	return err
}

// writeBootstrap writes the client's bootstrap file and sets the environment variable, as
// a user's shell would.
func (m *mesh) writeBootstrap() error {
	folder, err := os.MkdirTemp("", "dynxds-demo-")
	if err != nil {
		return err
	}
	m.undo = append(m.undo, func() { os.RemoveAll(folder) })
	m.bootstrap = filepath.Join(folder, "bootstrap.json")
	content := testutils.Bootstrap("dynxds-demo", m.server.Addr(), testutils.NodeField("cluster", "demo"))
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

// newChannel returns a channel that close closes.
func (m *mesh) newChannel(target string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	channel, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", target, err)
	}
	m.undo = append(m.undo, func() { channel.Close() })
	return channel, nil
}

// push puts resources into the control plane, all at once.
func (m *mesh) push(resources ...proto.Message) error {
	_, err := m.store.Update(func(tx *controlplane.Tx) { tx.Set(resources...) })
	return err
}

// pushes returns a step's change of resources.
func (m *mesh) pushes(resources ...proto.Message) func(context.Context) error {
	return func(context.Context) error { return m.push(resources...) }
}

// columns are those of the demo's tables.
func (m *mesh) columns() columns {
	cols := columns{methods: []string{unaryCall, emptyCall, fullDuplexCall, alice, bob}}
	for _, c := range clusters {
		for _, b := range c.backends {
			cols.backends = append(cols.backends, [2]string{b, c.name})
		}
	}
	return cols
}

// describe lists what runs.
func (m *mesh) describe(duration time.Duration) []string {
	lines := []string{
		fmt.Sprintf("A control plane, %d backends and a client, all in this process, for %v.", len(m.backends), duration),
		"",
		"  client         " + target,
		"  bootstrap      GRPC_XDS_BOOTSTRAP=" + m.bootstrap,
		"  control plane  " + m.server.Addr(),
	}
	label := "backends"
	for _, b := range m.columns().backends {
		lines = append(lines, fmt.Sprintf("  %-15s%s   %s   cluster %q", label, m.backends[b[0]].Addr(), b[0], b[1]))
		label = ""
	}
	return lines
}

// rejections describes what the clients have rejected, as seen by the control plane.
func (m *mesh) rejections() []string {
	var all []string
	for _, c := range m.plane.Clients() {
		for _, t := range c.Types {
			if t.Reply == controlplane.ReplyNACK {
				all = append(all, fmt.Sprintf("the client rejected version %s of %s: %s", t.NACK.Version, t.TypeURL, t.NACK.Err.Message()))
			}
		}
	}
	return all
}
