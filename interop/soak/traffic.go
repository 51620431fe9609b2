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
	"github.com/dynxds/dynxds/mesh/meshtest/load"
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
	n, err := strconv.Atoi(strings.Join(values, ","))
	if err != nil {
		return -1
	}
	return n
}

// channel is a channel of a client, its RPCs and their outcomes.
type channel struct {
	client
	// cc is nil while the client is down.
	cc *grpc.ClientConn
	// fromDisk says that it has started with what it had on disk, and may not have the newest configuration.
	fromDisk bool
	// stop ends the traffic, and work is it.
	stop context.CancelFunc
	work sync.WaitGroup

	mu sync.Mutex
	// welcomed is when the client, since it started, was first known to have the newest configuration; zero before. RPCs
	// that began earlier may fail, and may go where they go without DPDS.
	welcomed time.Time
	// succeeded and excused count RPCs.
	succeeded, excused int
	// faults are the first violations of the invariants.
	faults []error
	// newest is the newest version that a finished RPC followed, and when it ended.
	// nil while order is not checked.
	newest map[orderKey]seen
	// recent are the last RPCs of each method that succeeded.
	recent map[string][]outcome
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

// end is a backend, and whether RPCs reach it over TLS.
type end struct {
	backend int
	secured bool
}

// end is where the RPC went.
func (o outcome) end() end { return end{o.backend(), o.secured} }

// begin opens the channel, and keeps RPCs of every kind running until end. RPCs in progress then finish.
func (c *channel) begin(r *run) {
	c.cc = r.dial(r.t, c.client)
	var ctx context.Context
	ctx, c.stop = context.WithCancel(context.Background())
	c.recent = map[string][]outcome{}
	c.judgeOrder(true)
	streams := 0
	held := load.Kind{Method: load.HeldMethod, Do: func(ctx context.Context, client testpb.TestServiceClient, opts ...grpc.CallOption) (metadata.MD, error) {
		if streams++; streams%8 == 0 {
			// Longer than policies keep an unused connection.
			return load.Hold(ctx, client, 3, 500*time.Millisecond, opts...)
		}
		return load.Hold(ctx, client, 4, 50*time.Millisecond, opts...)
	}}
	for _, kind := range slices.Concat(load.Kinds, []load.Kind{held}) {
		c.work.Go(func() {
			for ctx.Err() == nil {
				c.judge(c.do(kind), r.mesh, &r.history)
				r.pacing.rest(ctx)
			}
		})
	}
}

// end ends the traffic, and closes the channel.
func (c *channel) end() {
	c.stop()
	c.work.Wait()
	c.cc.Close()
	c.cc = nil
}

// do makes one RPC.
func (c *channel) do(kind load.Kind) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var p peer.Peer
	o := outcome{method: kind.Method, began: time.Now()}
	o.header, o.err = kind.Do(ctx, testpb.NewTestServiceClient(c.cc), grpc.Peer(&p))
	o.ended = time.Now()
	if p.Addr != nil {
		o.peer = p.Addr.String()
	}
	_, o.secured = p.AuthInfo.(credentials.TLSInfo)
	return o
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
	case err != nil && len(c.faults) < maxFaults:
		c.faults = append(c.faults, fmt.Errorf("%s, %s, began %s, took %v: %w",
			c.name, o.method, o.began.Format("15:04:05.000"), o.ended.Sub(o.began), err))
	case err != nil:
	case o.err != nil:
		c.excused++
	default:
		c.succeeded++
		all := append(c.recent[o.method], o)
		c.recent[o.method] = all[max(0, len(all)-remembered):]
	}
}

// verdict returns the error of an RPC. One may fail if its backend broke the connection, or after its cluster began to ask for
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

// welcome no longer excuses RPCs that begin after a time; a zero one excuses all.
func (c *channel) welcome(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.welcomed = at
}

// wasFresh reports whether the client had started at a time, and may not have had a configuration yet.
func (c *channel) wasFresh(at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.welcomed.IsZero() || !at.After(c.welcomed)
}

// judgeOrder turns the check of the order of versions on, from its start, or off. It stays off for
// clients with two servers: the preferred one may return with older resources than the
// other one has sent.
func (c *channel) judgeOrder(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest = nil
	if on && !c.further {
		c.newest = map[orderKey]seen{}
	}
}

const (
	// streak is how many RPCs of a kind in a row must follow the newest configuration for
	// the mesh to be settled, and remembered how many are looked at for the backends that answer.
	streak     = 10
	remembered = 300
	// maxFaults is how many errors of a channel are reported.
	maxFaults = 5
)

// arrived returns nil if the last RPCs of every method followed a configuration, whose backends are up, and those of all
// methods together reached every backend of each cluster: one method alone misses backends if its turns coincide with others'.
func (c *channel) arrived(cfg *config) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	routes, endpoints := cfg.lane(c.client, cfg.routesKey().typeURL), cfg.lane(c.client, xdsmsg.EndpointType)
	type turn struct {
		cluster string
		end
	}
	expected, reached := map[turn]bool{}, map[turn]bool{}
	for _, cluster := range cfg.used(routes) {
		spec := cfg.clusters[cluster]
		for _, b := range spec.placements[endpoints].priorities[0] {
			expected[turn{cluster, end{b, spec.security.secured()}}] = true
		}
	}
	for method, clusters := range cfg.routes[routes] {
		inARow := 0
		for _, o := range slices.Backward(c.recent[method]) {
			leads := func(cluster string) bool { return expected[turn{cluster, o.end()}] }
			if o.version() != cfg.version || o.lane() != routes || !slices.ContainsFunc(clusters, leads) {
				break
			}
			for _, cluster := range clusters {
				reached[turn{cluster, o.end()}] = true
			}
			inARow++
		}
		if inARow < streak {
			return fmt.Errorf("%s: %d RPCs in a row followed version %d, to backends of %v", method, inARow, cfg.version, clusters)
		}
	}
	for t := range expected {
		if !reached[t] {
			return fmt.Errorf("RPCs that followed version %d did not reach %v, but %v", cfg.version, t, reached)
		}
	}
	return nil
}

// faulty returns the errors so far, joined.
func (c *channel) faulty() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.faults...)
}
