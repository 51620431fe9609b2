package balancer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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

func TestRPCsReachTheirCluster(t *testing.T) {
	t.Parallel()
	a, b := startServer(t, "a"), startServer(t, "b")
	ch := dial(t)
	ch.publish("a", states{"a": serving(a.addr), "b": serving(b.addr)})
	ch.expect("a")
	ch.publish("b", nil)
	ch.expect("b")
	s, err := ch.open()
	xdstest.NoError(t, err)
	for range 3 {
		if got, err := s.exchange(); err != nil || got != "b" {
			t.Fatalf("a stream was answered by %q (error %v), want b", got, err)
		}
	}
	s.CloseSend()
	if err := s.RecvMsg(new(wrapperspb.StringValue)); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v", err)
	}
}

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

func TestConnectMakesTheChannelReady(t *testing.T) {
	t.Parallel()
	a := startServer(t, "a")
	ch := dial(t)
	ch.publish("a", states{"a": serving(a.addr)})
	ctx := testContext(t)
	for s := ch.cc.GetState(); s != connectivity.Ready && ctx.Err() == nil; s = ch.cc.GetState() {
		// gRPC drops a Connect that comes before the channel has its configuration.
		ch.cc.Connect()
		soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		ch.cc.WaitForStateChange(soon, s)
		cancel()
	}
	ch.await(connectivity.Ready)
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

func TestNoRPCFailsWhileEndpointsChange(t *testing.T) {
	t.Parallel()
	addrs := []string{startServer(t, "s0").addr, startServer(t, "s1").addr, startServer(t, "s2").addr}
	ch := dial(t)
	ch.publish("c", states{"c": serving(addrs...)})
	stop := ch.keepCalling(4)
	for n := range 200 {
		i := rand.IntN(3)
		c := serving(addrs[i])
		if rand.IntN(2) == 0 {
			c = serving(addrs[i], addrs[(i+1)%3])
		}
		c.Endpoints.Localities[0].ID.Zone = fmt.Sprint(rand.IntN(3))
		ch.publish("c", states{"c": c})
		if _, err := ch.call(); err != nil {
			t.Errorf("after update %d an RPC failed: %v", n, err)
		}
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

func TestErrorsThatRPCsSee(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		given func(ch *channel, dead string)
		want  func(dead string) []string
	}{
		{"no endpoint can be reached", func(ch *channel, dead string) {
			ch.publish("a", states{"a": serving(dead)})
		}, func(dead string) []string {
			return []string{`cluster "a"`, "ClusterLoadAssignment", dead, "connection refused"}
		}},
		{"the cluster's resource has an error", func(ch *channel, _ string) {
			ch.publish("a", states{"a": {Err: errors.New("resource a: not found")}})
		}, func(string) []string { return []string{"resource a: not found"} }},
		{"there is no configuration", func(ch *channel, _ string) {
			ch.fail(errors.New("Listener l: not found"))
		}, func(string) []string { return []string{"Listener l: not found"} }},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			dead, alive := closedAddr(t), startServer(t, "alive")
			ch := dial(t)
			tc.given(ch, dead)
			_, err := ch.call()
			xdstest.Equal(t, "code", codes.Unavailable, status.Code(err))
			for _, part := range tc.want(dead) {
				if !strings.Contains(fmt.Sprint(err), part) {
					t.Errorf("error %q does not contain %q", err, part)
				}
			}

			// An RPC that waits for ready succeeds once the configuration works.
			answer := make(chan error, 1)
			go func() {
				_, err := ch.call(grpc.WaitForReady(true))
				answer <- err
			}()
			ch.publish("a", states{"a": serving(alive.addr)})
			if err := <-answer; err != nil {
				t.Errorf("the RPC that waited for ready failed: %v", err)
			}
		})
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

func TestChannelGoesIdleAndBack(t *testing.T) {
	t.Parallel()
	a := startServer(t, "a")
	ch := dial(t, grpc.WithIdleTimeout(100*time.Millisecond))
	ch.publish("a", states{"a": serving(a.addr)})
	for range 2 {
		ch.expect("a")
		ch.await(connectivity.Idle)
	}
	ch.expect("a")
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
