package lbtest

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Waits is part of the error of a pick that has to wait for a connection.
const Waits = "no SubConn is available"

// Bed is what a tree runs on. Its connections do not linger.
type Bed struct {
	T       testing.TB
	Network *Network
	CC      *ClientConn
	Loop    *tree.Loop
	Env     *tree.Env
}

// NewBed returns a Bed without recorded metrics.
func NewBed(t testing.TB) *Bed {
	b := &Bed{T: t, Network: NewNetwork(), Loop: tree.NewLoop(func() {})}
	b.CC = NewClientConn(b.Network)
	b.Env = &tree.Env{Loop: b.Loop, ClientConn: b.CC, Setup: conns.Setup{Pool: conns.NewPool(b.CC, b.Loop.Post, 0)}}
	b.Env.Endpoints = conns.NewRegistry(&b.Env.Setup, func() {})
	return b
}

// Record has the metrics of policies that are made from now on recorded. It is called on the loop.
func (b *Bed) Record() *Meter {
	b.CC.Meter, b.Env.Recorded = new(Meter), true
	return b.CC.Meter
}

// Fixture is one policy on a Bed.
type Fixture[P tree.Policy] struct {
	*Bed
	Policy P
	closed bool
}

// NewFixture returns a Fixture of the policy that build returns. Its state is the
// channel's. The policy is closed at the end of the test.
func NewFixture[P tree.Policy](t testing.TB, build func(env *tree.Env, changed func()) P) *Fixture[P] {
	f := &Fixture[P]{Bed: NewBed(t)}
	f.Loop.Do(func() {
		f.Policy = build(f.Env, f.publish)
		f.publish()
	})
	t.Cleanup(func() {
		if !f.closed {
			f.Loop.Do(f.Policy.Close)
		}
	})
	return f
}

func (f *Fixture[P]) publish() { f.CC.UpdateState(f.Policy.State()) }

// Update calls fn on the loop, publishes the policy's state, and waits for what follows.
func (f *Fixture[P]) Update(fn func()) {
	f.Loop.Do(func() {
		fn()
		f.publish()
	})
	synctest.Wait()
}

// Close closes the policy before the end of the test.
func (f *Fixture[P]) Close() {
	f.closed = true
	f.Loop.Do(f.Policy.Close)
	synctest.Wait()
}

// Subtest returns a parallel test in a synctest bubble of its own, with what build makes.
func Subtest[F any](build func(testing.TB) F, run func(*testing.T, F)) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { run(t, build(t)) })
	}
}

// Expect checks where the next picks go, or a part of the error with which they fail.
func (b *Bed) Expect(when, want string) {
	b.T.Helper()
	synctest.Wait()
	for range 3 {
		b.ExpectPick(context.Background(), when, want)
	}
}

// ExpectPick is Expect for one RPC with a context. It does not wait before the pick.
func (b *Bed) ExpectPick(ctx context.Context, when, want string) {
	b.T.Helper()
	addr, err := b.CC.Pick(ctx)
	if err == nil && addr != want || err != nil && !strings.Contains(err.Error(), want) {
		b.T.Errorf("%s: a pick goes to %q (%v), want %q", when, addr, err, want)
	}
}

// ExpectOpen checks which connections are open, by their addresses, sorted.
func (b *Bed) ExpectOpen(when string, want ...string) {
	b.T.Helper()
	synctest.Wait()
	if diff := cmp.Diff(append([]string{}, want...), b.CC.Open()); diff != "" {
		b.T.Errorf("%s: open connections (-want +got):\n%s", when, diff)
	}
}

// ExpectState checks the connectivity state of the channel.
func (b *Bed) ExpectState(when string, want connectivity.State) {
	b.T.Helper()
	if got := b.CC.State().ConnectivityState; got != want {
		b.T.Errorf("%s: the state is %v, want %v", when, got, want)
	}
}

// Counts returns how many of n picks had which outcome: an address or an error.
func (b *Bed) Counts(n int) map[string]int {
	counts := make(map[string]int)
	for range n {
		outcome, err := b.CC.Pick(context.Background())
		if err != nil {
			outcome = err.Error()
		}
		counts[outcome]++
	}
	return counts
}

// Locality returns a locality of weight 1, with an endpoint of weight 1 at each address.
func Locality(zone string, addrs ...string) xdsresource.Locality {
	l := xdsresource.Locality{ID: xdsresource.LocalityID{Zone: zone}, Weight: 1}
	for _, a := range addrs {
		l.Endpoints = append(l.Endpoints, xdsresource.Endpoint{Address: a, Weight: 1})
	}
	return l
}

// Cluster returns a round_robin cluster.
func Cluster(name string) *xdsresource.Cluster {
	return &xdsresource.Cluster{Name: name, LBPolicy: "round_robin", Limits: xdsresource.Limits{MaxRequests: xdsresource.DefaultMaxRequests}}
}
