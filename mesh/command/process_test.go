package command

import (
	"context"
	"sync/atomic"
	"testing"

	adminpb "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
)

// another is a process that is not of dynxds.
type another struct {
	statuspb.UnimplementedClientStatusDiscoveryServiceServer
	// changes says that the version is another one from the fourth answer on.
	changes bool
	answers atomic.Int32
}

func (a *another) FetchClientStatus(context.Context, *statuspb.ClientStatusRequest) (*statuspb.ClientStatusResponse, error) {
	version := "1"
	if a.changes && a.answers.Add(1) > 3 {
		version = "2"
	}
	entry := func(name string, state adminpb.ClientResourceStatus) *statuspb.ClientConfig_GenericXdsConfig {
		config := xdsmsg.Any(xdsmsg.EDSCluster(name, ""))
		return &statuspb.ClientConfig_GenericXdsConfig{TypeUrl: config.GetTypeUrl(), Name: name, ClientStatus: state, VersionInfo: version, XdsConfig: config}
	}
	return &statuspb.ClientStatusResponse{Config: []*statuspb.ClientConfig{{
		Node: &corepb.Node{Id: "other"},
		GenericXdsConfigs: []*statuspb.ClientConfig_GenericXdsConfig{
			entry("shop/a", adminpb.ClientResourceStatus_ACKED), entry("shop/b", adminpb.ClientResourceStatus_NACKED), entry("bank", adminpb.ClientResourceStatus_NACKED),
		},
	}}}, nil
}

func (a *another) serve(t *testing.T, opts ...grpc.ServerOption) string {
	return cmdtest.Serve(t, func(s *grpc.Server) { statuspb.RegisterClientStatusDiscoveryServiceServer(s, a) }, opts...)
}
