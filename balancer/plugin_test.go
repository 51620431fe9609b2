package balancer_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/serviceconfig"

	"github.com/dynxds/dynxds/balancer"
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

func (s subscriptions) subscribe(name string, n int) {
	if s[name] += n; s[name] == 0 {
		delete(s, name)
	}
}

func TestPicksOfPluginsAllocateNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTree(t)
		xdstest.NoError(t, tr.update(states{plugged: choosing("a"), "a": serving("a:1")}))
		tr.pick(plugged)
		synctest.Wait()
		tr.reach(plugged, "a:1")
		direct := testing.AllocsPerRun(100, func() { tr.pick("a") })
		xdstest.Equal(t, "allocations of a pick", direct, testing.AllocsPerRun(100, func() { tr.pick(plugged) }))
	})
}
