package balancer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/serviceconfig"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// chooser is a policy as RLS has it: it has a child for each cluster in its config, and its RPCs go to the first of these.
type chooser struct {
	cc       grpcbalancer.ClientConn
	children map[string]grpcbalancer.Balancer
	states   map[string]grpcbalancer.State // of the children
	first    string
	deaf     bool
}

func init() { grpcbalancer.Register(chooserBuilder{}) }

type chooserBuilder struct{}

func (chooserBuilder) Name() string { return "test_chooser" }

func (chooserBuilder) Build(cc grpcbalancer.ClientConn, _ grpcbalancer.BuildOptions) grpcbalancer.Balancer {
	return &chooser{cc: cc, children: map[string]grpcbalancer.Balancer{}, states: map[string]grpcbalancer.State{}}
}

type chooserConfig struct {
	serviceconfig.LoadBalancingConfig `json:"-"`
	Clusters                          []string
	Deaf                              bool // what the children report waits for another config
}

func (chooserBuilder) ParseConfig(text json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	c := new(chooserConfig)
	return c, json.Unmarshal(text, c)
}

func (c *chooser) UpdateClientConnState(s grpcbalancer.ClientConnState) error {
	config := s.BalancerConfig.(*chooserConfig)
	clusters := config.Clusters
	c.first, c.deaf = clusters[0], config.Deaf
	builder := grpcbalancer.Get(balancer.TargetPolicy)
	for name, child := range c.children {
		if !slices.Contains(clusters, name) {
			child.Close()
			delete(c.children, name)
		}
	}
	for _, name := range clusters {
		if c.children[name] == nil {
			c.children[name] = builder.Build(childConn{c.cc, c, name}, grpcbalancer.BuildOptions{})
		}
		config, err := builder.(grpcbalancer.ConfigParser).ParseConfig(json.RawMessage(fmt.Sprintf(`{"cluster": %q}`, name)))
		if err != nil {
			return err
		}
		_ = c.children[name].UpdateClientConnState(grpcbalancer.ClientConnState{ResolverState: s.ResolverState, BalancerConfig: config})
	}
	c.publish()
	return nil
}

// publish passes on the state of the first child.
func (c *chooser) publish() {
	if s, ok := c.states[c.first]; ok && !c.deaf {
		c.cc.UpdateState(s)
	}
}

// childConn is the channel of a child.
type childConn struct {
	grpcbalancer.ClientConn
	of   *chooser
	name string
}

func (c childConn) UpdateState(s grpcbalancer.State) {
	c.of.states[c.name] = s
	c.of.publish()
}

func (c *chooser) ResolverError(error)                                                {}
func (c *chooser) UpdateSubConnState(grpcbalancer.SubConn, grpcbalancer.SubConnState) {}
func (c *chooser) ExitIdle()                                                          {}

func (c *chooser) Close() {
	for _, child := range c.children {
		child.Close()
	}
}

// choosing is a plugin that chooses the first of the clusters.
func choosing(clusters ...string) *balancer.ClusterState {
	return chooserOf(chooserConfig{Clusters: clusters})
}

func chooserOf(config chooserConfig) *balancer.ClusterState {
	text, _ := json.Marshal(config)
	return &balancer.ClusterState{
		Cluster:   &xdsresource.Cluster{Name: plugged, Kind: xdsresource.ClusterPlugin, LBPolicy: "test_chooser", LBConfig: string(text)},
		Endpoints: new(xdsresource.Endpoints),
	}
}

const plugged = "cluster_specifier_plugin:p"

// subscriptions are those of a balancer.
type subscriptions map[string]int

func (s subscriptions) Subscribe(name string) func() {
	s[name]++
	return func() {
		if s[name]--; s[name] == 0 {
			delete(s, name)
		}
	}
}

// source is a Subscriber, which has to be comparable.
type source struct{ subscriptions }

func newSource() *source { return &source{subscriptions{}} }

func (s *source) expect(t *testing.T, when string, names ...string) {
	t.Helper()
	synctest.Wait()
	xdstest.Equal(t, "subscriptions "+when, strings.Join(names, " "), strings.Join(slices.Sorted(maps.Keys(s.subscriptions)), " "))
	for name, n := range s.subscriptions {
		xdstest.Equal(t, "subscriptions of "+name+" "+when, 1, n)
	}
}

func by(s *source) func(*balancer.State) { return func(state *balancer.State) { state.Subscriber = s } }

func TestAPluginsClustersAreSubscribed(t *testing.T) {
	test(t, func(t *testing.T, tr *tree) {
		s := newSource()
		xdstest.NoError(t, tr.update(states{plugged: choosing("a", "b")}, by(s)))
		s.expect(t, "before an RPC")
		_, err := tr.pick(plugged)
		if err != grpcbalancer.ErrNoSubConnAvailable {
			t.Errorf("the first pick: %v, want that it waits", err)
		}
		s.expect(t, "after an RPC", "a", "b")
		_, err = tr.pick(plugged)
		if err != grpcbalancer.ErrNoSubConnAvailable {
			t.Errorf("a pick before the cluster is known: %v, want that it waits", err)
		}
		xdstest.NoError(t, tr.update(states{"a": serving("a:1"), "b": serving("b:1")}))
		synctest.Wait()
		tr.reach(plugged, "a:1")
		xdstest.NoError(t, tr.update(states{plugged: choosing("b")}))
		s.expect(t, "of the second config", "b")
		tr.reach(plugged, "b:1")
		xdstest.NoError(t, tr.update(states{plugged: nil}))
		s.expect(t, "without the plugin")
	})
}

// Another source of configurations has its own subscriptions, and those of the one before end.
func TestAnotherSourceTakesSubscriptionsOver(t *testing.T) {
	test(t, func(t *testing.T, tr *tree) {
		one, two := newSource(), newSource()
		xdstest.NoError(t, tr.update(states{plugged: choosing("a"), "a": serving("a:1")}, by(one)))
		tr.pick(plugged)
		one.expect(t, "of the first", "a")
		tr.reach(plugged, "a:1")
		xdstest.NoError(t, tr.update(nil, by(two)))
		one.expect(t, "of the first, later")
		two.expect(t, "of the second", "a")
		tr.reach(plugged, "a:1")
		tr.policy.Close()
		two.expect(t, "of a closed policy")
	})
}

// A cluster that fails or goes has its RPCs fail or wait, and those of a cluster that cannot be chosen fail.
func TestAPluginsClustersFail(t *testing.T) {
	test(t, func(t *testing.T, tr *tree) {
		s := newSource()
		xdstest.NoError(t, tr.update(states{plugged: choosing("a"), "a": {Err: fmt.Errorf("cluster a is missing")}}, by(s)))
		tr.pick(plugged)
		synctest.Wait()
		tr.pick(plugged)
		synctest.Wait()
		if _, err := tr.pick(plugged); err == nil || !strings.Contains(err.Error(), "cluster a is missing") {
			t.Errorf("a pick for a cluster that is missing: %v", err)
		}
		xdstest.NoError(t, tr.update(states{"a": serving("a:1")}))
		tr.reach(plugged, "a:1")
		xdstest.NoError(t, tr.update(states{"a": nil}))
		_, err := tr.pick(plugged)
		if err != grpcbalancer.ErrNoSubConnAvailable {
			t.Errorf("a pick for a cluster that is no longer in the State: %v, want that it waits", err)
		}
		for _, name := range []string{"", plugged} {
			xdstest.NoError(t, tr.update(states{plugged: choosing(name)}))
			synctest.Wait()
			if _, err := tr.pick(plugged); err == nil || !strings.Contains(err.Error(), "cannot be a cluster of it") {
				t.Errorf("a pick for cluster %q: %v", name, err)
			}
		}
	})
}

// RLS hears of the state of a target after the target has it: while it takes one for a target that can still connect, RPCs wait and
// do not fail, as it may have another target for them.
func TestAPluginPicksByWhatItHasHeard(t *testing.T) {
	test(t, func(t *testing.T, tr *tree) {
		xdstest.NoError(t, tr.update(states{plugged: choosing("a"), "a": serving("a:1")}, by(newSource())))
		tr.pick(plugged)
		synctest.Wait()
		xdstest.NoError(t, tr.update(states{plugged: chooserOf(chooserConfig{Clusters: []string{"a"}, Deaf: true})}))
		tr.pick(plugged)
		xdstest.NoError(t, tr.update(states{"a": {Err: fmt.Errorf("cluster a is missing")}}))
		synctest.Wait()
		if _, err := tr.pick(plugged); err != grpcbalancer.ErrNoSubConnAvailable {
			t.Errorf("a pick before the plugin has heard of the failure: %v, want that it waits", err)
		}
		xdstest.NoError(t, tr.update(states{plugged: choosing("a")}))
		synctest.Wait()
		if _, err := tr.pick(plugged); err == nil || !strings.Contains(err.Error(), "cluster a is missing") {
			t.Errorf("a pick after it: %v", err)
		}
	})
}

// The trace of an RPC has a failed pick once: that of the target that was found, or else of the plugin.
func TestTraceOfAPluginsPicks(t *testing.T) {
	test(t, func(t *testing.T, tr *tree) {
		limited := serving("a:1")
		limited.Cluster.MaxRequests = 0
		for _, tc := range []struct {
			name, target string
			state        *balancer.ClusterState
			want         rpctrace.Pick
		}{
			{"target that works", "a", serving("a:1"), rpctrace.Pick{Cluster: "a", Endpoint: "a:1"}},
			{"target that is missing", "a", &balancer.ClusterState{Err: errors.New("no such Cluster")}, rpctrace.Pick{Cluster: "a", Reason: rpctrace.Unusable}},
			{"target with a limit", "a", limited, rpctrace.Pick{Cluster: "a", Reason: rpctrace.MaxRequests}},
			{"no target", "", nil, rpctrace.Pick{Cluster: plugged, Reason: rpctrace.Unusable}},
		} {
			xdstest.NoError(t, tr.update(states{plugged: choosing(tc.target), "a": tc.state}, by(newSource())))
			for range 3 { // the plugin and its target become active
				tr.pick(plugged)
				synctest.Wait()
			}
			var picks []rpctrace.Pick
			trace := rpctrace.FromContext(rpctrace.With(context.Background(), &rpctrace.Trace{Picked: func(p rpctrace.Pick) { picks = append(picks, p) }}))
			_, err := tr.CC.Pick(&decision.Decision{Context: context.Background(), Version: tr.last.Version, Cluster: plugged,
				Extra: &decision.Extra{RPC: hash(7), Trace: trace}})
			tc.want.Err = err
			if !slices.Equal(picks, []rpctrace.Pick{tc.want}) {
				t.Errorf("%s (%v): the trace has %+v, want %+v", tc.name, err, picks, tc.want)
			}
		}
	})
}

func TestPicksOfPluginsAllocateNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTree(t)
		xdstest.NoError(t, tr.update(states{plugged: choosing("a"), "a": serving("a:1")}, by(newSource())))
		tr.pick(plugged)
		synctest.Wait()
		tr.reach(plugged, "a:1")
		direct := testing.AllocsPerRun(100, func() { tr.pick("a") })
		xdstest.Equal(t, "allocations of a pick", direct, testing.AllocsPerRun(100, func() { tr.pick(plugged) }))
	})
}
