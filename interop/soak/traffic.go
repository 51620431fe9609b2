package soak

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/interop/load"
	"github.com/dynxds/dynxds/testutils"
)

const (
	// pace is the time between two RPCs of one kind on one channel.
	pace = 2 * time.Millisecond
	// patience is the deadline of RPCs, and half of the time that a settling may
	// take. It is there to end what hangs.
	patience = 30 * time.Second
)

// outcome is one RPC that has ended.
type outcome struct {
	method       string
	began, ended time.Time
	peer         string
	header       metadata.MD
	err          error
}

// version and backend are what the response headers say, or -1.
func (o outcome) version() int { return number(o.header.Get(versionHeader)) }
func (o outcome) backend() int { return number(o.header.Get(testutils.BackendIDHeader)) }

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

// traffic is the RPCs of one channel, and what became of them.
type traffic struct {
	work sync.WaitGroup

	mu sync.Mutex
	// succeeded and excused count RPCs by method.
	succeeded, excused map[string]int
	faults             []string
	// newest is the newest version that an RPC went by which has ended, and when
	// it ended. Empty while order is not judged.
	newest map[orderKey]seen
	// recent is what a settling waits for; nil if none does.
	recent map[string]*recent
}

// orderKey is that among which versions only rise: the RPCs of a method whose routes
// are those of one resource.
type orderKey struct {
	method string
	routes key
	lane   lane
}

type seen struct {
	version int
	ended   time.Time
}

// recent is who answered the RPCs of a method of late.
type recent struct {
	// since bounds the RPCs that count: they began later.
	since time.Time
	// expected are the backends of the newest version, which is version, for the
	// client, whose routes are those of the lane.
	version  int
	lane     lane
	expected map[int]bool
	inARow   int
	from     map[int]bool
}

// start keeps RPCs of every kind running until the context ends. Those under
// way then end in their own time.
func (c *channel) start(ctx context.Context, m *mesh, h *history) {
	c.succeeded, c.excused, c.newest = map[string]int{}, map[string]int{}, map[orderKey]seen{}
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
			d := 50 * time.Millisecond
			if held%8 == 0 {
				// Longer than the policies keep a connection that is given up.
				d = 1500 * time.Millisecond
			}
			header, err := load.Hold(rpc, client, d, opts...)
			return outcome{method: load.HeldMethod, header: header, err: err}
		}, m, h)
	})
}

func (c *channel) repeat(ctx context.Context, do func(context.Context, ...grpc.CallOption) outcome, m *mesh, h *history) {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
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
		c.judge(o, m, h)
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// judge takes one RPC into account.
func (c *channel) judge(o outcome, m *mesh, h *history) {
	err := m.verdict(c.client, o, h)
	c.mu.Lock()
	defer c.mu.Unlock()
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

// verdict says what is wrong with an RPC. One that failed because its backend
// broke the connection is as it should be.
func (m *mesh) verdict(who client, o outcome, h *history) error {
	if o.err == nil {
		return allowed(h.since(o.began), who, o)
	}
	for _, b := range m.backends {
		if b.Addr() == o.peer && status.Code(o.err) == codes.Unavailable && b.brokeIn(o.began, o.ended) {
			return nil
		}
	}
	return fmt.Errorf("it failed (peer %q): %w", o.peer, o.err)
}

// inOrder says whether an RPC that began after another one had ended went by an
// older version of the same resource. When the Listener leads from one resource to
// another and back before the client has told the control plane that it gave up the
// first one, it goes on with what it has of that, until it hears more. The caller
// holds mu.
func (c *channel) inOrder(o outcome, routes key) error {
	if c.newest == nil {
		return nil
	}
	k := orderKey{o.method, routes, o.lane()}
	last := c.newest[k]
	if o.version() < last.version && o.began.After(last.ended) {
		return fmt.Errorf("it went by version %d of %v, after an RPC that went by version %d had ended", o.version(), routes, last.version)
	}
	if o.version() > last.version {
		c.newest[k] = seen{o.version(), o.ended}
	}
	return nil
}

// judgeOrder begins to judge the order of versions again, or ends it.
func (c *channel) judgeOrder(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest = nil
	if on {
		c.newest = map[orderKey]seen{}
	}
}

// streak is how many RPCs of a kind in a row a settling wants to see go where
// the newest configuration says.
const streak = 10

func (r *recent) observe(o outcome) {
	if o.began.Before(r.since) {
		return
	}
	if o.version() != r.version || o.lane() != r.lane || !r.expected[o.backend()] {
		r.inARow = 0
		clear(r.from)
		return
	}
	r.inARow++
	r.from[o.backend()] = true
}

// expect begins to watch for the RPCs to go where the configuration says, its
// backends being up.
func (c *channel) expect(cfg *config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent = map[string]*recent{}
	routes, endpoints := cfg.lane(c.client, cfg.routesType()), cfg.lane(c.client, xdsmsg.EndpointType)
	for method, clusters := range cfg.routes[routes] {
		r := &recent{since: time.Now(), version: cfg.version, lane: routes, expected: map[int]bool{}, from: map[int]bool{}}
		for _, cluster := range clusters {
			for _, b := range cfg.clusters[cluster].placements[endpoints].priorities[0] {
				r.expected[b] = true
			}
		}
		c.recent[method] = r
	}
}

// arrived says what RPCs do not do yet of what they are expected to, nil if
// that is nothing.
func (c *channel) arrived() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for method, r := range c.recent {
		if r.inARow < streak || len(r.from) < len(r.expected) {
			return fmt.Errorf("%s: %d RPCs in a row went by version %d, to %v of %v", method, r.inARow, r.version, r.from, r.expected)
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
