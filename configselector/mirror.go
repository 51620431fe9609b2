package configselector

import (
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/xdsresource"
)

const (
	// maxCopies bounds the copies of RPCs that are under way on one channel.
	maxCopies = 256
	// maxBacklog and maxBacklogBytes bound the messages that wait to be sent
	// on one copied stream. A copy that falls behind further is given up.
	maxBacklog      = 64
	maxBacklogBytes = 1 << 20
	// copyGrace is how long a copy may go on after an RPC that has no deadline
	// to end the copy by.
	copyGrace = 15 * time.Second
)

var copiesDropped = estats.RegisterInt64Count(estats.MetricDescriptor{
	Name:        "dynxds.mirror.dropped",
	Description: "Copies of RPCs (request_mirror_policies) that were not made or given up: too many under way, a backend that does not keep up, or an unknown cluster.",
	Unit:        "{copy}",
	Labels:      []string{"grpc.target"},
	Default:     true,
})

// copies are the copies of a channel's RPCs. Their goroutines end with the
// copied RPC's deadline, copyGrace after it, or with the channel.
type copies struct {
	ch      *Channel
	ctx     context.Context
	cancel  context.CancelFunc
	running atomic.Int64
	dropped atomic.Int64
}

func (c *copies) init(ch *Channel) {
	c.ch = ch
	c.ctx, c.cancel = context.WithCancel(context.Background())
}

// close ends all copies. It does not wait for them, as gRPC may call it while
// they wait for gRPC.
func (c *copies) close() { c.cancel() }

// CopiesDropped returns how many copies of RPCs were not made or given up, so
// that the RPCs themselves would not suffer.
func (ch *Channel) CopiesDropped() int64 { return ch.copies.dropped.Load() }

func (c *copies) drop() {
	c.dropped.Add(1)
	if c.ch.Metrics != nil {
		copiesDropped.Record(c.ch.Metrics, 1, c.ch.target())
	}
}

// copied is one copy of an RPC.
type copied struct {
	copies   *copies
	decision *decision.Decision
	opts     []grpc.CallOption
	cancel   context.CancelFunc
	stop     func() bool // lets go of copies.ctx

	// queue has the messages of a streaming RPC.
	queue   chan encoded
	backlog atomic.Int64 // bytes in queue

	mu     sync.Mutex
	closed bool // queue is
	grace  *time.Timer
}

// newCopies returns the copies to make of the RPC.
func (r *request) newCopies() []*copied {
	if codecOf(r.rpc.Options) == nil {
		return nil // gRPC is about to refuse the RPC.
	}
	var all []*copied
	for i := range r.call.route.Mirrors {
		if c := r.newCopy(&r.call.route.Mirrors[i]); c != nil {
			all = append(all, c)
		}
	}
	return all
}

func (r *request) newCopy(m *xdsresource.Mirror) *copied {
	s, all := r.call.s, &r.call.s.ch.copies
	h := headers{authority: r.authority(), contentType: r.call.headers().contentType}
	x := s.matchable(r.decision.Context, r.extra.WireMethod, &h)
	if !m.Draw(&x) {
		return nil
	}
	cluster := m.Target(&x)
	if cluster == "" {
		return nil // The RPC does not say where.
	}
	if all.running.Add(1) > maxCopies || !s.has(cluster) {
		all.running.Add(-1)
		all.drop()
		return nil
	}
	c := &copied{copies: all}
	ctx := context.WithoutCancel(r.decision.Context)
	if deadline, ok := r.decision.Deadline(); ok {
		ctx, c.cancel = context.WithDeadline(ctx, deadline)
	} else {
		ctx, c.cancel = context.WithCancel(ctx)
	}
	c.stop = context.AfterFunc(all.ctx, c.cancel)
	if len(m.Headers) > 0 {
		md, _ := metadata.FromOutgoingContext(ctx)
		if md == nil {
			md = metadata.MD{}
		}
		m.Headers.Apply(md)
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	d := r.decision.Copy()
	d.Context, d.Cluster = ctx, cluster
	d.Extra = &decision.Extra{RPC: r.call, WireMethod: r.extra.WireMethod, Pinned: true}
	c.decision = d
	c.opts = r.copyOptions(m)
	r.call.copying().add(c)
	return c
}

// copyOptions returns the call options of a copy. The copy's messages come
// encoded.
func (r *request) copyOptions(m *xdsresource.Mirror) []grpc.CallOption {
	var o outcome
	opts := append(o.split(r.options()), grpc.ForceCodecV2(resend{codecOf(r.rpc.Options)}))
	authority := r.authority()
	switch {
	case m.Authority != "":
		authority = m.Authority
	case m.ShadowSuffix && !r.call.s.ch.Secure:
		// No certificate covers the shadow of a name.
		authority = shadow(authority)
	}
	if own := r.call.s.ch.Authority; authority != "" && (authority != own || r.extra.Authority != "") {
		opts = append(opts, grpc.CallAuthority(authority))
	}
	return opts
}

// shadow puts "-shadow" behind the host of an authority.
func shadow(authority string) string {
	host, port := authority, ""
	if i := strings.LastIndexByte(authority, ':'); i >= 0 && i > strings.LastIndexByte(authority, ']') {
		host, port = authority[:i], authority[i:]
	}
	if host == "" {
		return authority
	}
	return host + "-shadow" + port
}

// copying is what a call knows of its copies.
type copying struct {
	mu     sync.Mutex
	copies []*copied
	over   bool // the call has ended
}

// add has the copy end some time after the call.
func (c *copying) add(copy *copied) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		copy.originalEnded()
		return
	}
	c.copies = append(c.copies, copy)
}

// originalEnded is called when the call has ended. c may be nil.
func (c *copying) originalEnded() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, copy := range c.copies {
		copy.originalEnded()
	}
}

func (c *copied) originalEnded() {
	c.closeSend()
	if _, ok := c.decision.Deadline(); ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grace = time.AfterFunc(copyGrace, c.cancel)
}

// end lets go of what a copy holds.
func (c *copied) end() {
	c.cancel()
	c.stop()
	c.mu.Lock()
	if c.grace != nil {
		c.grace.Stop()
	}
	c.mu.Unlock()
	c.copies.running.Add(-1)
}

// copyUnary sends the copies of a unary RPC.
func (r *request) copyUnary(req any) {
	if r.call.copying() == nil {
		return
	}
	all := r.newCopies()
	if len(all) == 0 {
		return
	}
	message, ok := encode(codecOf(r.rpc.Options), req)
	for _, c := range all {
		if !ok {
			c.copies.drop()
			c.end()
			continue
		}
		call := r.call
		method := r.extra.WireMethod
		go func() {
			defer c.end()
			_ = call.invoker(c.decision, method, message, ignored{}, call.s.ch.ClientConn, c.opts...)
		}()
	}
}

// copyStream returns a stream that sends the copies of a streaming RPC what it
// is sent itself.
func (r *request) copyStream(s grpc.ClientStream) grpc.ClientStream {
	if r.call.copying() == nil {
		return s
	}
	all := r.newCopies()
	if len(all) == 0 {
		return s
	}
	for _, c := range all {
		c.queue = make(chan encoded, maxBacklog)
		go c.run(r.call, r.extra.WireMethod)
	}
	return &copyingStream{ClientStream: s, request: r, copies: all}
}

type copyingStream struct {
	grpc.ClientStream
	request *request
	copies  []*copied
}

func (s *copyingStream) SendMsg(m any) error {
	message, ok := encode(codecOf(s.request.rpc.Options), m)
	err := s.ClientStream.SendMsg(m)
	for _, c := range s.copies {
		switch {
		case err != nil: // The original did not send it either.
		case ok:
			c.send(message)
		default:
			c.giveUp()
		}
	}
	return err
}

func (s *copyingStream) CloseSend() error {
	for _, c := range s.copies {
		c.closeSend()
	}
	return s.ClientStream.CloseSend()
}

// send puts a message into the queue, or gives the copy up if it is full.
func (c *copied) send(m encoded) {
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
	c.giveUpLocked()
}

// giveUp ends a copy that would not be one.
func (c *copied) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.giveUpLocked()
}

func (c *copied) giveUpLocked() {
	if !c.closed && c.decision.Err() == nil {
		c.copies.drop()
	}
	c.cancel()
	c.closeQueueLocked()
}

func (c *copied) closeSend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeQueueLocked()
}

func (c *copied) closeQueueLocked() {
	if !c.closed && c.queue != nil {
		c.closed = true
		close(c.queue)
	}
}

// run sends the messages in the queue. What comes back is read and forgotten.
func (c *copied) run(call *call, method string) {
	defer c.end()
	s, err := call.streaming.streamer(c.decision, call.rpc.StreamDesc, call.s.ch.ClientConn, method, c.opts...)
	if err != nil {
		return
	}
	var receiver sync.WaitGroup
	receiver.Go(func() {
		for s.RecvMsg(ignored{}) == nil && call.rpc.StreamDesc.ServerStreams {
		}
	})
	defer receiver.Wait()
	if err := c.sendAll(s); err != nil && err != io.EOF {
		c.cancel()
	}
}

func (c *copied) sendAll(s grpc.ClientStream) error {
	for {
		select {
		case m, ok := <-c.queue:
			if !ok {
				return s.CloseSend()
			}
			c.backlog.Add(-int64(len(m)))
			if err := s.SendMsg(m); err != nil {
				return err
			}
		case <-c.decision.Done():
			return c.decision.Err()
		}
	}
}
