package soak

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/interop/load"
	"github.com/dynxds/dynxds/testutils"
)

// patience is the deadline of RPCs. It ends those that hang.
const patience = 30 * time.Second

// outcome is one RPC that has ended.
type outcome struct {
	method       string
	began, ended time.Time
	peer         string
	// secured says that it was over TLS.
	secured bool
	header  metadata.MD
	err     error
}

// version and backend are from the response headers, or -1.
func (o outcome) version() int { return number(o.header.Get(versionHeader)) }
func (o outcome) backend() int { return number(o.header.Get(testutils.BackendIDHeader)) }

// says reports whether the error has one of the texts.
func (o outcome) says(texts []string) bool {
	said := strings.ReplaceAll(o.err.Error(), `\"`, `"`) // gRPC quotes the error of a connection within its own
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(said, text) })
}

// lane is the lane of the routes.
func (o outcome) lane() lane { return lane(strings.Join(o.header.Get(laneHeader), ",")) }

func number(values []string) int {
	if len(values) != 1 {
		return -1
	}
	n, err := strconv.Atoi(values[0])
	if err != nil {
		return -1
	}
	return n
}

// traffic is the RPCs of one channel, and their outcomes.
type traffic struct {
	work sync.WaitGroup

	mu sync.Mutex
	// fresh says that the client has started and may not have had a configuration yet, and welcomed is when that
	// was over: RPCs that fail are excused, and may go where they go without DPDS.
	fresh    bool
	welcomed time.Time
	// succeeded and excused count RPCs by method.
	succeeded, excused map[string]int
	faults             []string
	// newest is the newest version that a finished RPC followed, and when it ended.
	// Empty while order is not checked.
	newest map[orderKey]seen
	// recent is what settle waits for; nil if it does not.
	recent map[string]*recent
}

// orderKey identifies RPCs whose versions must not decrease: those of a method with the
// routes of one resource.
type orderKey struct {
	method string
	routes key
	lane   lane
}

type seen struct {
	version int
	ended   time.Time
}

// recent is who answered the last RPCs of a method.
type recent struct {
	// since bounds the RPCs that count: they began later.
	since time.Time
	// expected are the backends of the newest version, which is version, for the
	// client, whose routes are those of the lane.
	version  int
	lane     lane
	expected map[end]bool
	inARow   int
	from     map[end]bool
}

// end is a backend, and whether RPCs reach it over TLS.
type end struct {
	backend int
	secured bool
}

// end is where the RPC went.
func (o outcome) end() end { return end{o.backend(), o.secured} }

// start keeps RPCs of every kind running until the context ends. RPCs in progress then
// finish.
func (c *channel) start(ctx context.Context, m *mesh, h *history) {
	if c.succeeded == nil {
		c.succeeded, c.excused = map[string]int{}, map[string]int{}
	}
	c.newest = map[orderKey]seen{}
	client := testpb.NewTestServiceClient(c.cc)
	for _, kind := range load.Kinds {
		c.work.Go(func() {
			c.repeat(ctx, func(rpc context.Context, opts ...grpc.CallOption) outcome {
				header, err := kind.Do(rpc, client, opts...)
				return outcome{method: kind.Method, header: header, err: err}
			}, m, h)
		})
	}
	c.work.Go(func() {
		held := 0
		c.repeat(ctx, func(rpc context.Context, opts ...grpc.CallOption) outcome {
			held++
			whole, every := hold(held%8 == 0)
			header, err := load.Hold(rpc, client, whole, every, opts...)
			return outcome{method: load.HeldMethod, header: header, err: err}
		}, m, h)
	})
}

func (c *channel) repeat(ctx context.Context, do func(context.Context, ...grpc.CallOption) outcome, m *mesh, h *history) {
	for ctx.Err() == nil {
		rpc, cancel := context.WithTimeout(context.Background(), patience)
		var p peer.Peer
		began := time.Now()
		o := do(rpc, grpc.Peer(&p))
		cancel()
		o.began, o.ended = began, time.Now()
		if p.Addr != nil {
			o.peer = p.Addr.String()
		}
		_, o.secured = p.AuthInfo.(credentials.TLSInfo)
		c.judge(o, m, h)
		m.pacing.rest(ctx.Done())
	}
}

// judge checks and counts one RPC.
func (c *channel) judge(o outcome, m *mesh, h *history) {
	who := c.client
	who.starting = c.wasFresh(o.began)
	err := m.verdict(who, o, h)
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.err != nil && who.starting {
		err = nil
	}
	if err == nil && o.err == nil {
		err = c.inOrder(o, h.routes(o.version()))
	}
	switch {
	case err != nil:
		c.faults = append(c.faults, fmt.Sprintf("%s, %s, began %s, took %v: %v",
			c.name, o.method, o.began.Format("15:04:05.000"), o.ended.Sub(o.began), err))
	case o.err != nil:
		c.excused[o.method]++
	default:
		c.succeeded[o.method]++
		if r := c.recent[o.method]; r != nil {
			r.observe(o)
		}
	}
}

// verdict returns the fault of an RPC. One may fail if its backend broke the connection, or after its cluster began to ask for
// stricter security: when the connection was kept for the linger, if there are no endpoints yet for such a connection, or if a
// backend broke that in its handshake.
func (m *mesh) verdict(who client, o outcome, h *history) error {
	live := h.since(o.began)
	if o.err == nil {
		return allowed(live, who, o)
	}
	const linger = time.Second
	ends, missing, unreached := tightened(live, who.dpds.names())
	lingered := o.peer != "" && o.ended.Sub(o.began) >= linger && o.says(ends)
	if status.Code(o.err) == codes.Unavailable && (lingered || o.peer == "" && o.says(missing)) {
		return nil
	}
	for _, b := range m.backends {
		broken := o.peer == "" && o.says(unreached) && o.says([]string{"handshake failed"}) || b.Addr() == o.peer
		if broken && status.Code(o.err) == codes.Unavailable && b.brokeIn(o.began, o.ended) {
			return nil
		}
	}
	return fmt.Errorf("it failed (peer %q): %w", o.peer, o.err)
}

// inOrder returns an error if an RPC that began after another one had ended followed an
// older version of the same resource. When the Listener switches to another resource and
// back before the client has unsubscribed from the first one, the client uses the first
// one as it was, until it receives an update. The caller holds mu.
func (c *channel) inOrder(o outcome, routes key) error {
	if c.newest == nil {
		return nil
	}
	k := orderKey{o.method, routes, o.lane()}
	last := c.newest[k]
	if o.version() < last.version && o.began.After(last.ended) {
		return fmt.Errorf("it followed version %d of %v, after an RPC that followed version %d had ended", o.version(), routes, last.version)
	}
	if o.version() > last.version {
		c.newest[k] = seen{o.version(), o.ended}
	}
	return nil
}

func (c *channel) isFresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fresh
}

// startAfresh excuses RPCs that fail, or no longer does.
func (c *channel) startAfresh(fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fresh && !fresh {
		c.welcomed = time.Now()
	}
	c.fresh = fresh
}

// wasFresh reports whether an RPC began while the client was fresh.
func (c *channel) wasFresh(began time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fresh || !began.After(c.welcomed)
}

// judgeOrder turns the check of the order of versions on, from its start, or off.
func (c *channel) judgeOrder(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest = nil
	if on {
		c.newest = map[orderKey]seen{}
	}
}

// streak is how many RPCs of a kind in a row must follow the newest configuration for
// the mesh to be settled.
const streak = 10

func (r *recent) observe(o outcome) {
	if o.began.Before(r.since) {
		return
	}
	if o.version() != r.version || o.lane() != r.lane || !r.expected[o.end()] {
		r.inARow = 0
		clear(r.from)
		return
	}
	r.inARow++
	r.from[o.end()] = true
}

// expect begins to watch for RPCs that follow the configuration, whose backends are up.
func (c *channel) expect(cfg *config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent = map[string]*recent{}
	routes, endpoints := cfg.lane(c.client, cfg.routesType()), cfg.lane(c.client, xdsmsg.EndpointType)
	for method, clusters := range cfg.routes[routes] {
		r := &recent{since: time.Now(), version: cfg.version, lane: routes, expected: map[end]bool{}, from: map[end]bool{}}
		for _, cluster := range clusters {
			spec := cfg.clusters[cluster]
			for _, b := range spec.placements[endpoints].priorities[0] {
				r.expected[end{b, spec.security.secured()}] = true
			}
		}
		c.recent[method] = r
	}
}

// arrived returns nil when RPCs do what expect was called for.
func (c *channel) arrived() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for method, r := range c.recent {
		if r.inARow < streak || len(r.from) < len(r.expected) {
			return fmt.Errorf("%s: %d RPCs in a row followed version %d, to %v of %v", method, r.inARow, r.version, r.from, r.expected)
		}
	}
	return nil
}

// faulty returns the faults so far, joined; the first few of many.
func (c *channel) faulty() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, f := range c.faults[:min(5, len(c.faults))] {
		errs = append(errs, errors.New(f))
	}
	if n := len(c.faults) - len(errs); n > 0 {
		errs = append(errs, fmt.Errorf("and %d more on this channel", n))
	}
	return errors.Join(errs...)
}
