package relay

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// A watcher may still be called after its watch was stopped. Such calls count nothing as unreachable and bring
// no member back, and are done.
func TestCallsAfterTheEndOfAWatch(t *testing.T) {
	t.Parallel()
	r, g := newTestGroup(t)
	one := &controlplane.Demand{TypeURL: typeurl.Cluster, Name: "c", First: 1}
	g.demand([]*controlplane.Demand{one}, nil)
	s := g.subs[keyOf(one)]
	all := collection{s}
	g.demand(nil, []*controlplane.Demand{one})

	calls := 0
	done := func() { calls++ }
	away := &xdsclient.Error{Kind: xdsclient.KindUnreachable, Err: errors.New("away")}
	raw := &resource{Envelope: xdsclient.Envelope{Name: "m", Version: "1"}, message: &anypb.Any{TypeUrl: typeurl.Cluster}}
	s.AmbientError(away, done)
	s.ResourceChanged(nil, away, done)
	s.ResourceChanged(raw, nil, done)
	all.AmbientError(xdsclient.Member{}, away, done)
	all.MemberChanged(xdsclient.Member{Name: "m"}, raw, nil, done)
	all.CollectionChanged(nil, done)
	xdstest.Equal(t, "calls that are done", 6, calls)
	xdstest.Equal(t, "what the relay has", Stats{Groups: 1, Upstreams: 1}, r.Stats())
	if len(g.members)+len(g.dirty) > 0 || r.away.Load() != 0 {
		t.Errorf("%d members, %d changes and %d subscriptions that are away are left", len(g.members), len(g.dirty), r.away.Load())
	}
}

// probe is an answer that is called.
type probe struct{ called func(renewed bool) }

func (p *probe) change(_ *controlplane.Tx, renewed bool) { p.called(renewed) }

// A change that the store refuses does not hold up the others or their heartbeats, and a collection has its members when it is answered.
func TestARefusedChange(t *testing.T) {
	t.Parallel()
	_, g := newTestGroup(t)
	for range 8 { // maps have no order
		of := fmt.Sprintf("xdstp:///%s/%d", typeurl.Cluster, len(g.members))
		had := false
		g.changed(&probe{func(renewed bool) { had = renewed && g.store.Get(typeurl.Cluster, of) != nil }}, true)
		for _, name := range []string{of, "*"} {
			m := &member{Member: xdsclient.Member{Name: name}, group: g, key: memberKey{typeURL: typeurl.Cluster, name: name}, users: 1}
			m.raw = &resource{message: &anypb.Any{TypeUrl: typeurl.Cluster}}
			if name == "*" {
				m.denial = status.New(codes.Internal, "no resource has this name")
			}
			g.members[m.key] = m
			g.changed(m, false)
		}
		g.flush()
		g.flushing = true
		if !had {
			t.Fatal("a collection was answered before it had its members, or without its heartbeat")
		}
	}
}

// newTestGroup returns a relay whose management server is unreachable, with one group. The demands of the tests are not the store's, so nothing is
// brought into it.
func newTestGroup(t *testing.T) (*Relay, *group) {
	t.Helper()
	cfg, err := bootstrap.Parse("test", []byte(`{
		"xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}], "server_features": ["delta"]}],
		"node": {"id": "relay"}
	}`))
	xdstest.NoError(t, err)
	r, err := New(Options{Bootstrap: cfg, AwayDelay: time.Hour})
	xdstest.NoError(t, err)
	t.Cleanup(r.Close)
	g, err := r.join("g", new(corepb.Node), "peer")
	xdstest.NoError(t, err)
	g.flushing = true
	return r, g
}

// Others get at the group while a client subscribes to many names at once. (A client cannot see when the lock is held.)
func TestManyDemandsLeaveTurnsToOthers(t *testing.T) {
	t.Parallel()
	const n = 30_000
	_, g := newTestGroup(t)
	all := make([]*controlplane.Demand, n)
	for i := range all {
		all[i] = &controlplane.Demand{TypeURL: typeurl.Cluster, Name: fmt.Sprint(i), First: 1}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.demand(all, nil)
	}()
	turns := 0
	for seen := 0; seen < n; {
		g.mu.Lock()
		seen = len(g.subs)
		g.mu.Unlock()
		if 0 < seen && seen < n {
			turns++
		}
	}
	<-done
	if turns == 0 {
		t.Errorf("nobody else had a turn before there were %d subscriptions", n)
	}
}

// The nodes of groups without clients are limited, with a share for each peer, and given back.
func TestNodesOfIdleGroupsAreBounded(t *testing.T) {
	t.Parallel()
	r, g := newTestGroup(t)
	g.leave()
	xdstest.Equal(t, "bytes of a group that lingers", g.nodeBytes, r.idleNodes.Used())
	if again, err := r.join("g", new(corepb.Node), "peer"); again != g || err != nil || r.idleNodes.Used() != 0 {
		t.Errorf("got another group, an error (%v), or bytes of one in use (%d)", err, r.idleNodes.Used())
	}
	r.idleNodes.Add("another", bounds.NodeBytes)
	ended := make(chan struct{})
	g.done = append(g.done, func() { close(ended) })
	g.leave()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
	}
	if got := r.Stats().Groups; got > 0 || r.idleNodes.Used() != bounds.NodeBytes {
		t.Errorf("%d groups linger without room for their nodes, of which %d bytes are left", got, r.idleNodes.Used()-bounds.NodeBytes)
	}
}

// What lingers is limited for all groups together, with a share for each, and given back.
func TestAllThatLingersIsBounded(t *testing.T) {
	t.Parallel()
	r, g := newTestGroup(t)
	const room = 15
	r.lingering.Add(new(group), maxLingering-2*room) // a group may have as much as it leaves
	demands := make([]*controlplane.Demand, 2*room)
	for i := range demands {
		demands[i] = &controlplane.Demand{TypeURL: typeurl.Cluster, Name: fmt.Sprint(i), First: 1}
	}
	check := func(when string, want int64) {
		xdstest.Equal(t, when+" subscriptions that linger", want, r.lingering.Used()-(maxLingering-2*room))
	}
	linger := func() {
		g.demand(demands, nil)
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, d := range demands {
			g.subs[keyOf(d)].raw = &resource{Envelope: xdsclient.Envelope{Name: d.Name, Version: "1"}, message: &anypb.Any{TypeUrl: typeurl.Cluster}}
			g.endDemand(d)
		}
	}
	linger()
	check("without demands", room)
	g.demand(demands, nil)
	check("in use again", 0)
	linger()
	r.Close()
	check("after the end of the group", 0)
}
