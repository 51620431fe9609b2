package status

import (
	"context"
	"testing"
	"time"

	adminpb "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	dynamicparamspb "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// canned is a service with an answer.
type canned struct {
	statuspb.UnimplementedClientStatusDiscoveryServiceServer
	answer func() []*statuspb.ClientConfig
}

func (c canned) FetchClientStatus(context.Context, *statuspb.ClientStatusRequest) (*statuspb.ClientStatusResponse, error) {
	return &statuspb.ClientStatusResponse{Config: c.answer()}, nil
}

func (c canned) serve(t *testing.T) (address string) {
	return cmdtest.Serve(t, func(s *grpc.Server) { statuspb.RegisterClientStatusDiscoveryServiceServer(s, c) })
}

func TestText(t *testing.T) {
	t.Parallel()
	const cluster = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	at := timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	dpds, err := dynwire.MarshalMap(&dynamicparamspb.DynamicParameterConstraintsMap{ResourceTypeConstraints: map[string]*discoverypb.DynamicParameterConstraints{
		"envoy.config.cluster.v3.RouteConfiguration": {},
	}})
	xdstest.NoError(t, err)
	for _, tc := range []struct {
		given   string
		configs []*statuspb.ClientConfig
		want    string
	}{
		{"no client", nil, "no xDS client in use\n"},
		{"a client that watches nothing", []*statuspb.ClientConfig{
			{Node: &corepb.Node{Id: "n"}, ClientScope: "xds:///a, xds:///b, xds:///c, xds:///d, xds:///e, xds:///f"},
		}, "client \"n\" of xds:///a, xds:///b, xds:///c, xds:///d, xds:///e and 1 more\n  connection state unknown: the process says only what its xDS client holds\n"},
		{"resources in every condition", []*statuspb.ClientConfig{{
			Node: &corepb.Node{Id: "n"},
			GenericXdsConfigs: []*statuspb.ClientConfig_GenericXdsConfig{
				{TypeUrl: cluster, Name: "waiting", ClientStatus: adminpb.ClientResourceStatus_REQUESTED},
				{
					TypeUrl: cluster, Name: "in-use", ClientStatus: adminpb.ClientResourceStatus_NACKED, VersionInfo: "7", LastUpdated: at,
					XdsConfig: xdsmsg.Any(&clusterpb.Cluster{
						Name: "in-use", ConnectTimeout: durationpb.New(1), TransportSocket: &corepb.TransportSocket{Name: "tls"},
						OutlierDetection: &clusterpb.OutlierDetection{EnforcingLocalOriginSuccessRate: wrapperspb.UInt32(1)},
					}),
					ErrorState: &adminpb.UpdateFailureState{Details: "type: is none"},
				},
				{
					TypeUrl: dpds.GetTypeUrl(), Name: "dpds", ClientStatus: adminpb.ClientResourceStatus_ACKED,
					VersionInfo: "8", LastUpdated: at, XdsConfig: dpds,
				},
				{
					TypeUrl: "type.googleapis.com/other.Type", Name: "foreign", ClientStatus: adminpb.ClientResourceStatus_ACKED,
					VersionInfo: "8", LastUpdated: at, XdsConfig: &anypb.Any{TypeUrl: "type.googleapis.com/other.Type"},
				},
			},
		}}, `client "n"
  connection state unknown: the process says only what its xDS client holds
  Cluster waiting: REQUESTED
  Cluster in-use: NACKED, an older version is in use, version "7", of 2026-01-02 03:04:05 UTC
    error: type: is none
    ignored: connect_timeout: this client does not act on the field
    ignored: outlier_detection.enforcing_local_origin_success_rate: this client does not act on the field
  DynamicParameterConstraintsMap dpds: ACKED, version "8", of 2026-01-02 03:04:05 UTC
    warning: ignored: resource_type_constraints["envoy.config.cluster.v3.RouteConfiguration"]: found "envoy.config.cluster.v3.RouteConfiguration", which is the type of no resource; did you mean "envoy.config.route.v3.RouteConfiguration"?
  Type foreign: ACKED, version "8", of 2026-01-02 03:04:05 UTC
    cannot determine the ignored fields: no resource type with type URL "type.googleapis.com/other.Type"
`},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			addr := serving(t, tc.configs...)
			r, err := Ask(testutils.Context(t), Process{Address: addr})
			xdstest.NoError(t, err)
			xdstest.Equal(t, "text", tc.want, r.Lines().String())
		})
	}
}

func TestNoService(t *testing.T) {
	t.Parallel()
	addr := cmdtest.Serve(t, func(*grpc.Server) {})
	_, err := Ask(testutils.Context(t), Process{Address: addr})
	cmdtest.ErrorHas(t, "Ask", err, addr+" has no Client Status Discovery Service to ask: ")
}
