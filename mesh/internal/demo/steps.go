package demo

import (
	"context"
	"fmt"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

const (
	serviceName = "echo.example.com"
	routesName  = "echo-routes"

	stable, canary, proxy             = "stable", "canary", "proxy"
	stable1, stable2, canary1, proxy1 = "stable-1", "stable-2", "canary-1", "proxy-1"
)

// The last step has two more clients. Both use the resources of an authority, where the Listener has two variants, distinguished by
// a dynamic parameter (xRFC TP2).
const (
	alice, bob = "alice", "bob"

	authority       = "demo"
	variantListener = "xdstp://" + authority + "/envoy.config.listener.v3.Listener/" + serviceName
	dpdsName        = "xdstp://" + authority + "/envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap/client"

	listenerType     = "listener_type"
	viaProxy, direct = "via_proxy", "direct"
)

// The methods that the client calls, by short name.
const unaryCall, emptyCall, fullDuplexCall = "UnaryCall", "EmptyCall", "FullDuplexCall"

// step is one change and its expected effect.
type step struct {
	name, text string
	do         func(context.Context) error // makes the change
	groups     []group                     // what becomes of the RPCs
}

// steps returns the demo's steps.
func (d *demo) steps() []step {
	m := d.mesh
	moved := group{[]string{emptyCall}, "3", map[string]float64{canary1: 1}}
	rest := group{[]string{unaryCall, fullDuplexCall}, "3", map[string]float64{stable1: 0.50, canary1: 0.50}}
	return []step{{
		name: "split 90/10",
		text: `The control plane sends 90% of the RPCs to cluster "stable", which has two
backends, and 10% to cluster "canary", which has one.`,
		do:     m.begin,
		groups: []group{{nil, "1", map[string]float64{stable1: 0.45, stable2: 0.45, canary1: 0.10}}},
	}, {
		name: "shift to 50/50",
		text: `While RPCs run, the control plane shifts the split: half of them for "stable",
half for "canary". No RPC may fail, and none may go by the old split any more.`,
		do:     func(context.Context) error { return m.push(routes("2", 50, 50)) },
		groups: []group{{nil, "2", map[string]float64{stable1: 0.25, stable2: 0.25, canary1: 0.50}}},
	}, {
		name: "stop a backend",
		text: `Backend stable-2 dies, and the control plane is not notified. RPCs that are on
its connection at that moment may fail; every later one has to be answered, by
stable-1 in its place.`,
		do: func(context.Context) error {
			d.tally.excuse(m.backends[stable2].Addr())
			m.backends[stable2].Stop()
			return nil
		},
		groups: []group{{nil, "2", map[string]float64{stable1: 0.50, canary1: 0.50}}},
	}, {
		name: "move a method",
		text: `The control plane moves one method, EmptyCall, to cluster "canary" for good.
The other methods keep their split.`,
		do: func(context.Context) error {
			return m.push(routes("3", 50, 50, xdsmsg.PathRoute(methodPath(emptyCall), canary)))
		},
		groups: []group{moved, rest},
	}, {
		name: "move a client",
		text: `Two more clients, alice and bob, dial the same service by dynamic parameters:
the control plane sends each the constraints that select its variant of the
Listener, and the RPCs of both go through proxy-1. Then it sends alice others:
hers alone go to "stable" directly. No RPC may fail.`,
		do: func(context.Context) error { return m.moveAlice() },
		groups: []group{
			{[]string{alice}, direct, map[string]float64{stable1: 1}}, {[]string{bob}, viaProxy, map[string]float64{proxy1: 1}}, moved, rest,
		},
	}}
}

// begin is the first configuration, with which the client begins its RPCs. Eight streams are always open, so that a backend that
// stops has RPCs in flight.
func (m *mesh) begin(context.Context) error {
	m.start(unaryCall, 2, m.channel, unaryCall)
	m.start(emptyCall, 2, m.channel, emptyCall)
	m.start(fullDuplexCall, 8, m.channel, fullDuplexCall)
	all := []proto.Message{xdsmsg.DefaultListener(serviceName, routesName), routes("1", 90, 10)}
	for _, cluster := range []string{stable, canary, proxy} {
		var addresses []string
		for _, b := range backends {
			if b.cluster == cluster {
				addresses = append(addresses, m.backends[b.name].Addr())
			}
		}
		all = append(all, xdsmsg.EDSCluster(cluster, ""), xdsmsg.SimpleEndpoints(cluster, addresses...))
	}
	return m.push(all...)
}

// push puts resources into the control plane, all at once.
func (m *mesh) push(resources ...proto.Message) error {
	_, err := m.store.Update(func(tx *controlplane.Tx) { tx.Set(resources...) })
	return err
}

// routes is a configuration: some routes and, for the RPCs that they do not match, the weights of the clusters stable and canary.
func routes(configuration string, stableWeight, canaryWeight uint32, before ...*routepb.Route) *routepb.RouteConfiguration {
	split := xdsmsg.WeightedRoute("/",
		xdsmsg.Weighted{Cluster: stable, Weight: stableWeight},
		xdsmsg.Weighted{Cluster: canary, Weight: canaryWeight})
	return named(configuration, xdsmsg.RouteConfig(routesName, serviceName, append(before, split)...))
}

// configurationHeader is the response header with the name of the configuration that routed the RPC. The client adds it, as its
// RouteConfiguration says.
const configurationHeader = "demo-configuration"

// named makes the client add the name of the configuration to the responses of the RPCs that it routes.
func named(configuration string, rc *routepb.RouteConfiguration) *routepb.RouteConfiguration {
	return xdsmsg.With(rc, `response_headers_to_add { header { key: %q value: %q } }`, configurationHeader, configuration)
}

// moveAlice adds the variants and the clients and, once the proxy serves both clients, moves one of them.
func (m *mesh) moveAlice() error {
	variant := func(tx *controlplane.Tx, value, cluster string) {
		routes := named(value, xdsmsg.RouteConfig(value, serviceName, xdsmsg.PrefixRoute("/", cluster)))
		tx.SetVariant(map[string]string{listenerType: value}, xdsmsg.InlineListener(variantListener, routes))
	}
	if _, err := m.store.Update(func(tx *controlplane.Tx) {
		variant(tx, viaProxy, proxy)
		variant(tx, direct, stable)
		tx.SetDPDS(dpdsName, func(*corepb.Node) (dynparam.ByType, error) { return constraints(viaProxy) })
	}); err != nil {
		return err
	}
	for _, name := range []string{alice, bob} {
		if err := m.startVariantClient(name); err != nil {
			return fmt.Errorf("client %s: %w", name, err)
		}
	}
	_, err := m.store.Update(func(tx *controlplane.Tx) {
		tx.SetDPDS(dpdsName, func(node *corepb.Node) (dynparam.ByType, error) {
			if node.GetId() == alice {
				return constraints(direct)
			}
			return constraints(viaProxy)
		})
	})
	return err
}

// constraints select a variant of the Listener.
func constraints(value string) (dynparam.ByType, error) {
	c, err := dynparam.Exact(map[string]string{listenerType: value})
	if err != nil {
		return dynparam.ByType{}, err
	}
	return dynparam.NewByType(map[string]dynparam.Constraints{"envoy.config.listener.v3.Listener": c})
}

// startVariantClient dials the authority, expects the proxy to answer the first RPC, and starts the client's traffic. The bootstrap
// is in memory: the environment has only one.
func (m *mesh) startVariantClient(name string) error {
	content := testutils.Bootstrap(name, m.address, testutils.ServerFeatures("dynamic_parameter_constraints"),
		testutils.Authority(authority, "", map[string]any{"dynamic_parameter_constraints_resource": dpdsName}))
	channel, err := m.dial("xds://"+authority+"/"+serviceName, dynxds.DialOptions(dynxds.WithBootstrap(content))...)
	if err != nil {
		return err
	}
	switch r := m.call(name, channel, emptyCall); {
	case r.err != nil:
		return fmt.Errorf("the first RPC: %w", r.err)
	case r.backend != proxy1:
		return fmt.Errorf("the first RPC was answered by %s, not by %s", r.backend, proxy1)
	}
	m.start(name, 1, channel, emptyCall)
	return nil
}
