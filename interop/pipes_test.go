package interop_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/dynxds/dynxds/interop/gocp"
)

// connecting is how long the endpoints of a benchmark may take to become ready. To
// connect 10,000 takes a while, most of it in gRPC's round_robin, which looks at all
// of them whenever one becomes ready.
const connecting = 5 * time.Minute

// onPipes returns n different addresses.
func onPipes(n int) []string {
	addrs := make([]string, n)
	for i := range addrs {
		addrs[i] = fmt.Sprintf("10.0.%d.%d:80", i/250, i%250)
	}
	return addrs
}

// pipes is a network on which every address can be reached, and no RPC is answered.
type pipes struct {
	mu       sync.Mutex
	dials    int
	expected map[string]chan struct{}
	serving  sync.WaitGroup
}

func newPipes(b *testing.B) *pipes {
	p := &pipes{expected: make(map[string]chan struct{})}
	b.Cleanup(p.serving.Wait)
	return p
}

func (p *pipes) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}

// expect returns what is closed when the address is dialled.
func (p *pipes) expect(addr string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := make(chan struct{})
	p.expected[addr] = c
	return c
}

func (p *pipes) dial(_ context.Context, addr string) (net.Conn, error) {
	p.mu.Lock()
	p.dials++
	if c := p.expected[addr]; c != nil {
		close(c)
		delete(p.expected, addr)
	}
	p.mu.Unlock()
	client, server := net.Pipe()
	p.serving.Go(func() { serveNothing(server) })
	return client, nil
}

// connect dials a channel of a peer whose endpoints are on this network, and has it
// want them, until the context ends.
func (p *pipes) connect(ctx context.Context, b *testing.B, peer treePeer, control *gocp.Server) {
	cc := dial(b, peer.builder(b, control), "xds:///"+service, grpc.WithContextDialer(p.dial),
		// What a connection takes is not what is measured, and 10,000 of them are
		// to fit.
		grpc.WithReadBufferSize(0), grpc.WithWriteBufferSize(0))
	// No endpoint answers: the RPC is there to be picked for.
	go testpb.NewTestServiceClient(cc).EmptyCall(ctx, &testpb.Empty{})
}

// serveNothing is a server that greets its client and hears nothing of what it says.
func serveNothing(conn net.Conn) {
	defer conn.Close()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return
		}
		if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
			if framer.WriteSettings() != nil || framer.WriteSettingsAck() != nil {
				return
			}
		}
	}
}
