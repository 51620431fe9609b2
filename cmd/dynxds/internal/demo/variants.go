package demo

import (
	"context"
	"fmt"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// The last step has two more clients. Both use the resources of an authority, where the
// Listener has two variants, distinguished by a dynamic parameter (xRFC TP2).
const (
	alice, bob = "alice", "bob"

	authority       = "demo"
	variantListener = "xdstp://" + authority + "/envoy.config.listener.v3.Listener/" + serviceName
	dpdsName        = "xdstp://" + authority + "/envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap/client"

	listenerType     = "listener_type"
	viaProxy, direct = "via_proxy", "direct"

	// The configurations of the variants.
	proxyConfiguration, directConfiguration = 4, 5

	// firstTimeout bounds the first RPC of a further client.
	firstTimeout = 20 * time.Second
)

// constraints are those that the control plane sends to a client.
func (m *mesh) constraints(node *corepb.Node) (dynparam.ByType, error) {
	value := viaProxy
	if node.GetId() == alice && m.aliceIsDirect.Load() {
		value = direct
	}
	c, err := dynparam.Exact(map[string]string{listenerType: value})
	if err != nil {
		return dynparam.ByType{}, err
	}
	return dynparam.NewByType(map[string]dynparam.Constraints{"envoy.config.listener.v3.Listener": c})
}

// moveAlice adds the variants and the clients and, once the proxy serves both clients,
// moves one of them.
func (m *mesh) moveAlice(ctx context.Context) error {
	variant := func(tx *controlplane.Tx, configuration int, value, cluster string) {
		routes := numbered(configuration, value, xdsmsg.PrefixRoute("/", cluster))
		tx.SetVariant(map[string]string{listenerType: value}, xdsmsg.InlineListener(variantListener, routes))
	}
	if _, err := m.store.Update(func(tx *controlplane.Tx) {
		variant(tx, proxyConfiguration, viaProxy, proxy)
		variant(tx, directConfiguration, direct, stable)
		tx.SetDPDS(dpdsName, m.constraints)
	}); err != nil {
		return err
	}
	for _, name := range []string{alice, bob} {
		if err := m.startVariantClient(ctx, name); err != nil {
			return fmt.Errorf("client %s: %w", name, err)
		}
	}
	m.aliceIsDirect.Store(true)
	m.store.RefreshDPDS(dpdsName, func(node *corepb.Node) bool { return node.GetId() == alice })
	return nil
}

// startVariantClient dials the authority, expects the proxy to answer the first RPC, and
// starts the client's traffic. The bootstrap is in memory: the environment has only one.
func (m *mesh) startVariantClient(ctx context.Context, name string) error {
	content := testutils.Bootstrap(name, m.server.Addr(), testutils.ServerFeatures("dynamic_parameter_constraints"),
		testutils.Authority(authority, "", map[string]any{"dynamic_parameter_constraints_resource": dpdsName}))
	channel, err := m.newChannel("xds://"+authority+"/"+serviceName, dynxds.DialOptions(dynxds.WithBootstrap(content))...)
	if err != nil {
		return err
	}
	first, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	var header metadata.MD
	if _, err := testgrpc.NewTestServiceClient(channel).EmptyCall(first, &testgrpc.Empty{}, grpc.Header(&header)); err != nil {
		return fmt.Errorf("the first RPC: %w", err)
	}
	if backend, _ := answeredBy(header); backend != proxy1 {
		return fmt.Errorf("the first RPC was answered by %s, not by %s", backend, proxy1)
	}
	m.traffic.startFurther(name, channel)
	return nil
}
