package xdsclient

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// Envoy, xDS protocol, "Incremental xDS": requests carry the names that were added
// and left, and the nonce of a response only if they answer it.
func TestDeltaSubscribesByDifference(t *testing.T) {
	overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		b, stopB := listen(t, c, types.clusters, "b")
		listen(t, c, types.endpoints, "e")
		s := server.delta()
		s.expect(deltaWant{typ: types.clusters, sub: []string{"a", "b"}, node: true})
		s.expect(deltaWant{typ: types.endpoints, sub: []string{"e"}})
		s.send(types.clusters, "n1", has("a", "1", cluster("a", "x")), has("b", "1", cluster("b", "x")))
		s.expect(deltaWant{typ: types.clusters, nonce: "n1"})
		allHear("x", a, b)

		listen(t, c, types.clusters, "c")
		s.expect(deltaWant{typ: types.clusters, sub: []string{"c"}})
		stopB()
		s.expect(deltaWant{typ: types.clusters, unsub: []string{"b"}})
		// What the server sent before it knew is dropped, and acknowledged.
		s.send(types.clusters, "n2", has("b", "2", cluster("b", "y")), has("a", "2", cluster("a", "y")))
		s.expect(deltaWant{typ: types.clusters, nonce: "n2"})
		a.cluster("y")
		again, _ := listen(t, c, types.clusters, "b")
		s.expect(deltaWant{typ: types.clusters, sub: []string{"b"}})
		again.silent()
		s.send(types.clusters, "n3", has("b", "2", cluster("b", "y")))
		again.cluster("y")
		s.expect(deltaWant{typ: types.clusters, nonce: "n3"})
		s.quiet()
	})
}

// A watch that stops and starts again between two requests is no news for the
// server, and what is cached stays.
func TestDeltaUnsubscribeAndResubscribeBetweenTwoRequests(t *testing.T) {
	overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		busy := newEar(t)
		busy.keepDone = true
		c.Watch(types.clusters, "busy", busy)
		a, stop := listen(t, c, types.clusters, "a")
		s := server.askedDelta()
		s.send(types.clusters, "n1", has("a", "1", cluster("a", "x")), has("busy", "1", cluster("busy", "x")))
		s.expect(deltaWant{typ: types.clusters, nonce: "n1"})
		a.cluster("x")
		h := busy.next() // not done: requests are held back
		stop()
		again, stopAgain := listen(t, c, types.clusters, "a")
		again.cluster("x")
		_, stopNew := listen(t, c, types.clusters, "new")
		stopNew()
		h.done()
		s.quiet()

		// With both in one batch, one request has both.
		s.send(types.clusters, "n2", has("busy", "2", cluster("busy", "y")))
		s.expect(deltaWant{typ: types.clusters, nonce: "n2"})
		h = busy.next()
		stopAgain()
		listen(t, c, types.clusters, "other")
		listen(t, c, types.clusters, "another")
		s.quiet()
		h.done()
		s.expect(deltaWant{typ: types.clusters, sub: []string{"another", "other"}, unsub: []string{"a"}})
		s.quiet()
	})
}

// A watch that ends while its request is being written is unsubscribed from.
func TestDeltaWatchStoppedWhileItsRequestIsWritten(t *testing.T) {
	t.Parallel()
	types := newTestTypes()
	k := newDeltaCore(t)
	k.c.Watch(types.clusters, "a", &counter{})
	k.answer()
	stop := k.c.Watch(types.clusters, "b", &counter{})
	r, _ := k.channel.NextRequest()
	if !slices.Equal(r.Subscribe.Names, []string{"b"}) {
		t.Fatalf("got request %+v, want a subscription to b", r)
	}
	stop()
	k.channel.Sent()
	r, _ = k.channel.NextRequest()
	if r == nil || !slices.Equal(r.Unsubscribe.Names, []string{"b"}) {
		t.Fatalf("got request %+v, want an unsubscription from b", r)
	}
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	if _, overdue := k.channel.expiry.nextOverdue(); overdue || k.channel.types[0].subs["b"] != nil {
		t.Error("something of the subscription is left")
	}
}

// Envoy, service/discovery/v3/discovery.proto, DeltaDiscoveryRequest: each response is
// answered with its own nonce. Changes of the subscriptions have a request of their own,
// without a nonce: Istio ignores the subscriptions in a request whose nonce is not that of
// its last response, and in a NACK.
func TestDeltaAnswersEachResponse(t *testing.T) {
	t.Parallel()
	types := newTestTypes()
	k := newDeltaCore(t)
	k.c.Watch(types.clusters, "a", &counter{})
	stop := k.c.Watch(types.clusters, "b", &counter{})
	k.answer()
	k.push(k.delta(types.clusters, "n1", has("a", "1", cluster("a", "x"))))
	k.push(k.delta(types.clusters, "n2", has("a", "2", badCluster("a", "no")), has("b", "2", badCluster("b", "neither"))))
	k.push(k.delta(types.clusters, "n3", has("a", "3", cluster("a", "y"))))
	k.c.Watch(types.clusters, "c", &counter{})
	stop()
	var got []string
	for {
		r, _ := k.channel.NextRequest()
		if r == nil {
			break
		}
		k.channel.Sent()
		got = append(got, fmt.Sprint(r.Nonce, "|", r.Fault, "|", r.Subscribe.Names, "|", r.Unsubscribe.Names))
	}
	want := []string{
		"n1||[]|[]", `n2|2 of 2 Cluster resources are invalid; Cluster "a": no; Cluster "b": neither|[]|[]`, "n3||[]|[]",
		"||[c]|[b]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("answers are\n%q\nwant\n%q", got, want)
	}
}

// A server that reads no answers is cut off before they fill the memory.
func TestDeltaBacklogIsBounded(t *testing.T) {
	t.Parallel()
	types := newTestTypes()
	k := newDeltaCore(t)
	k.c.Watch(types.clusters, "a", &counter{})
	k.answer()
	nonce := strings.Repeat("n", ads.MaxBacklog/4)
	for i := range 10 {
		_, d, err := k.channel.Receive(k.delta(types.clusters, nonce, lacks(fmt.Sprint("x", i))))
		switch {
		case i < 3 && err != nil:
			t.Fatalf("response %d: %v", i, err)
		case i >= 3 && (!errors.Is(err, ads.ErrUnread) || d != nil):
			t.Fatalf("response %d: got error %v, want %v", i, err, ads.ErrUnread)
		}
		if d != nil {
			<-d
			k.channel.Delivered()
		}
	}
}

// Envoy, DeltaDiscoveryRequest.initial_resource_versions: the first request of
// each type on a new stream has the versions of everything that is cached.
func TestDeltaReconnectSendsVersions(t *testing.T) {
	overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, b := listenBoth(t, c, types.clusters, "a", "b")
		missing, _ := listen(t, c, types.clusters, "missing")
		e, _ := listen(t, c, types.endpoints, "e")
		s := server.askedDelta()
		s.request()
		s.send(types.clusters, "n1", has("a", "1", cluster("a", "x")), has("b", "7", cluster("b", "x")), lacks("missing"))
		s.send(types.endpoints, "n2", has("e", "5", endpoints("e")))
		allHear("x", a, b)
		missing.fault(KindDoesNotExist)
		e.value()
		// The same bytes under another version are no change, but have that version.
		s.send(types.clusters, "n3", has("a", "2", cluster("a", "x")))
		// A version that was rejected is not the client's, and it does not vouch
		// for the one before, which the server may go back to.
		s.send(types.clusters, "n4", has("b", "8", badCluster("b", "no")))
		b.ambient(KindInvalid)
		a.silent()
		s.breakOff()

		s = server.delta()
		s.expect(deltaWant{typ: types.clusters, sub: []string{"a", "b", "missing"}, initial: map[string]string{"a": "2", "b": ""}, node: true})
		s.expect(deltaWant{typ: types.endpoints, sub: []string{"e"}, initial: map[string]string{"e": "5"}})
		s.quiet()
		s.send(types.clusters, "n1", has("b", "7", cluster("b", "x")), lacks("missing"))
		b.cluster("x")
		pass(time.Hour)
		allSilent(a, e, missing)
		types.wantDecoded(t, 4)
		server.opened(2)
	})
}

// A server that has nothing to say, because the client has everything, would never
// end the error that it was unreachable. So one version is kept back.
func TestDeltaServerThatIsBackAnswers(t *testing.T) {
	overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, b := listenBoth(t, c, types.clusters, "a", "b")
		e, _ := listen(t, c, types.endpoints, "e")
		s := server.askedDelta()
		s.request()
		s.send(types.clusters, "n1", has("a", "1", cluster("a", "x")), has("b", "1", cluster("b", "x")))
		s.send(types.endpoints, "n2", has("e", "1", endpoints("e")))
		allHear("x", a, b)
		e.value()
		s.breakOff()
		server.delta().breakOff()
		allAmbient(KindUnreachable, a, b, e)
		s = server.delta()
		s.expect(deltaWant{typ: types.clusters, sub: []string{"a", "b"}, initial: map[string]string{"a": "", "b": "1"}, node: true})
		s.expect(deltaWant{typ: types.endpoints, sub: []string{"e"}, initial: map[string]string{"e": "1"}})
		s.send(types.clusters, "n1", has("a", "1", cluster("a", "x")))
		allHear("x", a, b)
		e.value()
		types.wantDecoded(t, 3)
	})
}

// Envoy, xDS protocol, "Knowing When a Requested Resource Does Not Exist"
// (incremental), for a type that has no full state in SotW; gRFC A88, "Handling Data
// Errors".
func TestDeltaRemovedResources(t *testing.T) {
	for _, features := range [][]string{nil, {"fail_on_data_errors"}} {
		t.Run(fmt.Sprint(features), func(t *testing.T) {
			overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
				e, never := listenBoth(t, c, types.endpoints, "e", "never")
				s := server.delta()
				s.send(types.endpoints, "n1", has("e", "1", endpoints("e")), lacks("never", "unasked"))
				e.value()
				if err := never.fault(KindDoesNotExist); err.Code != codes.NotFound {
					t.Errorf("the error has code %v, want NOT_FOUND", err.Code)
				}
				s.send(types.endpoints, "n2", lacks("e", "never"))
				if features == nil {
					e.ambient(KindDoesNotExist)
				} else {
					e.fault(KindDoesNotExist)
				}
				never.silent()
				s.send(types.endpoints, "n3", has("e", "1", endpoints("e")), has("never", "1", endpoints("never")))
				e.value()
				never.value()
				// What is not in a response is not removed by it.
				s.send(types.endpoints, "n4")
				e.silent()
				if c.Stats().Rejected != 0 {
					t.Error("a response was rejected")
				}
			}, features...)
		})
	}
}

// The resource counts.
func TestDeltaResourceThatIsAlsoRemoved(t *testing.T) {
	overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		s := server.delta()
		s.send(types.clusters, "n1", lacks("a"), has("a", "1", cluster("a", "x")))
		a.cluster("x")
		a.silent()
	}, "fail_on_data_errors")
}

// Envoy, xDS protocol, "Resource names": a resource is for all who subscribed to
// its name or to one of its aliases.
func TestDeltaAliases(t *testing.T) {
	overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		own, _ := listen(t, c, types.clusters, "own")
		one, stopOne := listen(t, c, types.clusters, "alias-1")
		two, none := listenBoth(t, c, types.clusters, "alias-2", "alias-3")
		s := server.askedDelta()
		s.send(types.clusters, "n1", has("own", "1", cluster("own", "x"), "alias-2", "own", "alias-1", "unknown", "alias-1", ""))
		s.expect(deltaWant{typ: types.clusters, nonce: "n1"})
		value := own.cluster("x")
		if one.cluster("x") != value || two.cluster("x") != value {
			t.Error("the watchers got different values")
		}
		none.fault(KindTimeout)
		types.wantDecoded(t, 1)

		// Unchanged, for all; and an error in the data is one for all.
		s.send(types.clusters, "n2", has("own", "2", cluster("own", "x"), "alias-1", "alias-2"))
		allSilent(own, two)
		s.send(types.clusters, "n3", has("own", "3", badCluster("own", "no"), "alias-1", "alias-2"))
		allAmbient(KindInvalid, own, one, two)
		// A removal, or an error, names the resource.
		s.send(types.clusters, "n4", lacks("own"))
		allAmbient(KindDoesNotExist, own, one, two)
		s.send(types.clusters, "n5", fails("own", codes.Internal, "oops"))
		allAmbient(KindServer, own, one, two)
		s.send(types.clusters, "n6", has("own", "2", cluster("own", "x"), "alias-1", "alias-2"))
		allHear("x", own, one, two)
		// Versions are given for the resource.
		stopOne()
		synctest.Wait()
		s.breakOff()
		s = server.delta()
		s.expect(deltaWant{typ: types.clusters, sub: []string{"alias-2", "alias-3", "own"}, initial: map[string]string{"own": "2"}, node: true})
		c.mu.Lock()
		defer c.mu.Unlock()
		xdstest.Equal(t, "known subscriptions for the resource's own name",
			1, len(c.channels[c.config.Servers[0].Key()].types[0].byOwn["own"]))
	})
}

// Envoy, xDS protocol, "Knowing When a Requested Resource Does Not Exist"
// (incremental): clients are "still encouraged to use a timeout". Until the server
// has answered for the type on the stream, silence is absence as in SotW. After
// that the server says what does not exist, and silence is delay.
func TestDeltaResourceTimer(t *testing.T) {
	overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		start := time.Now()
		a, _ := listen(t, c, types.clusters, "a")
		e, _ := listen(t, c, types.endpoints, "e")
		s := server.delta()
		xdstest.Equal(t, "a was given up after",
			15*time.Second, heardAt(a, start, KindDoesNotExist))
		e.fault(KindDoesNotExist)
		s.send(types.clusters, "n1", has("a", "1", cluster("a", "x")))
		a.cluster("x")
		start = time.Now()
		late, _ := listen(t, c, types.clusters, "late")
		pass(5 * time.Second)
		soon, _ := listen(t, c, types.clusters, "soon")
		synctest.Wait() // the server is asked for it
		s.send(types.clusters, "n2", has("soon", "1", cluster("soon", "x")))
		soon.cluster("x")
		xdstest.Equal(t, "late was given up after",
			15*time.Second, heardAt(late, start, KindTimeout))
		other, _ := listen(t, c, types.endpoints, "other")
		other.fault(KindDoesNotExist) // the server has not answered for the type
		pass(time.Hour)
		soon.silent()
		// On the next stream the server has not answered yet.
		s.breakOff()
		server.delta()
		fresh, _ := listen(t, c, types.clusters, "fresh")
		fresh.fault(KindDoesNotExist)
	})
}

// A server that does not implement delta is spoken to in SotW,
// at once and from then on.
func TestUnimplementedDeltaFallsBackToSotW(t *testing.T) {
	bubble(t, func(t *testing.T) {
		types, server := newTestTypes(), newScript(t)
		server.sotwOnly = true
		c := server.deltaClient()
		a, stop := listen(t, c, types.clusters, "a")
		s := server.stream()
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, node: true})
		xdstest.Equal(t, "streams began at", []time.Duration{0, 0}, server.attempts())
		a.silent()
		s.send(types.clusters, "1", "n1", cluster("a", "x"))
		a.cluster("x")
		// It is remembered when the stream breaks, and when the channel is gone.
		s.breakOff()
		s = server.stream()
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, version: "1", node: true})
		stop()
		synctest.Wait()
		a, _ = listen(t, c, types.clusters, "a")
		s = server.stream()
		s.send(types.clusters, "1", "n1", cluster("a", "x"))
		a.cluster("x")
		server.opened(4)
	})
}

// UNIMPLEMENTED from a server that has answered is an error like any other, and so
// it is in SotW.
func TestUnimplementedElsewhereIsAnError(t *testing.T) {
	overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		s := server.delta()
		s.send(types.clusters, "n1", has("a", "1", cluster("a", "x")))
		a.cluster("x")
		s.end <- status.Error(codes.Unimplemented, "any more")
		server.delta().end <- status.Error(codes.Unimplemented, "at all")
		server.stream().end <- status.Error(codes.Unimplemented, "neither")
		if err := a.ambient(KindUnreachable); !strings.Contains(err.Error(), "Unimplemented: neither") {
			t.Errorf("got %v, want the reason of the SotW stream in it", err)
		}
	})
}

// No request of the first subscription of a type may be empty, which would ask for
// every resource (Envoy, xDS protocol, "Incremental xDS").
func TestDeltaNeverAsksForEverything(t *testing.T) {
	overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		e, _ := listen(t, c, types.endpoints, "e")
		a, stop := listen(t, c, types.clusters, "a")
		s := server.askedDelta()
		s.request()
		s.send(types.clusters, "n1", has("a", "1", cluster("a", "x")))
		s.expect(deltaWant{typ: types.clusters, nonce: "n1"})
		a.cluster("x")
		stop()
		s.expect(deltaWant{typ: types.clusters, unsub: []string{"a"}})
		s.send(types.clusters, "n2", lacks("a"))
		s.expect(deltaWant{typ: types.clusters, nonce: "n2"})
		s.breakOff()
		s = server.delta()
		s.expect(deltaWant{typ: types.endpoints, sub: []string{"e"}, node: true})
		// Nothing is subscribed to, so there is nothing to answer.
		s.send(types.clusters, "n1", has("a", "1", cluster("a", "x")))
		s.quiet()
		e.fault(KindDoesNotExist)
	})
}
