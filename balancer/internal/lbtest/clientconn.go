// Package lbtest has fixtures for tests of policies: a channel whose SubConns connect over a
// simulated network. It follows gRPC's rules (SubConns report from one goroutine, back off
// after a failure, and become IDLE when a connection ends), so that gRPC's own policies run on
// it, also in a synctest bubble.
package lbtest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/await"
	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// Backoff is how long a SubConn stays in TRANSIENT_FAILURE.
const Backoff = time.Second

// Reach is what happens to connections to an address.
type Reach int

// Connections are established at once, refused, hang, end before the server has spoken, or hang while existing ones go on.
const (
	Up Reach = iota
	Refused
	Silent
	Mute
	Full
)

// ClientConn is the channel of a policy under test, on a network that reaches all addresses at first.
type ClientConn struct {
	balancer.ClientConn
	// OnUpdate, if not nil, is called at each UpdateState.
	OnUpdate func()
	// Tag, if not nil, returns what to add to the addresses of connections that have
	// credentials of their own, so that each has another Reach.
	Tag func(credentials.Bundle) string
	// Server, if not nil, returns what RPCs on a SubConn to the address go to.
	Server func(addr string) grpc.ClientConnInterface
	// Meter, if not nil, records the channel's metrics.
	Meter *Meter

	serializer *tree.Loop

	state    await.State
	reach    map[string]Reach
	subConns []*SubConn
	made     map[string]int // SubConns by address
	updates  int            // calls of UpdateState
	latest   balancer.State // of the last one
}

// NewClientConn returns a ClientConn.
func NewClientConn() *ClientConn {
	return &ClientConn{
		reach: make(map[string]Reach), made: make(map[string]int), serializer: tree.NewLoop(func() {}), latest: tree.Waiting(connectivity.Idle),
	}
}

// Set changes what happens to connections to addr. Unless it is Up or Full, existing ones break; those
// that hang proceed if it is not Silent or Full.
func (cc *ClientConn) Set(addr string, r Reach) {
	cc.state.Look(func() { cc.reach[addr] = r })
	for _, sc := range cc.subConnsTo(addr) {
		cc.serializer.Post(func() { sc.networkChanged(r) })
	}
}

// UpdateState implements balancer.ClientConn.
func (cc *ClientConn) UpdateState(s balancer.State) {
	if cc.OnUpdate != nil {
		cc.OnUpdate()
	}
	cc.state.Change(func() { cc.updates, cc.latest = cc.updates+1, s })
}

// NewSubConn implements balancer.ClientConn.
func (cc *ClientConn) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	if len(addrs) == 0 {
		return nil, fmt.Errorf("a SubConn needs an address")
	}
	sc := &SubConn{cc: cc, Addr: addrs[0].Addr, Address: addrs[0], listener: opts.StateListener}
	//lint:ignore SA1019 It is how a SubConn gets credentials of its own.
	if bundle := opts.CredsBundle; cc.Tag != nil && bundle != nil {
		sc.Addr += cc.Tag(bundle)
	}
	cc.state.Look(func() {
		cc.subConns = append(cc.subConns, sc)
		cc.made[sc.Addr]++
	})
	return sc, nil
}

// ResolveNow implements balancer.ClientConn.
func (cc *ClientConn) ResolveNow(resolver.ResolveNowOptions) {}

// Target implements balancer.ClientConn.
func (cc *ClientConn) Target() string { return "test:///target" }

// MetricsRecorder implements balancer.ClientConn.
func (cc *ClientConn) MetricsRecorder() stats.MetricsRecorder { return newRecorder(cc.Meter) }

// Updates returns how often the policy called UpdateState.
func (cc *ClientConn) Updates() (n int) {
	cc.state.Look(func() { n = cc.updates })
	return n
}

// State returns what the policy last passed to UpdateState.
func (cc *ClientConn) State() (s balancer.State) {
	cc.state.Look(func() { s = cc.latest })
	return s
}

// Await returns once the policy has reported s, or ctx is done.
func (cc *ClientConn) Await(ctx context.Context, s connectivity.State) error {
	if err := cc.state.Wait(ctx, func() bool { return cc.latest.ConnectivityState == s }); err != nil {
		return fmt.Errorf("the policy is %v, not %v: %w", cc.State().ConnectivityState, s, err)
	}
	return nil
}

// Pick picks with the latest picker for an RPC that ends at once, and returns the address, or
// the error.
func (cc *ClientConn) Pick(ctx context.Context) (string, error) {
	result, err := cc.State().Picker.Pick(balancer.PickInfo{Ctx: ctx})
	if err != nil {
		return "", err
	}
	if result.Done != nil {
		result.Done(balancer.DoneInfo{})
	}
	return Picked(result).Addr, nil
}

// Picked returns the SubConn of a pick, even if a policy has wrapped it.
func Picked(result balancer.PickResult) *SubConn {
	sc := result.SubConn
	if w, ok := sc.(interface{ Unwrap() balancer.SubConn }); ok {
		sc = w.Unwrap()
	}
	return sc.(*SubConn)
}

// Labels returns the labels for metrics of the SubConns to an address.
func (cc *ClientConn) Labels(addr string) (all []string) {
	for _, sc := range cc.subConnsTo(addr) {
		all = append(all, fmt.Sprint(grpcbridge.SubchannelLabelsOf(sc.Address)))
	}
	return all
}

// Open returns the addresses of the SubConns that are not shut down, sorted.
func (cc *ClientConn) Open() []string {
	addrs := []string{}
	cc.state.Look(func() {
		for _, sc := range cc.subConns {
			addrs = append(addrs, sc.Addr)
		}
	})
	slices.Sort(addrs)
	return addrs
}

// Made returns how many SubConns to the address there have been.
func (cc *ClientConn) Made(addr string) (n int) {
	cc.state.Look(func() { n = cc.made[addr] })
	return n
}

func (cc *ClientConn) subConnsTo(addr string) (found []*SubConn) {
	cc.state.Look(func() {
		for _, sc := range cc.subConns {
			if sc.Addr == addr {
				found = append(found, sc)
			}
		}
	})
	return found
}

func (cc *ClientConn) drop(sc *SubConn) {
	cc.state.Look(func() {
		cc.subConns = slices.DeleteFunc(cc.subConns, func(other *SubConn) bool { return other == sc })
	})
}

// SubConn is a connection to one address. Its fields except the exported ones are used by the
// serializer.
type SubConn struct {
	balancer.SubConn
	Addr string
	// Address is what it was made with.
	Address resolver.Address

	cc       *ClientConn
	listener func(balancer.SubConnState)
	state    connectivity.State
	backoff  *time.Timer
	producer func() // closes the producer; nil if there is none
}

// Connect implements balancer.SubConn.
func (sc *SubConn) Connect() {
	sc.cc.serializer.Post(func() {
		if sc.state == connectivity.Idle {
			sc.report(connectivity.Connecting, nil)
			sc.attempt()
		}
	})
}

// Shutdown implements balancer.SubConn.
func (sc *SubConn) Shutdown() {
	sc.cc.drop(sc)
	sc.cc.serializer.Post(func() {
		if sc.backoff != nil {
			sc.backoff.Stop()
		}
		if sc.state != connectivity.Shutdown {
			sc.report(connectivity.Shutdown, nil)
		}
	})
}

// GetOrBuildProducer implements balancer.SubConn, for one producer. It is closed with the connection.
func (sc *SubConn) GetOrBuildProducer(b balancer.ProducerBuilder) (balancer.Producer, func()) {
	p, end := b.Build(sc.cc.Server(sc.Addr))
	sc.cc.serializer.Post(func() { sc.producer = end })
	return p, end
}

func (sc *SubConn) attempt() {
	var reach Reach
	sc.cc.state.Look(func() { reach = sc.cc.reach[sc.Addr] })
	switch reach {
	case Up:
		sc.report(connectivity.Ready, nil)
	case Refused:
		sc.fail(fmt.Errorf("dial %s: connection refused", sc.Addr))
	case Mute:
		sc.fail(fmt.Errorf("error reading server preface: %w", io.EOF))
	}
}

func (sc *SubConn) fail(err error) {
	sc.report(connectivity.TransientFailure, err)
	sc.backoff = time.AfterFunc(Backoff, func() { sc.cc.serializer.Post(sc.backedOff) })
}

func (sc *SubConn) backedOff() {
	if sc.state == connectivity.TransientFailure {
		sc.report(connectivity.Idle, nil)
	}
}

func (sc *SubConn) report(s connectivity.State, err error) {
	sc.state = s
	if s != connectivity.Ready && sc.producer != nil {
		sc.producer()
		sc.producer = nil
	}
	sc.listener(balancer.SubConnState{ConnectivityState: s, ConnectionError: err})
}

func (sc *SubConn) networkChanged(r Reach) {
	switch {
	case r == Full:
	case sc.state == connectivity.Ready && r != Up:
		sc.report(connectivity.Idle, nil)
	case sc.state == connectivity.Connecting && r != Silent:
		sc.attempt()
	}
}
