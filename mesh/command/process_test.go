package command

import (
	"context"
	"sync/atomic"
	"testing"

	adminpb "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
)

// csdsFunc is a Client Status Discovery Service with one client, or with an error.
type csdsFunc func() (*statuspb.ClientConfig, error)

// FetchClientStatus implements statuspb.ClientStatusDiscoveryServiceServer.
func (f csdsFunc) FetchClientStatus(context.Context, *statuspb.ClientStatusRequest) (*statuspb.ClientStatusResponse, error) {
	c, err := f()
	return &statuspb.ClientStatusResponse{Config: []*statuspb.ClientConfig{c}}, err
}

// StreamClientStatus implements statuspb.ClientStatusDiscoveryServiceServer.
func (csdsFunc) StreamClientStatus(statuspb.ClientStatusDiscoveryService_StreamClientStatusServer) error {
	return status.Error(codes.Unimplemented, "fetch it")
}

func (f csdsFunc) serve(t *testing.T, opts ...grpc.ServerOption) (address string) {
	return cmdtest.Serve(t, func(s *grpc.Server) { statuspb.RegisterClientStatusDiscoveryServiceServer(s, f) }, opts...)
}

// another is a process that is not of dynxds.
var another csdsFunc = func() (*statuspb.ClientConfig, error) { return ofAnother("1"), nil }

// changing returns one whose version is another one from the fourth answer on.
func changing() csdsFunc {
	var answers atomic.Int32
	return func() (*statuspb.ClientConfig, error) {
		if answers.Add(1) > 3 {
			return ofAnother("2"), nil
		}
		return ofAnother("1"), nil
	}
}

func ofAnother(version string) *statuspb.ClientConfig {
	entry := func(name string, state adminpb.ClientResourceStatus) *statuspb.ClientConfig_GenericXdsConfig {
		config := xdsmsg.Any(xdsmsg.EDSCluster(name, ""))
		return &statuspb.ClientConfig_GenericXdsConfig{TypeUrl: config.GetTypeUrl(), Name: name, ClientStatus: state, VersionInfo: version, XdsConfig: config}
	}
	return &statuspb.ClientConfig{Node: &corepb.Node{Id: "other"}, GenericXdsConfigs: []*statuspb.ClientConfig_GenericXdsConfig{
		entry("shop/a", adminpb.ClientResourceStatus_ACKED), entry("shop/b", adminpb.ClientResourceStatus_NACKED), entry("bank", adminpb.ClientResourceStatus_NACKED),
	}}
}
