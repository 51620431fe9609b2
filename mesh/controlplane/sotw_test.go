package controlplane_test

import (
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// "Envoy" in these comments is Envoy's description of the xDS protocol.

func cluster(name string) *clusterpb.Cluster { return xdsmsg.EDSCluster(name, "") }

// changed is the cluster with other bytes.
func changed(name, alt string) *clusterpb.Cluster {
	c := cluster(name)
	c.AltStatName = alt
	return c
}

// xds.config.resource-in-sotw, see envoy.service.discovery.v3.Resource.
func TestSotW_ResourceWrapping(t *testing.T) {
	t.Parallel()
	const feature = "xds.config.resource-in-sotw"
	tests := []struct {
		name     string
		opts     controlplane.Options
		features []string
		wrapped  bool
	}{
		{"neither", controlplane.Options{}, nil, false},
		{"client announces, server off", controlplane.Options{}, []string{feature}, false},
		{"server on, client does not announce", controlplane.Options{WrapResources: true}, []string{"envoy.lb.x"}, false},
		{"both", controlplane.Options{WrapResources: true}, []string{"envoy.lb.x", feature}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, tt.opts)
			s.set(t, cluster("c"))
			c := newRawClient(t, discoverypb.NewAggregatedDiscoveryServiceClient(s.conn).StreamAggregatedResources)
			c.send(&sotwRequest{Node: &corepb.Node{Id: "n", ClientFeatures: tt.features}, TypeUrl: cds})
			resp := c.recv()
			if resp.GetTypeUrl() != cds || len(resp.GetResources()) != 1 {
				t.Fatalf("response: %v", resp)
			}
			stored := s.store.Get(cds, "c")
			got := resp.GetResources()[0]
			if tt.wrapped {
				var r discoverypb.Resource
				xdstest.NoError(t, got.UnmarshalTo(&r))
				if r.GetName() != "c" || r.GetVersion() != stored.Version() {
					t.Errorf("wrapper says name %q, version %q", r.GetName(), r.GetVersion())
				}
				got = r.GetResource()
			}
			if !proto.Equal(got, stored.Any()) {
				t.Errorf("resource is %v, want %v", got, stored.Any())
			}
		})
	}
}
