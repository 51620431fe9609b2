package router

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/headeredit"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

const (
	maxMirrors = 256 // in flight on one channel
	// maxBacklog and maxBacklogBytes bound the messages that wait to be sent on one
	// mirrored stream. A mirror that exceeds them is dropped.
	maxBacklog      = 64
	maxBacklogBytes = 1 << 20
	// mirrorGrace is how long a mirror may continue after an RPC without a deadline.
	mirrorGrace = 15 * time.Second
)

var mirrorsDropped = grpcbridge.NewMetric(estats.MetricDescriptor{
	Type:        estats.MetricTypeIntCount,
	Name:        "dynxds.mirror.dropped",
	Description: "Mirrors of RPCs (request_mirror_policies) that were not sent or not completed: too many in flight, a backend that does not keep up, or an unknown cluster.",
	Unit:        "{copy}",
	Labels:      []string{"grpc.target"},
	Default:     true,
})

// dropMirror counts a mirror that is not sent or not completed, so that the RPC itself does not suffer.
func (ch *Channel) dropMirror() { mirrorsDropped.Record(ch.Metrics, 1, ch.Target()) }

// mirror is a copy of an RPC to another cluster, whose end nobody waits for (request_mirror_policies). Its goroutine ends with
// the RPC's deadline, or, if it has none, mirrorGrace after the RPC. With the channel gRPC ends all RPCs, and so mirrors.
type mirror struct {
	ch      *Channel
	attempt attempt
	cancel  context.CancelFunc
	ended   func() bool // ends the registration with the context of the RPC

	queue   chan grpcbridge.Encoded // messages to send
	backlog atomic.Int64            // bytes in queue

	mu       sync.Mutex
	complete bool // queue is closed
}

// mirrored begins the mirrors of the RPC, and returns a stream that sends the messages of s to them as well.
func (r *request) mirrored(s grpc.ClientStream) grpc.ClientStream {
	var all []*mirror
	for i := range r.call.app.Route.Mirrors {
		if m := r.newMirror(&r.call.app.Route.Mirrors[i]); m != nil {
			all = append(all, m)
			go m.run()
		}
	}
	if len(all) == 0 {
		return s
	}
	return &mirroringStream{ClientStream: s, codec: grpcbridge.RawCodecOf(r.opts), mirrors: all}
}

func (r *request) newMirror(m *xdsresource.Mirror) *mirror {
	routes := r.call.routes
	ch := routes.Channel
	x := r.call.app.RPC
	x.Context, x.Method, x.Authority = r.decision.Context, r.extra.WireMethod, r.authority()
	cluster := m.Target(&x)
	if cluster == "" || !matching.Draw(m.FractionPerMillion) { // Without a cluster the header that names it is missing.
		return nil
	}
	dropped := ch.mirrors.Add(1) > maxMirrors || !routes.has(cluster)
	if t := r.extra.Trace; t != nil {
		t.Mirrored(rpctrace.Mirror{Cluster: cluster, Dropped: dropped})
	}
	if dropped {
		ch.mirrors.Add(-1)
		ch.dropMirror()
		return nil
	}
	c := &mirror{ch: ch}
	// The application's callbacks get the labels of its own RPC only.
	ctx := grpcbridge.WithoutLabelCallbacks(context.WithoutCancel(r.decision.Context))
	deadline, limited := r.decision.Deadline()
	if limited {
		ctx, c.cancel = context.WithDeadline(ctx, deadline)
	} else {
		ctx, c.cancel = context.WithCancel(ctx)
	}
	c.attempt.of(r.call, &decision.Decision{
		Context: headeredit.Outgoing(ctx, m.Headers), Channel: ch.ClientConn, Version: routes.Version, Method: r.decision.Method, Cluster: cluster,
		Extra: &decision.Extra{RPC: r.call, WireMethod: r.extra.WireMethod, Pinned: true},
	}, r.mirrorOptions(m))
	c.queue = make(chan grpcbridge.Encoded, maxBacklog)
	if r.call.unary() {
		c.queue = make(chan grpcbridge.Encoded, 1)
	}
	again := r.call.over.Err() != nil // A filter sends the RPC once more.
	c.ended = context.AfterFunc(r.call.over, func() {
		if !again {
			c.closeSend()
		}
		if !limited {
			_ = retries.Wait(ctx, mirrorGrace)
			c.cancel()
		}
	})
	return c
}

// mirrorOptions returns the call options of a mirror, whose messages are already encoded.
func (r *request) mirrorOptions(m *xdsresource.Mirror) []grpc.CallOption {
	opts := callOptions(r.opts).without(nil, reports)
	opts = append(opts, grpc.ForceCodecV2(grpcbridge.RawCodecOf(opts)))
	authority := r.authority()
	switch {
	case m.Authority != "":
		authority = m.Authority
	case m.ShadowSuffix && !r.call.routes.Channel.Secure:
		// With TLS, no certificate would match the name.
		authority = shadow(authority)
	}
	if authority != r.call.routes.Channel.Authority || r.extra.Authority != "" {
		opts = append(opts, grpc.CallAuthority(authority))
	}
	return opts
}

// shadow appends "-shadow" to the host of an authority.
func shadow(authority string) string {
	host, port := authority, ""
	if i := strings.LastIndexByte(authority, ':'); i > strings.LastIndexByte(authority, ']') {
		host, port = authority[:i], authority[i:]
	}
	if host == "" {
		return authority
	}
	return host + "-shadow" + port
}

// end releases what a mirror holds, and what refers to it.
func (c *mirror) end() {
	c.cancel()
	c.ended()
	c.ch.mirrors.Add(-1)
}

type mirroringStream struct {
	grpc.ClientStream
	codec   grpcbridge.RawCodec
	mirrors []*mirror
}

func (s *mirroringStream) SendMsg(m any) error {
	message, unencoded := s.codec.Encode(m)
	err := s.ClientStream.SendMsg(m)
	for _, c := range s.mirrors {
		switch {
		case err != nil: // The RPC itself did not send it either.
		case unencoded == nil:
			c.send(message)
		default:
			c.giveUp()
		}
	}
	return err
}

func (s *mirroringStream) CloseSend() error {
	for _, c := range s.mirrors {
		c.closeSend()
	}
	return s.ClientStream.CloseSend()
}

// send queues a message, or drops the mirror if the queue is full.
func (c *mirror) send(m grpcbridge.Encoded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.complete {
		return
	}
	if c.backlog.Add(int64(len(m))) <= maxBacklogBytes || len(c.queue) == 0 {
		select {
		case c.queue <- m:
			return
		default:
		}
	}
	c.giveUp()
}

// giveUp ends a mirror that would be incomplete.
func (c *mirror) giveUp() {
	if c.attempt.decision.Err() == nil {
		c.ch.dropMirror()
	}
	c.cancel()
}

func (c *mirror) closeSend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.complete {
		c.complete = true
		close(c.queue)
	}
}

// run sends the messages in the queue, and discards the responses.
func (c *mirror) run() {
	defer c.end()
	a := &c.attempt
	if a.open(); a.unopened {
		return
	}
	if a.call.unary() {
		if c.sendAll(); a.message != nil {
			_ = a.RecvMsg((*grpcbridge.Encoded)(nil))
		}
		return
	}
	var receiver sync.WaitGroup
	receiver.Go(func() {
		for a.RecvMsg((*grpcbridge.Encoded)(nil)) == nil && a.call.rpc.StreamDesc.ServerStreams {
		}
	})
	defer receiver.Wait()
	c.sendAll()
}

func (c *mirror) sendAll() {
	for {
		select {
		case m, ok := <-c.queue:
			if !ok {
				_ = c.attempt.CloseSend()
				return
			}
			c.backlog.Add(-int64(len(m)))
			if c.attempt.SendMsg(m) != nil {
				return // The stream has ended, which the receiver finds.
			}
		case <-c.attempt.decision.Done():
			return
		}
	}
}
