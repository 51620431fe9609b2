package balancer_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestRPCBeforeItsClusterIsKnownWaits(t *testing.T) {
	t.Parallel()
	a := startServer(t, "a")
	ch := dial(t)
	ch.publish("a", states{"a": {}})
	answer := make(chan string, 1)
	go func() {
		name, err := ch.call()
		answer <- fmt.Sprint(name, err)
	}()
	ch.await(connectivity.Connecting) // the RPC has asked for the cluster
	ch.publish("a", states{"a": serving(a.addr)})
	xdstest.Equal(t, "the RPC that waited ended with", "a<nil>", <-answer)
}

// The version rule: in whatever order the parts of a snapshot arrive, no RPC fails because
// clusters are added, removed and reordered.
func TestNoRPCFailsWhileClustersChange(t *testing.T) {
	t.Parallel()
	addrs := []string{startServer(t, "s0").addr, startServer(t, "s1").addr, startServer(t, "s2").addr}
	ch := dial(t)
	ch.publish("c0", states{"c0": serving(addrs...)})

	stop := ch.keepCalling(8)
	for i := range 1000 {
		now, next := fmt.Sprint("c", i), fmt.Sprint("c", i+1)
		changes := states{next: serving(addrs[rand.IntN(3)])}
		switch rand.IntN(3) {
		case 0: // moves to a new cluster and drops the old one, in one snapshot
			changes[now] = nil
		case 1: // the new cluster is added a snapshot early
			ch.publish(now, changes, rand.IntN(2) == 0)
			changes = states{now: nil}
		case 2: // the old cluster is removed a snapshot late, with new endpoints before
			ch.publish(next, changes, rand.IntN(2) == 0)
			ch.publish(next, states{now: serving(addrs[0])}, rand.IntN(2) == 0)
			changes = states{now: nil, next: serving(addrs[1], addrs[2])}
		}
		ch.publish(next, changes, rand.IntN(2) == 0)
	}
	stop()
}

func TestStreamOutlivesItsCluster(t *testing.T) {
	t.Parallel()
	a, b := startServer(t, "a"), startServer(t, "b")
	ch := dial(t)
	ch.publish("a", states{"a": serving(a.addr)})
	s, err := ch.open()
	xdstest.NoError(t, err)
	if _, err := s.exchange(); err != nil {
		t.Fatal(err)
	}
	ch.publish("b", states{"a": nil, "b": serving(b.addr)})
	ch.expect("b")
	for range 3 {
		if got, err := s.exchange(); err != nil || got != "a" {
			t.Fatalf("the stream was answered by %q (error %v), want a", got, err)
		}
	}
}

func TestRPCWithoutTheInterceptors(t *testing.T) {
	t.Parallel()
	a := startServer(t, "a")
	r := manual.NewBuilderWithScheme("test")
	cc, err := grpc.NewClient("test:///backend", grpc.WithResolvers(r),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(balancer.ServiceConfig))
	xdstest.NoError(t, err)
	defer cc.Close()
	state := &balancer.State{Version: 1, Clusters: changed(pmap.Map[*balancer.ClusterState]{},
		states{"a": serving(a.addr)})}
	r.InitialState(balancer.SetState(grpcresolver.State{}, state))
	err = cc.Invoke(testContext(t), "/test.Service/Method", wrapperspb.String(""), new(wrapperspb.StringValue),
		grpc.WaitForReady(true))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "dynxds.DialOptions") {
		t.Errorf("the RPC ended with %v, want UNAVAILABLE naming dynxds.DialOptions", err)
	}
}

func TestClosingTheChannelEndsRPCsThatWait(t *testing.T) {
	t.Parallel()
	ch := dial(t)
	ch.publish("a", states{"a": {}})
	ended := make(chan error, 1)
	go func() {
		_, err := ch.call()
		ended <- err
	}()
	ch.await(connectivity.Connecting)
	ch.cc.Close()
	select {
	case err := <-ended:
		if status.Code(err) != codes.Canceled && status.Code(err) != codes.Unavailable {
			t.Errorf("the RPC ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("the RPC outlived the channel")
	}
}
