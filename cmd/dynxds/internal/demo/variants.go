package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Two more clients, of whom one changes sides in the last step.
const (
	alice = "alice"
	bob   = "bob"
)

// Both have the resources of an authority, where the Listener has two variants, told
// apart by a dynamic parameter (xRFC TP2).
const (
	authority       = "demo"
	variantListener = "xdstp://" + authority + "/envoy.config.listener.v3.Listener/" + serviceName
	dpdsName        = "xdstp://" + authority + "/envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap/client"

	listenerType = "listener_type"
	viaProxy     = "via_proxy"
	direct       = "direct"
)

// The configurations of the variants. That of the client before is the third.
const (
	proxyConfiguration  = 4
	directConfiguration = 5
)

// constraints is what the control plane says to a client.
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

// moveAlice adds the variants and the clients and, when both clients are served by
// the proxy, moves one of them.
func (m *mesh) moveAlice(ctx context.Context) error {
	if err := m.pushVariants(); err != nil {
		return err
	}
	for _, name := range []string{alice, bob} {
		channel, err := m.dialVariants(name)
		if err != nil {
			return err
		}
		if err := expectProxy(ctx, name, channel); err != nil {
			return err
		}
		m.startFurther(name, channel)
	}
	m.aliceIsDirect.Store(true)
	m.store.RefreshDPDS(dpdsName, func(node *corepb.Node) bool { return node.GetId() == alice })
	return nil
}

// pushVariants adds the Listener's variants and the DPDS resource.
func (m *mesh) pushVariants() error {
	_, err := m.store.Update(func(tx *controlplane.Tx) {
		for _, v := range []struct {
			value, cluster string
			configuration  int
		}{
			{viaProxy, proxy, proxyConfiguration},
			{direct, stable, directConfiguration},
		} {
			routes := numbered(v.configuration, v.value, xdsmsg.PrefixRoute("/", v.cluster))
			tx.SetVariant(map[string]string{listenerType: v.value}, xdsmsg.InlineListener(variantListener, routes))
		}
		tx.SetDPDS(dpdsName, m.constraints)
	})
	return err
}

// dialVariants connects a client of the authority. Its bootstrap is in memory: the
// environment has only one.
func (m *mesh) dialVariants(name string) (*grpc.ClientConn, error) {
	content, err := json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{
			"server_uri":      m.planeAt,
			"channel_creds":   []any{map[string]any{"type": "insecure"}},
			"server_features": []string{"dynamic_parameter_constraints"},
		}},
		"node":        map[string]any{"id": name},
		"authorities": map[string]any{authority: map[string]any{"dynamic_parameter_constraints_resource": dpdsName}},
	})
	if err != nil {
		return nil, fmt.Errorf("bootstrap of %s: %w", name, err)
	}
	channel, err := grpc.NewClient("xds://"+authority+"/"+serviceName,
		append(dynxds.DialOptions(dynxds.WithBootstrap(content)), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return nil, fmt.Errorf("client %s: %w", name, err)
	}
	m.undo = append(m.undo, func() { channel.Close() })
	return channel, nil
}

// patienceForFirst is how long the first RPC of a further client may take.
const patienceForFirst = 20 * time.Second

// expectProxy makes a client's first RPC.
func expectProxy(ctx context.Context, name string, channel grpc.ClientConnInterface) error {
	ctx, cancel := context.WithTimeout(ctx, patienceForFirst)
	defer cancel()
	var header metadata.MD
	if _, err := testgrpc.NewTestServiceClient(channel).EmptyCall(ctx, &testgrpc.Empty{}, grpc.Header(&header)); err != nil {
		return fmt.Errorf("the first RPC of %s: %w", name, err)
	}
	if backend, _ := answeredBy(header); backend != proxy1 {
		return fmt.Errorf("the first RPC of %s was answered by %s, not by %s", name, backend, proxy1)
	}
	return nil
}
