package lbtest

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Bed is what a tree runs on. Its connections do not linger.
type Bed struct {
	T    testing.TB
	CC   *ClientConn
	Loop *tree.Loop
	Env  *tree.Env
}

// NewBed returns a Bed without recorded metrics.
func NewBed(t testing.TB) *Bed {
	b := &Bed{T: t, CC: NewClientConn(), Loop: tree.NewLoop(func() {})}
	b.Env = &tree.Env{Loop: b.Loop, ClientConn: b.CC, Setup: conns.Setup{Pool: conns.NewPool(b.CC, b.Loop.Post, 0)}}
	b.Env.Endpoints = conns.NewRegistry(&b.Env.Setup, func() {})
	return b
}

// Record has the metrics of policies that are made from now on recorded. It is called on the loop.
func (b *Bed) Record() { b.CC.Meter, b.Env.Recorded = new(Meter), true }

// Subtest returns a parallel test in a synctest bubble of its own, with what build makes.
func Subtest[F any](build func(testing.TB) F, run func(*testing.T, F)) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { run(t, build(t)) })
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
