package demo

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	_ "github.com/dynxds/dynxds" // the scheme "xds"
	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/testutils"
)

// bootstrapEnv names the variable that gRPC finds a bootstrap file by (gRFC
// A27).
const bootstrapEnv = "GRPC_XDS_BOOTSTRAP"

// mesh is everything that runs: control plane, backends and client.
type mesh struct {
	store    *controlplane.Store
	ads      *controlplane.Server
	planeAt  string
	backends map[string]*testutils.Backend
	// bootstrap is the path of the file.
	bootstrap   string
	connections *connections
	channel     *grpc.ClientConn

	// aliceIsDirect says which variant the control plane tells alice by DPDS.
	aliceIsDirect atomic.Bool
	// startFurther makes RPCs of a further client until the demo ends.
	startFurther func(name string, channel grpc.ClientConnInterface)

	// undo are what close does, last first.
	undo []func()
}

// startMesh starts all parts. The control plane has no resource and the client
// makes no RPC yet.
func startMesh() (*mesh, error) {
	m := &mesh{store: controlplane.NewStore(), backends: map[string]*testutils.Backend{}, connections: newConnections()}
	for _, start := range []func() error{m.startBackends, m.startControlPlane, m.writeBootstrap, m.dial} {
		if err := start(); err != nil {
			m.close()
			return nil, err
		}
	}
	return m, nil
}

// close ends all parts and removes the bootstrap file.
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

func (m *mesh) startControlPlane() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	server := grpc.NewServer()
	m.ads = controlplane.NewServer(m.store, controlplane.Options{})
	m.ads.Register(server)
	m.planeAt = listener.Addr().String()
	served := make(chan struct{})
	go func() {
		defer close(served)
		// It ends when undo stops it. A listener that fails before that shows
		// as a step that is not observed.
		_ = server.Serve(listener)
	}()
	m.undo = append(m.undo, func() {
		m.ads.Close()
		server.Stop()
		<-served
	})
	return nil
}

// writeBootstrap writes the client's bootstrap file and points the environment
// to it, as a user's shell would.
func (m *mesh) writeBootstrap() error {
	content, err := json.MarshalIndent(map[string]any{
		"xds_servers": []any{map[string]any{
			"server_uri":    m.planeAt,
			"channel_creds": []any{map[string]any{"type": "insecure"}},
		}},
		"node": map[string]any{"id": "dynxds-demo", "cluster": "demo"},
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	folder, err := os.MkdirTemp("", "dynxds-demo-")
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	m.undo = append(m.undo, func() { os.RemoveAll(folder) })
	m.bootstrap = filepath.Join(folder, "bootstrap.json")
	if err := os.WriteFile(m.bootstrap, content, 0o600); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return m.setenv(bootstrapEnv, m.bootstrap)
}

func (m *mesh) setenv(key, value string) error {
	before, was := os.LookupEnv(key)
	if err := os.Setenv(key, value); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	m.undo = append(m.undo, func() {
		if was {
			os.Setenv(key, before)
		} else {
			os.Unsetenv(key)
		}
	})
	return nil
}

// target is what the client dials.
const target = "xds:///" + serviceName

func (m *mesh) dial() error {
	channel, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStatsHandler(m.connections))
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	m.channel = channel
	m.undo = append(m.undo, func() { channel.Close() })
	return nil
}

// push puts resources into the control plane, all at once.
func (m *mesh) push(resources ...proto.Message) error {
	_, err := m.store.Update(func(tx *controlplane.Tx) { tx.Set(resources...) })
	return err
}

// describe says what runs.
func (m *mesh) describe(duration time.Duration) *setUp {
	s := &setUp{
		Event: "setup", Target: target, Bootstrap: m.bootstrap, ControlPlane: m.planeAt, Duration: millis(duration),
		Methods: []string{unaryCall, emptyCall, fullDuplexCall, alice, bob},
	}
	for _, c := range clusters {
		for _, b := range c.backends {
			s.Backends = append(s.Backends, backendInfo{Name: b, Cluster: c.name, Address: m.backends[b].Addr()})
		}
	}
	return s
}

// rejections says in words what the client has rejected, as the control plane
// knows it.
func (m *mesh) rejections() []string {
	var all []string
	for _, c := range m.ads.Clients() {
		for _, t := range c.Types {
			if t.Reply == controlplane.ReplyNACK {
				all = append(all, fmt.Sprintf("the client rejected version %s of %s: %s", t.NACK.Version, t.TypeURL, t.NACK.Err.Message()))
			}
		}
	}
	return all
}
