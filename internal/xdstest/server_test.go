package xdstest_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

func TestServer_RecordsSotW(t *testing.T) {
	t.Parallel()
	ctx, s := testutils.Context(t), xdstest.StartServer(t)
	s.Set(t, xdsmsg.EDSCluster("c", "svc"))
	c := openADS(ctx, t, s, sotw)
	c.clusters("c")
	resp := c.mustReceive()
	c.send(&discoverypb.DiscoveryRequest{
		TypeUrl: xdsmsg.ClusterType, ResourceNames: []string{"d", "c"},
		VersionInfo: resp.version, ResponseNonce: resp.nonce,
	})
	c.ask(xdsmsg.ClusterType, nil, resp.nonce, rejection("no good"))

	first := s.MustWait(ctx, t, xdstest.OfType(xdsmsg.ClusterType))
	if first.Node.GetId() != "n" || first.Stream != 1 || first.Nonce != "" || !slices.Equal(first.Names, []string{"c"}) {
		t.Errorf("first request: %s", first)
	}
	ack := s.MustWait(ctx, t, xdstest.ForNames(xdsmsg.ClusterType, "c", "d"))
	if ack.Stream != 1 || ack.Err != nil || ack.Node != nil || ack.Version != resp.version || ack.Nonce != resp.nonce {
		t.Errorf("ACK: %s", ack)
	}
	nack := s.MustWait(ctx, t, xdstest.NACKOf(xdsmsg.ClusterType))
	if nack.Err.Code() != codes.InvalidArgument || nack.Err.Message() != "no good" {
		t.Errorf("NACK: %s", nack)
	}
	if got := len(s.Requests()); got != 3 {
		t.Errorf("%d requests are recorded, want 3", got)
	}
	if got := s.Clients(); len(got) != 1 || got[0].Node.GetId() != "n" {
		t.Errorf("clients: %+v", got)
	}
}

func TestServer_RecordsDelta(t *testing.T) {
	t.Parallel()
	ctx, s := testutils.Context(t), xdstest.StartServer(t)
	s.Set(t, xdsmsg.EDSCluster("c", ""))
	c := openADS(ctx, t, s, delta)
	c.send(&discoverypb.DeltaDiscoveryRequest{
		Node: &corepb.Node{Id: "n"}, TypeUrl: xdsmsg.ClusterType, ResourceNamesSubscribe: []string{"c", "d"},
		InitialResourceVersions: map[string]string{"c": "old"},
	})
	resp := c.mustReceive()
	c.send(&discoverypb.DeltaDiscoveryRequest{
		TypeUrl: xdsmsg.ClusterType, ResponseNonce: resp.nonce, ResourceNamesUnsubscribe: []string{"d"},
	})
	c.ask(xdsmsg.ClusterType, nil, resp.nonce, rejection("no good"))

	first := s.MustWait(ctx, t, xdstest.Subscribing(xdsmsg.ClusterType, "d"))
	if !first.Delta || first.Raw != nil || first.RawDelta.GetNode().GetId() != "n" || first.Node.GetId() != "n" {
		t.Errorf("first request: %s", first)
	}
	if !slices.Equal(first.Subscribe, []string{"c", "d"}) || first.InitialVersions["c"] != "old" || first.Names != nil || first.Nonce != "" {
		t.Errorf("first request: %s", first)
	}
	if text := first.String(); !strings.Contains(text, `delta Cluster subscribe=["c" "d"]`) || !strings.Contains(text, `"c":"old"`) {
		t.Errorf("String: %s", text)
	}
	ack := s.MustWait(ctx, t, xdstest.Unsubscribing(xdsmsg.ClusterType, "d"))
	if ack.Stream != 1 || ack.Err != nil || ack.Nonce != resp.nonce || len(ack.Subscribe) != 0 || ack.InitialVersions != nil {
		t.Errorf("ACK: %s", ack)
	}
	if nack := s.MustWait(ctx, t, xdstest.NACKOf(xdsmsg.ClusterType)); nack.Err.Message() != "no good" {
		t.Errorf("NACK: %s", nack)
	}
	if got := s.Clients(); len(got) != 1 || !got[0].Delta {
		t.Errorf("clients: %+v", got)
	}
}

func TestServer_WaitGoesOnAfterTheLastMatchAndSaysWhatCame(t *testing.T) {
	t.Parallel()
	ctx, s := testutils.Context(t), xdstest.StartServer(t)
	c := openADS(ctx, t, s, sotw)
	for _, name := range []string{"a", "b", "c", "d"} {
		c.clusters(name)
	}
	s.MustWait(ctx, t, xdstest.ForNames(xdsmsg.ClusterType, "b"))
	if got := s.MustWait(ctx, t, xdstest.AnyRequest()); !slices.Equal(got.Names, []string{"c"}) {
		t.Errorf("got %s after b, want c", got)
	}
	s.MustWait(ctx, t, xdstest.ForNames(xdsmsg.ClusterType, "d"))
	s.Skip()
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err := s.Wait(canceled, xdstest.AnyRequest())
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `Cluster names=["d"]`) {
		t.Errorf("error: %v", err)
	}
}

func TestServer_StopRefusesConnectionsAndRestartKeepsTheAddress(t *testing.T) {
	for name, stop := range map[string]func(*xdstest.Server){
		"crash":    func(s *xdstest.Server) { s.Stop() },
		"graceful": func(s *xdstest.Server) { s.GracefulStop() },
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, func(ctx context.Context, t *testing.T, s *xdstest.Server, open func() client) {
				s.Set(t, xdsmsg.EDSCluster("c", ""))
				addr, c := s.Addr(), open()
				c.clusters("c")
				c.mustReceive()

				stop(s)
				stop(s) // again changes nothing
				c.mustEnd(codes.Unavailable)
				if conn, err := net.Dial("tcp", addr); err == nil {
					conn.Close()
					t.Error("a stopped server accepts connections")
				}
				if got := s.Clients(); got != nil {
					t.Errorf("clients while stopped: %+v", got)
				}

				xdstest.NoError(t, s.Restart())
				if s.Addr() != addr {
					t.Errorf("the address changed from %s to %s", addr, s.Addr())
				}
				c = open()
				c.clusters("c")
				if got := c.mustReceive().resources; got != 1 {
					t.Errorf("%d Clusters after the restart", got)
				}
				if got := s.MustWait(ctx, t, func(r xdstest.Request) bool { return r.Stream == 2 }); got.Node == nil {
					t.Errorf("first request of the second stream: %s", got)
				}
			})
		})
	}
}

func TestServer_StallReads(t *testing.T) {
	overBoth(t, func(ctx context.Context, t *testing.T, s *xdstest.Server, open func() client) {
		s.Set(t, xdsmsg.EDSCluster("c", ""))
		c := open()
		resume := s.StallReads()
		c.clusters("c")
		xdstest.NoError(t, s.WaitOpen(ctx, 1))
		if got := s.Requests(); len(got) != 0 {
			t.Errorf("requests passed the stall: %v", got)
		}
		resume()
		s.MustWait(ctx, t, xdstest.Subscribing(xdsmsg.ClusterType, "c"))
		c.mustReceive()
	})
}
