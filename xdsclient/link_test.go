package xdsclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

var errTest = errors.New("test")

// gRFC A57, "Handling ADS Stream Termination": a stream that ends without an
// answer is a connectivity error. gRFC A88, "Handling Transient Errors": it takes
// the place of a resource that is not cached.
func TestUnreachableWithoutCachedResource(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		server.stream().breakOff()
		err := a.fault(KindUnreachable)
		if err.Code != codes.Unavailable || err.Server != "passthrough:///script" || err.NodeID != "node-1" {
			t.Errorf("got %#v, want UNAVAILABLE from passthrough:///script for node-1", err)
		}
		const text = `xDS Cluster "a": the management server is unreachable: Unavailable: off for lunch ` +
			`(management server passthrough:///script, node id "node-1"); ` +
			`check that the server runs, and server_uri and channel_creds in the xDS bootstrap`
		if err.Error() != text {
			t.Errorf("the error reads\n%s\nwant\n%s", err, text)
		}
	})
}

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
		allHear("1", a, b)
		s.breakOff()
		server.stream().breakOff()
		allAmbient(KindUnreachable, a, b)
		s = server.asked()
		s.send(types.clusters, "2", "n1", cluster("a", "2"), cluster("b", "1"))
		s.request()
		a.cluster("2")
		b.cluster("1")
		allSilent(a, b)
	})
}

// An address that is not the control plane's: a gRPC server without xDS, and a proxy that has no route to one.
func TestServersWithoutXDS(t *testing.T) {
	for message, want := range map[string]string{
		"unknown service envoy.service.discovery.v3.AggregatedDiscoveryService": `xDS Cluster "a": the management server cannot be used: it answers gRPC, but is no xDS server ` +
			`(Unimplemented: unknown service envoy.service.discovery.v3.AggregatedDiscoveryService) (management server passthrough:///script, node id "node-1"); ` +
			`give server_uri in the xDS bootstrap the address of the control plane; this may be that of a backend`,
		"unexpected HTTP status code received from server: 404 (Not Found)": `xDS Cluster "a": the management server is unreachable: Unimplemented: ` +
			`unexpected HTTP status code received from server: 404 (Not Found) (management server passthrough:///script, node id "node-1"); ` +
			`check that the server runs, and server_uri and channel_creds in the xDS bootstrap`,
	} {
		t.Run(message, func(t *testing.T) {
			overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
				a, _ := listen(t, c, types.clusters, "a")
				server.stream().end <- status.Error(codes.Unimplemented, message)
				if err := a.fault(KindUnreachable); err.Error() != want {
					t.Errorf("the error reads\n%s\nwant\n%s", err, want)
				}
			})
		})
	}
}

// The server's own words are passed on, but not without end.
func TestServerTextIsCut(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		server.stream().end <- status.Error(codes.PermissionDenied, strings.Repeat("é", 3000))
		err := a.fault(KindUnreachable)
		want := "PermissionDenied: " + bounds.Text(strings.Repeat("é", 3000), bounds.ErrorText)
		if err.Err.Error() != want {
			t.Errorf("the reason is %q, want %q", err.Err, want)
		}
	})
}

// A server that ends a stream with OK and no answer is not reachable either.
func TestStreamEndedWithOK(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		server.stream().end <- nil
		err := a.fault(KindUnreachable)
		if !errors.Is(err, transport.ErrNoAnswer) {
			t.Errorf("the reason is %v, want %v", err.Err, transport.ErrNoAnswer)
		}
		if text := err.Error(); !strings.Contains(text, "may have taken the server's only stream") || strings.Contains(text, "check that the server runs") {
			t.Errorf("the error reads %s", text)
		}
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

// The reason that gRPC has for not connecting reaches the watcher.
func TestConnectionRefused(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		server.stop()
		a, _ := listen(t, c, types.clusters, "a")
		server.open()
		if err := a.fault(KindUnreachable); !strings.Contains(err.Error(), "closed") {
			t.Errorf("got %v, want the dialer's reason in it", err)
		}
		server.start()
		s := server.stream()
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, node: true})
		s.send(types.clusters, "1", "n1", cluster("a", "1"))
		a.cluster("1")
	})
}

// gRFC A57: exponential backoff between attempts that bring no answer; grpc,
// doc/connection-backoff.md.
func TestBackoffGrowsAndIsResetByAGoodResponse(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		for range 6 {
			server.stream().breakOff()
		}
		s := server.stream()
		second := time.Second
		want := []time.Duration{0, 1 * second, 3 * second, 7 * second, 15 * second, 23 * second, 31 * second}
		if got := server.attempts(); !slices.Equal(got, want) {
			t.Fatalf("streams began at %v, want %v", got, want)
		}
		// A bad response does not reset the backoff, a good one does.
		s.send(types.clusters, "1", "n1", badCluster("a", "x"))
		a.fault(KindUnreachable)
		a.fault(KindInvalid)
		s.breakOff()
		s = server.stream()
		s.send(types.clusters, "2", "n1", cluster("a", "1"))
		a.cluster("1")
		s.breakOff()
		server.stream().breakOff()
		server.stream()
		want = append(want, 39*second, 40*second, 42*second)
		xdstest.Equal(t, "streams began at", want, server.attempts())
	})
}

// While a stream waits for its turn, a connection that comes back ends the wait.
func TestReconnectDoesNotWaitForTheStreamsBackoff(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		server.stop()
		server.open()
		a.fault(KindUnreachable)
		pass(20 * time.Second) // both waits have reached 8 s
		server.start()
		began := time.Now()
		server.stream()
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("it took %v to open a stream, want the 8 s of the connection's backoff at most", took)
		}
	})
}

// A server that answers with garbage is one that does not answer.
func TestGarbageEndsTheStream(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		s := server.asked()
		s.send(&ResourceType{}, "1", "n1")
		if err := a.fault(KindUnreachable); !strings.Contains(err.Error(), "malformed DiscoveryResponse: type_url is empty") {
			t.Errorf("got %v, want the fault of the response in it", err)
		}
		synctest.Wait()
		if s.wire.Context().Err() == nil {
			t.Error("the stream is still open")
		}
		s = server.stream()
		s.send(types.clusters, "1", "n1", cluster("a", "1"))
		a.cluster("1")
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
