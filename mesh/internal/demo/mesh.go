package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

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

// mesh is everything that runs: control plane, backends, and clients with their RPCs.
type mesh struct {
	store     *controlplane.Store
	control   *controlplane.Server
	address   string // of the control plane
	backends  map[string]*testutils.Backend
	bootstrap string // the path of the file
	channel   *grpc.ClientConn

	record  func(rpc)       // takes each RPC that has ended
	ctx     context.Context // of the RPCs
	more    context.Context // until then RPCs begin
	noMore  context.CancelFunc
	workers sync.WaitGroup

	// undo are the steps of close, last first.
	undo []func()
}

// newMesh starts all parts. The control plane has no resource and the client makes no RPC yet. close is the caller's, also after an
// error.
func newMesh(ctx context.Context, record func(rpc)) (m *mesh, err error) {
	m = &mesh{store: controlplane.NewStore(), backends: map[string]*testutils.Backend{}, record: record, ctx: ctx}
	m.more, m.noMore = context.WithCancel(ctx)
	for _, b := range backends {
		backend, err := testutils.NewBackend(b.name)
		if err != nil {
			return m, err
		}
		m.backends[b.name] = backend
		m.undo = append(m.undo, backend.Close)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return m, fmt.Errorf("control plane: %w", err)
	}
	m.address = listener.Addr().String()
	m.control = controlplane.NewServer(m.store, controlplane.Options{})
	server := grpc.NewServer()
	m.control.Register(server)
	go func() { _ = server.Serve(listener) }() // if the listener fails, the client cannot connect, and no step is observed
	m.undo = append(m.undo, server.Stop, m.control.Close)
	if err := m.writeBootstrap(); err != nil {
		return m, fmt.Errorf("bootstrap: %w", err)
	}
	m.channel, err = m.dial(target)
	return m, err
}

// close ends all parts and removes the files.
func (m *mesh) close() {
	m.stop()
	for _, undo := range slices.Backward(m.undo) {
		undo()
	}
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
	text.AddAll(styled.Plain, fmt.Sprintf(`A control plane, %d backends and a client, all in this process.

  client         %s
  bootstrap      GRPC_XDS_BOOTSTRAP=%s
  control plane  %s`, len(backends), target, m.bootstrap, m.address))
	for _, b := range backends {
		text.Add(styled.Plain, "  backend        %s   %-8s   cluster %s", m.backends[b.name].Addr(), b.name, b.cluster)
	}
	return text
}

const (
	// interval is the least time between the begins of two RPCs of a worker.
	interval = 7 * time.Millisecond
	// streamMessages are the responses of a stream, streamGap apart.
	streamMessages = 4
	streamGap      = 20 * time.Millisecond
	// rpcTimeout is longer than any RPC takes.
	rpcTimeout = 20 * time.Second
)

// rpc is one RPC that has ended, as its client saw it.
type rpc struct {
	of            string // the method, or the client if it is a further one
	backend       string // that answered, or ""
	peer          string // the address of the connection, or ""
	configuration string // that routed it, or ""
	start         time.Time
	err           error
}

// start starts workers that make RPCs until stop, which are recorded under a name.
func (m *mesh) start(of string, workers int, channel *grpc.ClientConn, method string) {
	for range workers {
		m.workers.Go(func() {
			ticks := time.NewTicker(interval)
			defer ticks.Stop()
			for {
				r := m.call(of, channel, method)
				if r.err == nil || m.ctx.Err() == nil { // or else the demo was interrupted
					m.record(r)
				}
				select {
				case <-ticks.C:
				case <-m.more.Done():
					return
				}
			}
		})
	}
}

// stop returns when the RPCs under way have ended.
func (m *mesh) stop() {
	m.noMore()
	m.workers.Wait()
}

// call makes an RPC.
func (m *mesh) call(of string, channel *grpc.ClientConn, method string) rpc {
	ctx, cancel := context.WithTimeout(m.ctx, rpcTimeout)
	defer cancel()
	var (
		header metadata.MD
		from   peer.Peer
	)
	r := rpc{of: of, start: time.Now()}
	if opts := []grpc.CallOption{grpc.Header(&header), grpc.Peer(&from)}; method == fullDuplexCall {
		r.err = stream(ctx, channel, opts...)
	} else { // an empty message is valid for each of them
		r.err = channel.Invoke(ctx, methodPath(method), &testgrpc.Empty{}, &testgrpc.Empty{}, opts...)
	}
	r.backend, r.configuration = strings.Join(header.Get(testutils.BackendIDHeader), ","), strings.Join(header.Get(configurationHeader), ",")
	if from.Addr != nil {
		r.peer = from.Addr.String()
	}
	return r
}

// methodPath is the path of a method by its short name.
func methodPath(method string) string {
	return "/" + testgrpc.TestService_ServiceDesc.ServiceName + "/" + method
}

// stream is one bidirectional stream, from its creation to its status.
func stream(ctx context.Context, channel *grpc.ClientConn, opts ...grpc.CallOption) error {
	stream, err := testgrpc.NewTestServiceClient(channel).FullDuplexCall(ctx, opts...)
	if err != nil {
		return err
	}
	answers := slices.Repeat([]*testgrpc.ResponseParameters{{IntervalUs: int32(streamGap.Microseconds())}}, streamMessages)
	_ = stream.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: answers}) // if it fails, Recv returns the reason
	_ = stream.CloseSend()
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
