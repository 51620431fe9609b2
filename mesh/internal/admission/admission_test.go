package admission_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/admission"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guarded is a gRPC server behind a Gate.
type guarded struct {
	t    *testing.T
	addr string
	// refused has the limits that were reached.
	refused chan string
}

func start(t *testing.T, opts admission.Options) *guarded {
	t.Helper()
	g := &guarded{t: t, refused: make(chan string, 1000)}
	opts.OnRefused = func(limit string, _ net.Addr, _ error) { g.refused <- limit }
	gate := admission.New(opts)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	g.addr = l.Addr().String()
	server := grpc.NewServer(grpc.Creds(gate.Credentials(insecure.NewCredentials())), grpc.MaxRecvMsgSize(opts.MessageBytes))
	healthpb.RegisterHealthServer(server, health.NewServer())
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(gate.Listen(l)) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return g
}

// check makes an RPC on a connection of its own.
func (g *guarded) check(from string) error {
	g.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn := cmdtest.Dial(g.t, "passthrough:///"+g.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", addr) }))
	_, err := healthpb.NewHealthClient(conn).Check(testutils.Context(g.t), &healthpb.HealthCheckRequest{Service: ""}, grpc.WaitForReady(true))
	return err
}

// rawClient speaks HTTP/2 as it likes.
type rawClient struct {
	t *testing.T
	net.Conn
	framer *http2.Framer
	last   uint32
}

func (g *guarded) raw() *rawClient {
	g.t.Helper()
	c, err := net.Dial("tcp", g.addr)
	xdstest.NoError(g.t, err)
	g.t.Cleanup(func() { c.Close() })
	r := &rawClient{t: g.t, Conn: c, framer: http2.NewFramer(c, c)}
	// These fail if the server has closed the connection, which the test finds out by reading.
	_, _ = c.Write([]byte(http2.ClientPreface))
	_ = r.framer.WriteSettings()
	return r
}

// begin opens a stream and sends a part of a message of a size.
func (r *rawClient) begin(part, size int) error {
	r.t.Helper()
	r.last += 2
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a"},
		{Name: ":path", Value: "/grpc.health.v1.Health/Check"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	} {
		xdstest.NoError(r.t, encoder.WriteField(f))
	}
	stream := r.last - 1
	prefix := make([]byte, 5, 5+part)
	binary.BigEndian.PutUint32(prefix[1:], uint32(size))
	return errors.Join(
		r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}),
		// The padding is none of the message.
		r.framer.WriteDataPadded(stream, false, prefix[:5+part], make([]byte, 7)))
}

// awaitEnd waits until the server closes the connection.
func (r *rawClient) awaitEnd() {
	r.t.Helper()
	xdstest.NoError(r.t, r.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err := io.Copy(io.Discard, r)
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		r.t.Fatal("the connection is still open")
	}
}

// A host has half of the connections, others connect meanwhile, and a connection that is closed makes room.
func TestConnections(t *testing.T) {
	t.Parallel()
	g := start(t, admission.Options{Connections: 4, MessageBytes: 1 << 20, MessageTime: time.Minute})
	first, second := g.raw(), g.raw()
	third := g.raw()
	third.awaitEnd()
	xdstest.Equal(t, "why it is refused", "connections", <-g.refused)
	xdstest.NoError(t, g.check("127.0.0.2"))
	first.Close()
	second.Close()
	xdstest.NoError(t, g.check("127.0.0.1"))
}

// Connections whose messages do not arrive in time are closed, others stay.
func TestMessageThatDoesNotArrive(t *testing.T) {
	t.Parallel()
	g := start(t, admission.Options{Connections: 100, MessageBytes: 1 << 20, MessageTime: 200 * time.Millisecond})
	slow, idle := g.raw(), g.raw()
	xdstest.NoError(t, slow.begin(0, 10))
	slow.awaitEnd()
	xdstest.Equal(t, "why it is refused", "received_bytes", <-g.refused)
	// A message that has arrived, and one whose stream the server has ended, are not awaited.
	xdstest.NoError(t, idle.begin(0, 0))
	xdstest.NoError(t, idle.begin(1, 1<<30))
	xdstest.NoError(t, idle.SetReadDeadline(time.Now().Add(30*time.Second)))
	for ended := false; !ended; {
		frame, err := idle.framer.ReadFrame()
		xdstest.NoError(t, err)
		h, ok := frame.(*http2.HeadersFrame)
		ended = ok && h.StreamEnded()
	}
	select {
	case limit := <-g.refused:
		t.Errorf("refused for %q", limit)
	case <-time.After(600 * time.Millisecond): // three times the time of a message
	}
}

// A host whose messages have arrived in part, and are as many as it may have, goes on with one connection at a time; a connection
// that takes more is closed. Other hosts are served meanwhile, and this host when they are gone.
func TestManyPartialMessages(t *testing.T) {
	t.Parallel()
	const size = 8 << 10
	g := start(t, admission.Options{Connections: 200, MessageBytes: size, MessageTime: time.Hour})
	var hostile []*rawClient
	for range 3 {
		c := g.raw()
		for range 8 {
			if c.begin(size-1, size) != nil {
				break // closed already
			}
		}
		hostile = append(hostile, c)
	}
	xdstest.Equal(t, "why it is refused", "received_bytes", <-g.refused)
	xdstest.NoError(t, g.check("127.0.0.2"))
	for _, c := range hostile {
		c.Close()
	}
	xdstest.NoError(t, g.check("127.0.0.1"))
}
