package router

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/headeredit"
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

var mirrorsDropped = estats.RegisterInt64Count(estats.MetricDescriptor{
	Name:        "dynxds.mirror.dropped",
	Description: "Mirrors of RPCs (request_mirror_policies) that were not sent or not completed: too many in flight, a backend that does not keep up, or an unknown cluster.",
	Unit:        "{copy}",
	Labels:      []string{"grpc.target"},
	Default:     true,
})

// mirrors are all mirrors of a channel's RPCs: copies to another cluster whose outcome is
// ignored (request_mirror_policies). Their goroutines end with the RPC's deadline, or, if it
// has none, mirrorGrace after the RPC, or with the channel.
type mirrors struct {
	ch      *Channel
	ctx     context.Context
	cancel  context.CancelFunc
	running atomic.Int64
	dropped atomic.Int64
}

func (c *mirrors) init(ch *Channel) {
	c.ch = ch
	c.ctx, c.cancel = context.WithCancel(context.Background())
}

// close ends all mirrors. It does not wait for them: gRPC may be calling it while they wait
// for gRPC.
func (c *mirrors) close() { c.cancel() }

// MirrorsDropped returns how many mirrors were not sent or not completed, so that the RPCs
// themselves would not suffer.
func (ch *Channel) MirrorsDropped() int64 { return ch.mirrors.dropped.Load() }

func (c *mirrors) drop() {
	c.dropped.Add(1)
	if c.ch.Metrics != nil {
		mirrorsDropped.Record(c.ch.Metrics, 1, c.ch.Target())
	}
}

// mirror is one mirror of an RPC.
type mirror struct {
	mirrors  *mirrors
	decision *decision.Decision
	opts     []grpc.CallOption
	cancel   context.CancelFunc
	stop     func() bool // ends the registration with mirrors.ctx

	// queue has the messages of a streaming RPC.
	queue   chan encoded
	backlog atomic.Int64 // bytes in queue

	mu     sync.Mutex
	closed bool // queue is closed
	grace  *time.Timer
}

// newMirrors returns the mirrors of the RPC.
func (r *request) newMirrors() []*mirror {
	var all []*mirror
	for i := range r.call.route.Mirrors {
		if c := r.newMirror(&r.call.route.Mirrors[i]); c != nil {
			all = append(all, c)
		}
	}
	return all
}

func (r *request) newMirror(m *xdsresource.Mirror) *mirror {
	routes := r.call.routes
	all := &routes.Channel.mirrors
	h := Headers{authority: r.authority(), contentType: r.call.headers().contentType}
	x := routes.Matchable(r.decision.Context, r.extra.WireMethod, &h)
	if !m.Draw(&x) {
		return nil
	}
	cluster := m.Target(&x)
	if cluster == "" {
		return nil // The header that names the cluster is missing.
	}
	if all.running.Add(1) > maxMirrors || !routes.Has(cluster) {
		all.running.Add(-1)
		all.drop()
		r.mirrored(cluster, true)
		return nil
	}
	c := &mirror{mirrors: all}
	// The application's callbacks get the labels of its own RPC only.
	ctx := grpcbridge.WithoutLabelCallbacks(context.WithoutCancel(r.decision.Context))
	if deadline, ok := r.decision.Deadline(); ok {
		ctx, c.cancel = context.WithDeadline(ctx, deadline)
	} else {
		ctx, c.cancel = context.WithCancel(ctx)
	}
	c.stop = context.AfterFunc(all.ctx, c.cancel)
	d := r.decision.Copy()
	d.Context, d.Cluster = headeredit.Outgoing(ctx, m.Headers), cluster
	d.Extra = &decision.Extra{RPC: r.call, WireMethod: r.extra.WireMethod, Pinned: true}
	c.decision = d
	c.opts = r.mirrorOptions(m)
	if r.rpc.StreamDesc != nil {
		c.queue = make(chan encoded, maxBacklog)
	}
	r.call.ownMirrors().add(c)
	return c
}

// mirrorOptions returns the call options of a mirror, whose messages are already encoded.
func (r *request) mirrorOptions(m *xdsresource.Mirror) []grpc.CallOption {
	opts := outcome(r.options()).others(nil)
	opts = append(opts, resending(opts, codecOf(opts)))
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

// ownMirrors are the mirrors of one call.
type ownMirrors struct {
	mu      sync.Mutex
	mirrors []*mirror
	over    bool // the call has ended
}

// add makes the mirror end some time after the call.
func (c *ownMirrors) add(m *mirror) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over { // A filter sends the RPC once more.
		m.endLater()
		return
	}
	c.mirrors = append(c.mirrors, m)
}

// originalEnded is called when the call has ended. c may be nil.
func (c *ownMirrors) originalEnded() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, m := range c.mirrors {
		m.originalEnded()
	}
}

func (c *mirror) originalEnded() {
	c.closeSend()
	c.endLater()
}

// endLater has the mirror end some time from now, unless it has a deadline.
func (c *mirror) endLater() {
	if _, ok := c.decision.Deadline(); ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grace = time.AfterFunc(mirrorGrace, c.cancel)
}

// end releases the resources that a mirror holds.
func (c *mirror) end() {
	c.cancel()
	c.stop()
	c.mu.Lock()
	if c.grace != nil {
		c.grace.Stop()
	}
	c.mu.Unlock()
	c.mirrors.running.Add(-1)
}

// mirrorUnary sends the mirrors of a unary RPC.
func (r *request) mirrorUnary(req any) {
	all := r.newMirrors()
	if len(all) == 0 {
		return
	}
	message, ok := encode(codecOf(r.options()), req)
	for _, c := range all {
		if !ok {
			c.mirrors.drop()
			c.end()
			r.mirrored(c.decision.Cluster, true)
			continue
		}
		r.mirrored(c.decision.Cluster, false)
		call := r.call
		method := r.extra.WireMethod
		go func() {
			defer c.end()
			_ = call.invoker(c.decision, method, message, ignored{}, call.routes.Channel.ClientConn, c.opts...)
		}()
	}
}

// mirrorStream returns a stream that sends its messages to the mirrors as well.
func (r *request) mirrorStream(s grpc.ClientStream) grpc.ClientStream {
	all := r.newMirrors()
	if len(all) == 0 {
		return s
	}
	for _, c := range all {
		r.mirrored(c.decision.Cluster, false)
		go c.run(r.call, r.extra.WireMethod)
	}
	return &mirroringStream{ClientStream: s, codec: codecOf(r.options()), mirrors: all}
}

type mirroringStream struct {
	grpc.ClientStream
	codec   encoding.CodecV2
	mirrors []*mirror
}

func (s *mirroringStream) SendMsg(m any) error {
	message, ok := encode(s.codec, m)
	err := s.ClientStream.SendMsg(m)
	for _, c := range s.mirrors {
		switch {
		case err != nil: // The RPC itself did not send it either.
		case ok:
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
func (c *mirror) send(m encoded) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
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
	if c.decision.Err() == nil {
		c.mirrors.drop()
	}
	c.cancel()
}

func (c *mirror) closeSend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && c.queue != nil {
		c.closed = true
		close(c.queue)
	}
}

// run sends the messages in the queue, and discards the responses.
func (c *mirror) run(call *call, method string) {
	defer c.end()
	s, err := call.streaming.streamer(c.decision, call.rpc.StreamDesc, call.routes.Channel.ClientConn, method, c.opts...)
	if err != nil {
		return
	}
	var receiver sync.WaitGroup
	receiver.Go(func() {
		for s.RecvMsg(ignored{}) == nil && call.rpc.StreamDesc.ServerStreams {
		}
	})
	defer receiver.Wait()
	c.sendAll(s)
}

func (c *mirror) sendAll(s grpc.ClientStream) {
	for {
		select {
		case m, ok := <-c.queue:
			if !ok {
				_ = s.CloseSend()
				return
			}
			c.backlog.Add(-int64(len(m)))
			if s.SendMsg(m) != nil {
				return // The stream has ended, which the receiver finds.
			}
		case <-c.decision.Done():
			return
		}
	}
}
