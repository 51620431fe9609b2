package xdsclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
)

var errTest = errors.New("test")

// A response that ends a connectivity error with another version is one change to watchers: they are not
// given first what it replaces.
func TestReachableWithAChangedResource(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		decode := types.clusters.Decode
		types.clusters.Decode = func(a *anypb.Any, o DecodeOptions) (any, error) {
			pass(time.Second) // watchers are called meanwhile
			return decode(a, o)
		}
		a, b := listenBoth(t, c, types.clusters, "a", "b")
		s := server.asked()
		s.send(types.clusters, "1", "n1", cluster("a", "1"), cluster("b", "1"))
		s.request()
		a.cluster("1")
		b.cluster("1")
		s.breakOff()
		server.stream().breakOff()
		a.ambient(KindUnreachable)
		b.ambient(KindUnreachable)
		s = server.asked()
		s.send(types.clusters, "2", "n1", cluster("a", "2"), cluster("b", "1"))
		s.request()
		a.cluster("2")
		b.cluster("1")
		a.silent()
		b.silent()
	})
}

// A server that answers and ends the stream soon after, without an error, may serve another client now (Istio's agent has
// one stream). The log says so once; an error, and a long life, are no sign of that.
func TestStreamTakenByAnotherClient(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		said := func() bool { // the warning is there
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, ch := range c.channels {
				return ch.saidSoon
			}
			return false
		}
		for i, end := range []struct {
			after time.Duration
			err   error
			said  bool
		}{{time.Minute, nil, false}, {time.Second, status.Error(codes.Unavailable, "restart"), false}, {time.Second, nil, true}, {time.Second, nil, true}} {
			s := server.asked()
			s.send(types.clusters, fmt.Sprint(i), "n", cluster("a", fmt.Sprint(i)))
			s.request()
			a.cluster(fmt.Sprint(i))
			pass(end.after)
			s.end <- end.err
			synctest.Wait()
			if got := said(); got != end.said {
				t.Errorf("after end %d: said is %v, want %v", i, got, end.said)
			}
		}
		if len(logged.After("ended a stream without an error soon after it was opened: another xDS client of this pod")) == 0 {
			t.Error("the log does not say that the stream may have been taken")
		}
	})
}

// A server that accepts connections and then says nothing is unreachable before those who wait for a relay
// in between take their resources not to exist.
func TestServerThatSaysNothingAtAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types := newTestTypes()
		c, err := New(parseBootstrap(t, "passthrough:///silent"), WithDialOptions(
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go io.Copy(io.Discard, theirs)
				return ours, nil
			})))
		xdstest.NoError(t, err)
		t.Cleanup(c.Close)
		began := time.Now()
		a, _ := listen(t, c, types.clusters, "a")
		a.fault(KindUnreachable)
		if waited := time.Since(began); waited >= defaultResourceTimeout {
			t.Errorf("the server is unreachable after %v, want less than %v", waited, defaultResourceTimeout)
		}
	})
}

// A program may set another limit than the client's.
func TestMessageSizeLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, server := newTestTypes(), newScript(t)
		c, err := New(parseBootstrap(t, "passthrough:///script"), WithDialOptions(
			grpc.WithContextDialer(server.dial), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1000))))
		xdstest.NoError(t, err)
		t.Cleanup(c.Close)
		a, _ := listen(t, c, types.clusters, "a")
		s := server.asked()
		s.send(types.clusters, "1", "n1", &anypb.Any{TypeUrl: types.clusters.TypeURL, Value: make([]byte, 1000)})
		if err := a.fault(KindUnreachable); !strings.Contains(err.Error(), "ResourceExhausted") {
			t.Errorf("got %v, want RESOURCE_EXHAUSTED", err)
		}
	})
}
