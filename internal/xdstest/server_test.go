package xdstest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
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
	if first.Protocol != delta || first.Raw != nil || first.RawDelta.GetNode().GetId() != "n" || first.Node.GetId() != "n" {
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
	if got := s.Clients(); len(got) != 1 || got[0].Protocol != delta {
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

func TestServer_RefuseStreams(t *testing.T) {
	overBoth(t, func(ctx context.Context, t *testing.T, s *xdstest.Server, open func() client) {
		s.RefuseStreams(status.Error(codes.PermissionDenied, "not you"))
		open().mustEnd(codes.PermissionDenied)
		s.RefuseStreams(errors.New("plain"))
		open().mustEnd(codes.Unavailable)
		s.RefuseStreams(nil)
		c := open()
		c.clusters()
		c.mustReceive()
		if err := s.WaitAttempts(ctx, 3); err != nil {
			t.Error(err)
		}
		if got := s.Attempts(); got != 3 {
			t.Errorf("%d attempts, want 3", got)
		}
	})
}

func TestServer_RefuseDelta(t *testing.T) {
	t.Parallel()
	ctx, s := testutils.Context(t), xdstest.StartServer(t)
	s.RefuseDelta(true)
	openADS(ctx, t, s, delta).mustEnd(codes.Unimplemented)
	old := openADS(ctx, t, s, sotw)
	old.clusters()
	old.mustReceive()
	s.RefuseDelta(false)
	c := openADS(ctx, t, s, delta)
	c.clusters()
	c.mustReceive()
	if got := s.Attempts(); got != 3 {
		t.Errorf("%d attempts, want 3", got)
	}
}

func TestServer_BreakStreamsEndsAlsoStalledOnes(t *testing.T) {
	overBoth(t, func(ctx context.Context, t *testing.T, s *xdstest.Server, open func() client) {
		resumeSends, resumeReads := s.StallSends(), s.StallReads()
		defer resumeSends()
		defer resumeReads()
		a, b := open(), open()
		xdstest.NoError(t, s.WaitOpen(ctx, 2))
		s.BreakStreams(status.Error(codes.Aborted, "broken"))
		a.mustEnd(codes.Aborted)
		b.mustEnd(codes.Aborted)
		if err := s.WaitOpen(ctx, 0); err != nil {
			t.Error(err)
		}
		c := open()
		xdstest.NoError(t, s.WaitOpen(ctx, 1))
		s.BreakStreams(nil)
		if _, err := c.receive(); !errors.Is(err, io.EOF) {
			t.Errorf("the stream ended with %v, want OK", err)
		}
	})
}

func TestServer_StallSends(t *testing.T) {
	overBoth(t, func(ctx context.Context, t *testing.T, s *xdstest.Server, open func() client) {
		s.Set(t, xdsmsg.EDSCluster("c", ""))
		c := open()
		resume := s.StallSends()
		c.clusters("c")
		s.MustWait(ctx, t, xdstest.AnyRequest())
		// A hand-made response passes the stalled ones.
		xdstest.NoError(t, s.Send(c.handMade("x", "mine")))
		if got := c.mustReceive(); got.nonce != "mine" {
			t.Errorf("got %+v through the stall", got)
		}
		resume()
		resume()
		if got := c.mustReceive(); got.typeURL != xdsmsg.ClusterType {
			t.Errorf("got %+v after the stall", got)
		}
	})
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

func TestServer_AnswerToHandMadeResponseKeepsTheSubscription(t *testing.T) {
	overBoth(t, func(ctx context.Context, t *testing.T, s *xdstest.Server, open func() client) {
		if err := s.Send(new(discoverypb.DiscoveryResponse)); err == nil {
			t.Error("sent on no stream")
		}
		s.Set(t, xdsmsg.RouteConfig("a", "*"), xdsmsg.RouteConfig("b", "*"))
		c := open()
		c.ask(xdsmsg.RouteType, []string{"a"}, "", nil)
		if real := c.mustReceive(); real.nonce == "" {
			t.Errorf("got %+v, without a nonce", real)
		}
		xdstest.NoError(t, s.Send(c.handMade(xdsmsg.RouteType, "fake")))
		c.mustReceive()
		names := []string{"a", "b"}
		if c.protocol == delta {
			names = names[1:] // what is added
		}
		c.ask(xdsmsg.RouteType, names, "fake", rejection("rejected"))
		if nack := s.MustWait(ctx, t, xdstest.NACKOf(xdsmsg.RouteType)); nack.Nonce != "fake" {
			t.Errorf("recorded: %s", nack)
		}
		if got := c.mustReceive(); got.resources != 1 {
			t.Errorf("got %+v for the new subscription, want one resource", got)
		}
		if got := s.Clients()[0].Types[0]; got.NACK != nil || got.Reply != controlplane.ReplyAwaited {
			t.Errorf("the control plane took the NACK for one of its own: %+v", got)
		}
	})
}

func TestServer_Hooks(t *testing.T) {
	overBoth(t, func(ctx context.Context, t *testing.T, s *xdstest.Server, open func() client) {
		s.Set(t, xdsmsg.EDSCluster("c", ""))
		s.OnRequest(func(r xdstest.Request) error {
			if slices.Contains(slices.Concat(r.Names, r.Subscribe), "forbidden") {
				return status.Error(codes.PermissionDenied, "forbidden")
			}
			return nil
		})
		s.OnResponse(func(_ uint64, resp *discoverypb.DiscoveryResponse) *discoverypb.DiscoveryResponse {
			if resp.GetTypeUrl() == xdsmsg.ListenerType {
				return nil
			}
			resp.VersionInfo, resp.Resources = "edited", nil
			return resp
		})
		s.OnDeltaResponse(func(_ uint64, resp *discoverypb.DeltaDiscoveryResponse) *discoverypb.DeltaDiscoveryResponse {
			if resp.GetTypeUrl() == xdsmsg.ListenerType {
				return nil
			}
			resp.RemovedResources, resp.Resources = append(resp.RemovedResources, "edited"), nil
			return resp
		})
		c := open()
		c.ask(xdsmsg.ListenerType, nil, "", nil)
		c.clusters("c")
		got := c.mustReceive()
		if got.typeURL != xdsmsg.ClusterType || got.resources != 0 || got.version+strings.Join(got.removed, ",") != "edited" {
			t.Errorf("got %+v", got)
		}
		if s.Store().Get(xdsmsg.ClusterType, "c") == nil {
			t.Error("the hook reached into the store")
		}
		c.clusters("forbidden")
		c.mustEnd(codes.PermissionDenied)
	})
}

func TestServer_SharedStoreAndOptions(t *testing.T) {
	t.Parallel()
	ctx, store := testutils.Context(t), controlplane.NewStore()
	a := xdstest.StartServer(t, testutils.OverStore(store))
	b := xdstest.StartServer(t, testutils.OverStore(store),
		testutils.ControlPlaneOptions(controlplane.Options{MaxSubscriptions: 1}),
		testutils.GRPCOptions(grpc.MaxRecvMsgSize(1<<20)))
	a.Set(t, xdsmsg.EDSCluster("c", ""))
	c := openADS(ctx, t, b, sotw)
	c.clusters()
	if got := c.mustReceive().resources; got != 1 {
		t.Errorf("%d Clusters", got)
	}
	c.clusters("c")
	c.mustEnd(codes.ResourceExhausted)
	a.Delete(t, xdsmsg.ClusterType, "c")
	if store.Get(xdsmsg.ClusterType, "c") != nil {
		t.Error("the Cluster was not deleted")
	}
}
