package relay_test

import (
	"context"
	"io"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// services are the streams of a server by their methods, without gRPC under them.
type services map[string]func(grpc.ServerStream) error

// RegisterService implements grpc.ServiceRegistrar.
func (s services) RegisterService(d *grpc.ServiceDesc, server any) {
	for _, stream := range d.Streams {
		s["/"+d.ServiceName+"/"+stream.StreamName] = func(w grpc.ServerStream) error { return stream.Handler(server, w) }
	}
}

var errLost = status.Error(codes.Unavailable, "the connection is lost")

// link is a stream between a client and a server, whose messages arrive when a trial says so.
type link struct {
	// ctx is that of the server, and client that of the client.
	ctx, client context.Context
	end         context.CancelFunc
	up, down    lane

	mu   sync.Mutex
	over chan struct{}
	err  error
}

// lane is one direction of a link.
type lane struct {
	mu      sync.Mutex
	sent    [][]byte
	arrived chan []byte
	// open has messages arrive at once.
	open bool
}

// open has the server serve a stream.
func (s services) open(ctx context.Context, method string) *link {
	l := &link{client: ctx, over: make(chan struct{})}
	l.up.arrived, l.down.arrived = make(chan []byte, 100), make(chan []byte, 100)
	if _, known := peer.FromContext(ctx); !known {
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}})
	}
	l.ctx, l.end = context.WithCancel(ctx)
	go func() { l.finish(s[method](&serverEnd{link: l})) }()
	return l
}

// finish ends the stream.
func (l *link) finish(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.over:
	default:
		if l.err = err; err == nil {
			l.err = io.EOF
		}
		close(l.over)
		l.end()
	}
}

// isOpen also says that there is a stream.
func (l *link) isOpen() bool { return l != nil && l.ctx.Err() == nil }

func (l *lane) send(data mem.BufferSlice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open {
		l.arrived <- data.Materialize()
		return
	}
	l.sent = append(l.sent, data.Materialize())
}

// pending is the number of messages under way.
func (l *lane) pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.sent)
}

// take takes the message that was sent first.
func (l *lane) take() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	data := l.sent[0]
	l.sent = l.sent[1:]
	return data
}

// deliver has the message that was sent first arrive, and returns it.
func (l *lane) deliver() []byte {
	data := l.take()
	l.arrived <- data
	return data
}

func decode(data []byte, m any) {
	if err := decodeInto(encoding.GetCodecV2("proto"), data, m); err != nil {
		panic(err)
	}
}

// responseOf decodes a response of either protocol, as one of delta with the same content.
func responseOf(delta bool, data []byte) *discoverypb.DeltaDiscoveryResponse {
	resp := new(discoverypb.DeltaDiscoveryResponse)
	if delta {
		decode(data, resp)
		return resp
	}
	var all discoverypb.DiscoveryResponse
	decode(data, &all)
	resp.TypeUrl, resp.Nonce, resp.SystemVersionInfo, resp.ResourceErrors = all.TypeUrl, all.Nonce, all.VersionInfo, all.ResourceErrors
	for _, packed := range all.Resources {
		r := &discoverypb.Resource{Resource: packed}
		if packed.GetTypeUrl() == typeurl.Wrapper {
			decode(packed.GetValue(), r)
		}
		resp.Resources = append(resp.Resources, r)
	}
	return resp
}

func decodeInto(codec encoding.CodecV2, data []byte, m any) error {
	return codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(append([]byte(nil), data...))}, m)
}

// serverEnd is the server's end of a link.
type serverEnd struct {
	grpc.ServerStream
	link *link
}

func (s *serverEnd) Context() context.Context { return s.link.ctx }

func (s *serverEnd) SetHeader(metadata.MD) error { return nil }

func (s *serverEnd) SendHeader(metadata.MD) error { return nil }

func (s *serverEnd) SetTrailer(metadata.MD) {}

func (s *serverEnd) SendMsg(m any) error {
	data, err := encoding.GetCodecV2("proto").Marshal(m)
	if err == nil {
		s.link.down.send(data)
	}
	return err
}

func (s *serverEnd) RecvMsg(m any) error {
	select {
	case data := <-s.link.up.arrived:
		return decodeInto(encoding.GetCodecV2("proto"), data, m)
	case <-s.link.ctx.Done():
		return status.FromContextError(s.link.ctx.Err()).Err()
	}
}

// clientEnd is the client's end of a link.
type clientEnd struct {
	grpc.ClientStream
	link  *link
	codec encoding.CodecV2
}

// newClientEnd takes the codec of the options of a call.
func newClientEnd(l *link, opts []grpc.CallOption) *clientEnd {
	c := &clientEnd{link: l, codec: encoding.GetCodecV2("proto")}
	for _, o := range opts {
		if o, ok := o.(grpc.ForceCodecV2CallOption); ok {
			c.codec = o.CodecV2
		}
	}
	return c
}

func (c *clientEnd) Context() context.Context { return c.link.client }

func (c *clientEnd) Header() (metadata.MD, error) { return nil, nil }

func (c *clientEnd) Trailer() metadata.MD { return nil }

func (c *clientEnd) CloseSend() error { return nil }

func (c *clientEnd) SendMsg(m any) error {
	select {
	case <-c.link.over:
		return io.EOF
	default:
	}
	data, err := c.codec.Marshal(m)
	if err == nil {
		c.link.up.send(data)
	}
	return err
}

func (c *clientEnd) RecvMsg(m any) error {
	select {
	case data := <-c.link.down.arrived:
		return decodeInto(c.codec, data, m)
	case <-c.link.over:
		return c.link.err
	case <-c.link.client.Done():
		return status.FromContextError(c.link.client.Err()).Err()
	}
}
