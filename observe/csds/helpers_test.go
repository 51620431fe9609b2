package csds_test

import (
	"errors"
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

// watcher sends its events, as texts, to a channel.
type watcher struct {
	t      *testing.T
	events chan string
}

func (w *watcher) record(text string, done func()) {
	w.events <- text
	done()
}

func (w *watcher) ResourceChanged(value any, err error, done func()) {
	if err != nil {
		w.record(kindOf(err), done)
		return
	}
	w.record(value.(*clusterv3.Cluster).GetAltStatName(), done)
}

func (w *watcher) AmbientError(err error, done func()) { w.record("ambient "+kindOf(err), done) }

func kindOf(err error) string {
	var fault *xdsclient.Error
	if !errors.As(err, &fault) {
		return err.Error()
	}
	return string(fault.Kind)
}

// until waits for an event and ignores others before it.
func (w *watcher) until(text string) {
	w.t.Helper()
	ctx := testutils.Context(w.t)
	for {
		select {
		case got := <-w.events:
			if got == text {
				return
			}
		case <-ctx.Done():
			w.t.Fatalf("the watcher got no event %q", text)
		}
	}
}

func watch(t *testing.T, c *xdsclient.XDSClient, name string) *watcher {
	w := &watcher{t: t, events: make(chan string, 64)}
	t.Cleanup(c.Watch(clusters, name, w))
	return w
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
