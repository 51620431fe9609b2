package csds_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/admin"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/observe/csds"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

const clusterURL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

// clusters validates clusters by their alt_stat_name.
var clusters = &xdsclient.ResourceType{
	TypeURL:         clusterURL,
	Name:            "Cluster",
	FullStateInSotW: true,
	Decode: func(a *anypb.Any, _ xdsclient.DecodeOptions) (any, error) {
		m := &clusterv3.Cluster{}
		if err := a.UnmarshalTo(m); err != nil {
			return nil, err
		}
		if fault, bad := strings.CutPrefix(m.GetAltStatName(), "bad: "); bad {
			return nil, errors.New(fault)
		}
		return m, nil
	},
}

func cluster(name, text string) *clusterv3.Cluster {
	return &clusterv3.Cluster{Name: name, AltStatName: text}
}

type silent struct{}

func (silent) ResourceChanged(_ any, _ error, done func()) { done() }
func (silent) AmbientError(_ error, done func())           { done() }

func watch(t *testing.T, c *xdsclient.XDSClient, names ...string) {
	for _, name := range names {
		t.Cleanup(c.Watch(clusters, name, silent{}))
	}
}

// until waits until the test's client has these entries, each with its state and version.
func until(t *testing.T, service statusv3.ClientStatusDiscoveryServiceClient, want ...string) {
	t.Helper()
	for ctx := testutils.Context(t); ; {
		var got []string
		for _, e := range of(fetch(t, service, &statusv3.ClientStatusRequest{}), t.Name()).GetGenericXdsConfigs() {
			got = append(got, strings.TrimSpace(fmt.Sprintln(e.GetName(), e.GetClientStatus(), e.GetVersionInfo())))
		}
		if slices.Equal(got, want) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the entries are %q, want %q", got, want)
		}
	}
}

// start starts CSDS, a control plane, and a client of it, whose node id is the test's name.
func start(t *testing.T) (statusv3.ClientStatusDiscoveryServiceClient, *xdstest.Server, *xdsclient.XDSClient) {
	t.Helper()
	server := xdstest.StartServer(t)
	config, err := bootstrap.Parse("the test", server.Bootstrap(t.Name()))
	xdstest.NoError(t, err)
	client, err := xdsclient.New(config, xdsclient.Options{ResourceTimeout: time.Hour})
	xdstest.NoError(t, err)
	t.Cleanup(client.Close)
	return serve(t), server, client
}

// serve starts a gRPC server with CSDS on loopback and returns a client of it. The service is there by gRPC's admin.Register (gRFC
// A38), and Register may be called as well.
func serve(t *testing.T) statusv3.ClientStatusDiscoveryServiceClient {
	t.Helper()
	s := grpc.NewServer(grpc.WaitForHandlers(true))
	cleanup, err := admin.Register(s)
	xdstest.NoError(t, err)
	if _, ok := s.GetServiceInfo()[statusv3.ClientStatusDiscoveryService_ServiceDesc.ServiceName]; !ok {
		t.Error("admin.Register did not register the service")
	}
	xdstest.NoError(t, csds.Register(s))
	t.Cleanup(cleanup)
	cc, err := grpc.NewClient(xdstest.Serve(t, nil, s), grpc.WithTransportCredentials(insecure.NewCredentials()))
	xdstest.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	return statusv3.NewClientStatusDiscoveryServiceClient(cc)
}

func fetch(t *testing.T, service statusv3.ClientStatusDiscoveryServiceClient, req *statusv3.ClientStatusRequest) *statusv3.ClientStatusResponse {
	t.Helper()
	resp, err := service.FetchClientStatus(testutils.Context(t), req)
	xdstest.NoError(t, err)
	return resp
}

// of returns the part of an answer that is about the client of a node id, without its state, or nil.
// Other tests of the process have clients too.
func of(resp *statusv3.ClientStatusResponse, nodeID string) *statusv3.ClientConfig {
	for _, c := range resp.GetConfig() {
		if c.GetNode().GetId() == nodeID {
			last := len(c.GenericXdsConfigs) - 1
			if last < 0 || c.GenericXdsConfigs[last].GetName() != csds.StateName {
				return nil
			}
			c.GenericXdsConfigs = c.GenericXdsConfigs[:last]
			return c
		}
	}
	return nil
}
