package metrics_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/metrics"
	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/relay"
	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a control plane with metrics, and a connection to it.
type rig struct {
	t     *testing.T
	ctx   context.Context
	of    *metrics.Plane
	store *controlplane.Store
	ads   discoverypb.AggregatedDiscoveryServiceClient
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, ctx: testutils.Context(t), of: metrics.New(), store: controlplane.NewStore()}
	plane := controlplane.NewServer(r.store, controlplane.Options{OnACK: r.of.ACKed, OnNACK: r.of.NACKed, NotFoundErrors: true})
	listener, err := net.Listen("tcp", "localhost:0")
	xdstest.NoError(t, err)
	server := grpc.NewServer(grpc.StatsHandler(r.of.StatsHandler()))
	plane.Register(server)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	xdstest.NoError(t, err)
	r.ads = discoverypb.NewAggregatedDiscoveryServiceClient(conn)
	t.Cleanup(func() {
		conn.Close()
		plane.Close()
		server.Stop()
		<-served
	})
	return r
}

// want waits until the metrics have lines.
func (r *rig) want(lines ...string) {
	r.t.Helper()
	var got string
	xdstest.Eventually(r.t, func() bool {
		got = xdstest.Body(r.t, r.of.Handler())
		for _, line := range lines {
			if !strings.Contains(got, "\n"+line+"\n") {
				return false
			}
		}
		return true
	}, func() string { return fmt.Sprintf("got\n%s\nwant\n%s", got, strings.Join(lines, "\n")) })
}
