package balancer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree is the policy over a fake network.
type tree struct {
	*lbtest.Bed
	policy grpcbalancer.Balancer
	// last is the State of the last update, to make the next one from.
	last balancer.State
}

func newTree(t testing.TB) *tree { return newTreeOf(lbtest.NewBed(t)) }

// newRecordedTree returns a tree whose metrics are recorded.
func newRecordedTree(t testing.TB) *tree {
	bed := lbtest.NewBed(t)
	bed.Record()
	return newTreeOf(bed)
}

func newTreeOf(b *lbtest.Bed) *tree {
	tr := &tree{Bed: b, last: balancer.State{Subscribe: subscriptions{}.subscribe}}
	tr.policy = grpcbalancer.Get(balancer.Name).Build(tr.CC, grpcbalancer.BuildOptions{})
	b.T.Cleanup(tr.policy.Close)
	return tr
}

func test(t *testing.T, run func(*testing.T, *tree)) { subtest(run)(t) }

func subtest(run func(*testing.T, *tree)) func(*testing.T) { return lbtest.Subtest(newTree, run) }

// changed returns clusters with the changes; nil removes one.
func changed(clusters pmap.Map[*balancer.ClusterState], changes states) pmap.Map[*balancer.ClusterState] {
	edit := clusters.Edit()
	for name, c := range changes {
		if c == nil {
			edit.Delete(name)
		} else {
			edit.Set(name, c)
		}
	}
	return edit.Map()
}

// update gives the policy a State of the next version, with last's clusters
// except for the changes.
func (tr *tree) update(changes states, more ...func(*balancer.State)) error {
	s := tr.last
	s.Version++
	s.Clusters = changed(s.Clusters, changes)
	for _, m := range more {
		m(&s)
	}
	tr.last = s
	return tr.policy.UpdateClientConnState(grpcbalancer.ClientConnState{
		ResolverState: balancer.SetState(grpcresolver.State{}, &s),
	})
}

// pick picks for an RPC that the last State's version sent to the cluster.
func (tr *tree) pick(cluster string) (string, error) {
	return tr.CC.Pick(&decision.Decision{
		Context: context.Background(), Version: tr.last.Version, Cluster: cluster,
	})
}

// reach checks where picks for the cluster go, once a first one activated it.
func (tr *tree) reach(cluster, want string) {
	tr.T.Helper()
	tr.pick(cluster)
	synctest.Wait()
	if addr, err := tr.pick(cluster); err != nil || addr != want {
		tr.T.Errorf("a pick for cluster %s goes to %q (%v), want %q", cluster, addr, err, want)
	}
}

func serving(addrs ...string) *balancer.ClusterState {
	return &balancer.ClusterState{
		Cluster:   lbtest.Cluster(addrs[0]),
		Endpoints: &xdsresource.Endpoints{Name: addrs[0], Localities: []xdsresource.Locality{lbtest.Locality("", addrs...)}},
	}
}

// over is an aggregate cluster.
func over(underlying ...underlying) *balancer.ClusterState {
	list := new(balancer.Underlying)
	states := list.States.Edit()
	for _, u := range underlying {
		list.Names = append(list.Names, u.name)
		states.Set(u.name, u.state)
	}
	list.States = states.Map()
	return &balancer.ClusterState{
		Cluster:    &xdsresource.Cluster{Name: "A", Kind: xdsresource.ClusterAggregate},
		Underlying: list,
	}
}

// underlying is a cluster under an aggregate one.
type underlying struct {
	name  string
	state *balancer.ClusterState
}

func reselect(cluster string, err error) func(*balancer.State) {
	return func(s *balancer.State) {
		s.Reselect = func(*decision.Decision) (string, error) { return cluster, err }
	}
}

func TestPickRules(t *testing.T) {
	t.Parallel()
	noRoute := status.Error(codes.Unavailable, "no route any more")
	const version = 2 // of the picker, which knows cluster a
	for _, tc := range []struct {
		name     string
		decision *decision.Decision
		given    func(*balancer.State)
		want     string // the address, or part of the error
		isStatus bool
		reason   rpctrace.Reason // of the trace
	}{
		{name: "no Decision: the interceptors are missing",
			want: "dynxds interceptors are not installed on its channel; dial with dynxds.DialOptions", isStatus: true},
		{name: "known cluster, same version", decision: &decision.Decision{Cluster: "a", Version: version}, want: "a:1"},
		{name: "known cluster, older Decision", decision: &decision.Decision{Cluster: "a", Version: version - 1}, want: "a:1"},
		{name: "known cluster, newer Decision", decision: &decision.Decision{Cluster: "a", Version: version + 1}, want: "a:1"},
		{name: "unknown cluster, newer Decision: waits for the next picker",
			decision: &decision.Decision{Cluster: "x", Version: version + 1}, given: reselect("", noRoute),
			want: grpcbalancer.ErrNoSubConnAvailable.Error()},
		{name: "unknown cluster, older Decision: routed again",
			decision: &decision.Decision{Cluster: "x", Version: version - 1}, given: reselect("a", nil), want: "a:1"},
		{name: "unknown cluster, same version: routed again",
			decision: &decision.Decision{Cluster: "x", Version: version}, given: reselect("a", nil), want: "a:1"},
		{name: "no route any more: the RPC ends with that status",
			decision: &decision.Decision{Cluster: "x", Version: version - 1}, given: reselect("", noRoute),
			want: "no route any more", isStatus: true, reason: rpctrace.NoCluster},
		{name: "routed again to an unknown cluster",
			decision: &decision.Decision{Cluster: "x", Version: version - 1}, given: reselect("y", nil),
			want: `cluster "y"`, reason: rpctrace.NoCluster},
		{name: "no way to route again",
			decision: &decision.Decision{Cluster: "x", Version: version - 1}, want: `cluster "x"`, reason: rpctrace.NoCluster},
		{name: "no configuration: RPCs fail, those that wait for ready do not",
			decision: &decision.Decision{Cluster: "a", Version: version - 1}, given: withErr(noRoute), want: "no route any more", reason: rpctrace.NoConfig},
		{name: "no configuration, newer Decision: waits for the next picker",
			decision: &decision.Decision{Cluster: "a", Version: version + 1}, given: withErr(noRoute),
			want: grpcbalancer.ErrNoSubConnAvailable.Error()},
	} {
		t.Run(tc.name, subtest(func(t *testing.T, tr *tree) {
			tr.update(states{"a": serving("a:1")})
			tr.reach("a", "a:1")
			given := tc.given
			if given == nil {
				given = func(*balancer.State) {}
			}
			tr.update(nil, given)

			ctx := context.Background()
			var reason rpctrace.Reason
			if tc.decision != nil {
				with := rpctrace.With(ctx, &rpctrace.Trace{Picked: func(p rpctrace.Pick) { reason = p.Reason }})
				tc.decision.Context, tc.decision.Extra = ctx, &decision.Extra{RPC: hash(7), Trace: rpctrace.FromContext(with)}
				ctx = tc.decision
			}
			addr, err := tr.CC.Pick(ctx)
			xdstest.Equal(t, "the reason in the trace", tc.reason, reason)
			if err == nil && addr != tc.want || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the pick gave %q and error %v, want %q", addr, err, tc.want)
			}
			s, isStatus := status.FromError(err)
			if err != nil && isStatus != tc.isStatus {
				t.Errorf("the error is a status error: %v, want %v", isStatus, tc.isStatus)
			}
			if err != nil && isStatus && s.Code() != codes.Unavailable {
				t.Errorf("code is %v, want UNAVAILABLE", s.Code())
			}
		}))
	}
}

// withErr is a State without configuration.
func withErr(err error) func(*balancer.State) {
	return func(s *balancer.State) {
		s.Clusters, s.Err = pmap.Map[*balancer.ClusterState]{}, err
	}
}

// gRFC A83: credentials of a filter are shown the metadata of the cluster that the RPC is picked for in the end, also if it is routed
// again because its cluster was removed.
func TestFiltersAreShownTheMetadataOfThePickedCluster(t *testing.T) {
	test(t, func(t *testing.T, tr *tree) {
		for _, name := range []string{"a", "b"} {
			s := serving(name + ":1")
			s.Cluster.Metadata = httpfilter.Metadata{{Key: "gcp", Value: name}}
			xdstest.NoError(t, tr.update(states{name: s}))
			tr.reach(name, name+":1")
		}
		d := &decision.Decision{Context: t.Context(), Version: tr.last.Version, Cluster: "a", Extra: new(decision.Extra)}
		for _, want := range []string{"a", "b"} {
			_, err := tr.CC.Pick(d)
			xdstest.NoError(t, err)
			got, _ := httpfilter.PickedMetadata(d).Get("gcp")
			xdstest.Equal(t, "metadata", any(want), got)
			xdstest.NoError(t, tr.update(states{"a": nil}, reselect("b", nil)))
			synctest.Wait()
		}
	})
}

func TestUpdateIsAnsweredBeforeItReturns(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		given grpcresolver.State
		err   error
		state connectivity.State
		fails string
	}{
		{"by a picker", balancer.SetState(grpcresolver.State{}, &balancer.State{Version: 1}), nil,
			connectivity.Idle, "does not have"},
		{"by an error", balancer.SetState(grpcresolver.State{}, &balancer.State{Version: 1, Err: errors.New("no Listener")}), nil,
			connectivity.TransientFailure, "no Listener"},
		{"also if the resolver is another one", grpcresolver.State{}, grpcbalancer.ErrBadResolverState,
			connectivity.TransientFailure, "dial a target of the scheme xds or dynxds"},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			cc := lbtest.NewClientConn()
			policy := grpcbalancer.Get(balancer.Name).Build(cc, grpcbalancer.BuildOptions{})
			defer policy.Close()
			err := policy.UpdateClientConnState(grpcbalancer.ClientConnState{ResolverState: tc.given})
			if !errors.Is(err, tc.err) {
				t.Errorf("UpdateClientConnState returned %v, want %v", err, tc.err)
			}
			if cc.Updates() == 0 {
				t.Fatal("UpdateClientConnState returned before UpdateState was called")
			}
			xdstest.Equal(t, "the channel", tc.state, cc.State().ConnectivityState)
			_, err = cc.Pick(&decision.Decision{Context: context.Background()})
			if err == nil || !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("a pick fails with %v, want %q", err, tc.fails)
			}
		})
	}
}

func TestExitIdleConnectsTheDefaultClusters(t *testing.T) {
	test(t, func(t *testing.T, tr *tree) {
		tr.policy.ExitIdle() // before any State there is nothing to connect
		tr.update(states{"a": serving("a:1"), "b": serving("b:1"), "c": serving("c:1")},
			func(s *balancer.State) { s.Default = []string{"a", "c", "unknown"} })
		tr.policy.ExitIdle()
		synctest.Wait()
		tr.ExpectOpen("open connections", "a:1", "c:1")
		xdstest.Equal(t, "the state after ExitIdle", connectivity.Ready, tr.CC.State().ConnectivityState)
	})
}

// lingered waits, in a synctest bubble, until connections no longer linger.
func lingered() {
	time.Sleep(balancer.Linger)
	synctest.Wait()
}

func TestRemovedClusterIsClosedAfterThePickerIsReplaced(t *testing.T) {
	test(t, func(t *testing.T, tr *tree) {
		tr.update(states{"a": serving("a:1"), "dormant": serving("d:1")})
		tr.reach("a", "a:1")
		old := tr.CC.State().Picker
		openAtPush := -1
		tr.CC.OnUpdate = func() {
			if openAtPush < 0 {
				openAtPush = len(tr.CC.Open())
			}
		}
		tr.update(states{"a": nil, "dormant": nil})
		lingered()
		xdstest.Equal(t, "open connections when the picker was replaced", 1, openAtPush)
		tr.ExpectOpen("the cluster was removed")
		// A pick with the old picker must not restore a cluster.
		for _, name := range []string{"a", "dormant"} {
			old.Pick(grpcbalancer.PickInfo{Ctx: &decision.Decision{Context: context.Background(), Cluster: name}})
		}
		synctest.Wait()
		tr.ExpectOpen("a pick with the old picker")
	})
}

func TestBurstOfReportsReplacesThePickerFewTimes(t *testing.T) {
	test(t, func(t *testing.T, tr *tree) {
		clusters := make(states)
		var names []string
		for i := range 100 {
			name := fmt.Sprint("c", i)
			names = append(names, name)
			clusters[name] = serving(name + ":1")
		}
		tr.update(clusters, func(s *balancer.State) { s.Default = names })
		before := tr.CC.Updates()
		tr.policy.ExitIdle()
		synctest.Wait()
		// Each cluster alone would make at least 3: activated, connecting, ready.
		if n := tr.CC.Updates() - before; n > 250 {
			t.Errorf("100 clusters that connect at once replaced the picker %d times", n)
		}
	})
}
