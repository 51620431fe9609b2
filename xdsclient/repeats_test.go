package xdsclient

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// answerer is a server stream of either protocol that sends the same resource again and
// again.
type answerer interface {
	// repeat sends cluster a once more, under a nonce of its own.
	repeat(typ *ResourceType, text string)
	// waitReply waits for a request that answers a response, and reports whether it is
	// a NACK, and the nonce.
	waitReply() (nack bool, nonce string)
	// replies takes the requests that have come, of which each answers a response.
	replies() (n int)
	quiet()
}

type sotwAnswerer struct {
	*scriptStream
	n int
}

func (s *sotwAnswerer) repeat(typ *ResourceType, text string) {
	s.n++
	s.send(typ, "1", fmt.Sprint("n", s.n), cluster("a", text))
}

func (s *sotwAnswerer) waitReply() (bool, string) {
	r := s.request()
	return r.GetErrorDetail() != nil, r.GetResponseNonce()
}

func (s *sotwAnswerer) replies() int { return drain(s.requests) }

type deltaAnswerer struct {
	*deltaStream
	n int
}

func (s *deltaAnswerer) repeat(typ *ResourceType, text string) {
	s.n++
	s.send(typ, fmt.Sprint("n", s.n), has("a", "1", cluster("a", text)))
}

func (s *deltaAnswerer) waitReply() (bool, string) {
	r := s.request()
	return r.GetErrorDetail() != nil, r.GetResponseNonce()
}

func (s *deltaAnswerer) replies() int { return drain(s.requests) }

// drain takes what is in a channel, and counts it.
func drain[T any](from chan T) (n int) {
	for {
		select {
		case <-from:
			n++
		default:
			return n
		}
	}
}

// onBothProtocols runs a test over SotW and delta, with a client that watches cluster a,
// and a stream that has its subscription.
func onBothProtocols(t *testing.T, test func(t *testing.T, types *testTypes, c *XDSClient, a *ear, s answerer)) {
	t.Run("SotW", func(t *testing.T) {
		overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
			a, _ := listen(t, c, types.clusters, "a")
			s := server.asked()
			test(t, types, c, a, &sotwAnswerer{scriptStream: s})
		})
	})
	t.Run("delta", func(t *testing.T) {
		overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
			a, _ := listen(t, c, types.clusters, "a")
			s := server.askedDelta()
			test(t, types, c, a, &deltaAnswerer{deltaStream: s})
		})
	})
}

// A server that answers each ACK, or each NACK with what was NACKed, is answered once a second.
// Each repetition is counted, and not decoded.
func TestRepliesToARepeatedResponsePause(t *testing.T) {
	for _, text := range []string{"blue", "bad: blue"} {
		t.Run(text, func(t *testing.T) {
			onBothProtocols(t, func(t *testing.T, types *testTypes, c *XDSClient, a *ear, s answerer) {
				m := newMeter()
				t.Cleanup(c.Attach("xds:///t", m))
				const rounds = 40
				bad, rejected, metric := text != "blue", uint64(0), "resource_updates_valid"
				if bad {
					rejected, metric = rounds, "resource_updates_invalid"
				}
				for i := range rounds {
					sent := time.Now()
					s.repeat(types.clusters, text)
					nack, nonce := s.waitReply()
					if want := fmt.Sprint("n", i+1); nack != bad || nonce != want {
						t.Fatalf("the reply has nonce %q, a NACK: %v; want %q, %v", nonce, nack, want, bad)
					}
					want := time.Second
					if i < 2 { // The first response that looks like the last one is worked on.
						want = 0
					}
					if wait := time.Since(sent); wait != want {
						t.Errorf("reply %d took %v, want %v", i, wait, want)
					}
				}
				if bad {
					a.fault(KindInvalid)
				} else {
					a.cluster("blue")
				}
				a.silent()
				stats := c.Stats()
				if stats.Responses != rounds || stats.Rejected != rejected || stats.Decoded > 2 {
					t.Errorf("%d responses, %d rejected, %d resources decoded; want %d, %d, at most 2", stats.Responses, stats.Rejected, stats.Decoded, rounds, rejected)
				}
				xdstest.Equal(t, "resources counted by the metrics", rounds, m.read(t)[metric+ofType])
			})
		})
	}
}

// holdBack repeats a response until its answer is held back.
func holdBack(t *testing.T, types *testTypes, s answerer, text string) {
	t.Helper()
	for range 3 {
		s.repeat(types.clusters, text)
		synctest.Wait()
	}
	if n := s.replies(); n != 2 {
		t.Fatalf("%d answers went out at once, want 2", n)
	}
}

// While an answer is held back a different response is worked on, and answered, at once.
func TestDifferentResponseIsNotHeldBack(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, types *testTypes, c *XDSClient, a *ear, s answerer) {
		holdBack(t, types, s, "bad: blue")
		a.fault(KindInvalid)
		start := time.Now()
		s.repeat(types.clusters, "green")
		a.cluster("green")
		for nonce := ""; nonce != "n4"; {
			_, nonce = s.waitReply()
		}
		if late := time.Since(start); late > 0 {
			t.Errorf("the answer took %v, want it at once", late)
		}
		s.repeat(types.clusters, "bad: red")
		if nack, _ := s.waitReply(); !nack || time.Since(start) > 0 {
			t.Errorf("the next answer: a NACK: %v, after %v; want a NACK at once", nack, time.Since(start))
		}
		a.ambient(KindInvalid)
	})
}

// A server that repeats itself at leisure is answered at once each time.
func TestSlowRepetitionsAreAnsweredAtOnce(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, types *testTypes, c *XDSClient, a *ear, s answerer) {
		for i := range 20 {
			s.repeat(types.clusters, "blue")
			synctest.Wait()
			if s.replies() != 1 {
				t.Fatalf("response %d was not answered at once", i)
			}
			pass(time.Second)
		}
		a.cluster("blue")
	})
}

// Over SotW a change of the subscriptions goes out at once, in a request that is the NACK
// that was held back.
func TestSubscriptionChangeIsNotHeldBack(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		wire := server.asked()
		s := &sotwAnswerer{scriptStream: wire}
		holdBack(t, types, s, "bad: blue")
		a.fault(KindInvalid)

		start := time.Now()
		listen(t, c, types.clusters, "b")
		check(t, wire.request(), want{typ: types.clusters, names: []string{"a", "b"}, nonce: "n3", nack: true})
		listen(t, c, types.endpoints, "e")
		check(t, wire.request(), want{typ: types.endpoints, names: []string{"e"}})
		if late := time.Since(start); late > 0 {
			t.Errorf("the change took %v, want it at once", late)
		}
		pass(time.Minute)
		s.quiet()
	})
}

// A response with what nobody watches makes the client repeat its last list of names
// before it lists a change. That does not wait either.
func TestSubscriptionChangeAfterUnaskedResourcesIsNotHeldBack(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		s := server.asked()
		for i := range 3 {
			s.send(types.clusters, "1", fmt.Sprint("n", i), cluster("a", "blue"), cluster("b", "blue"))
			synctest.Wait()
		}
		if n := drain(s.requests); n != 2 {
			t.Fatalf("%d answers went out at once, want 2", n)
		}
		a.cluster("blue")
		start := time.Now()
		listen(t, c, types.clusters, "b")
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, version: "1", nonce: "n2"})
		check(t, s.request(), want{typ: types.clusters, names: []string{"a", "b"}, version: "1", nonce: "n2"})
		if late := time.Since(start); late > 0 {
			t.Errorf("the change took %v, want it at once", late)
		}
	})
}

// Over delta a change of the subscriptions goes out at once as well, and the same bytes
// as before are worked on if they answer it.
func TestRepetitionAfterSubscriptionChangeIsWorkedOn(t *testing.T) {
	overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, stop := listen(t, c, types.clusters, "a")
		keep, _ := listen(t, c, types.clusters, "keep")
		wire := server.askedDelta()
		s := &deltaAnswerer{deltaStream: wire}
		wire.send(types.clusters, "n0", has("keep", "1", cluster("keep", "blue")))
		wire.request()
		keep.cluster("blue")
		holdBack(t, types, s, "blue")
		a.cluster("blue")

		start := time.Now()
		stop()
		for r := wire.request(); len(r.GetResourceNamesUnsubscribe()) == 0; {
			r = wire.request()
		}
		again, _ := listen(t, c, types.clusters, "a")
		for r := wire.request(); len(r.GetResourceNamesSubscribe()) == 0; {
			r = wire.request()
		}
		s.repeat(types.clusters, "blue")
		again.cluster("blue")
		if late := time.Since(start); late > 0 {
			t.Errorf("that took %v, want it at once", late)
		}
	})
}

// A server that sends one response without end, and reads no answer before it sends the
// next, is slowed down, and the other types on the stream are served all the same.
func TestFloodOfARepeatedResponse(t *testing.T) {
	for _, text := range []string{"blue", "bad: blue"} {
		t.Run(text, func(t *testing.T) {
			bubble(t, func(t *testing.T) { floodWith(t, text) })
		})
	}
}

func floodWith(t *testing.T, text string) {
	types, server := newTestTypes(), newScript(t)
	c := server.client()
	m := newMeter()
	t.Cleanup(c.Attach("xds:///t", m))
	listen(t, c, types.clusters, "a")
	b, _ := listen(t, c, types.clusters, "b")
	e, _ := listen(t, c, types.endpoints, "e")
	s := server.asked()
	s.request()
	s.send(types.endpoints, "1", "e1", endpoints("e"))
	e.value()

	const flood = 20_000
	start := time.Now()
	var between time.Duration
	for i := range flood {
		s.send(types.clusters, "1", fmt.Sprint("n", i), cluster("a", text), cluster("b", "blue"))
		if i == flood/2 {
			asked := time.Now()
			s.respond(&discoveryv3.DiscoveryResponse{TypeUrl: types.endpoints.TypeURL, VersionInfo: "2", Nonce: "e2", Resources: []*anypb.Any{
				pack(t, &endpointv3.ClusterLoadAssignment{ClusterName: "e", NamedEndpoints: map[string]*endpointv3.Endpoint{"x": {}}}),
			}})
			e.value()
			between = time.Since(asked)
		}
	}
	took := time.Since(start)
	b.cluster("blue")
	pass(20 * time.Second) // the last are read, and their answer is held back, for some seconds
	if took < 20*time.Second {
		t.Errorf("%d repetitions were read within %v, want them to be slowed down", flood, took)
	}
	if between > 5*time.Second {
		t.Errorf("a response of another type took %v", between)
	}
	stats := c.Stats()
	if stats.Responses != flood+2 || stats.Decoded > 5 {
		t.Errorf("%d responses, of which %d resources were decoded; want %d and at most 5", stats.Responses, stats.Decoded, flood+2)
	}
	metric := "resource_updates_valid" + ofType
	if text != "blue" {
		metric = "resource_updates_invalid" + ofType
	}
	counted := flood
	if text == "blue" {
		counted = 2 * flood
	}
	if got := m.read(t)[metric]; got != int64(counted) {
		t.Errorf("the metrics count %d resources, want %d", got, counted)
	}
	var last *discoverypb.DiscoveryRequest
	answers := 0
	for len(s.requests) > 0 {
		if r := <-s.requests; r.GetTypeUrl() == types.clusters.TypeURL {
			last = r
			answers++
		}
	}
	xdstest.Equal(t, "the last answer is to", fmt.Sprint("n", flood-1), last.GetResponseNonce())
	if answers > flood/100 {
		t.Errorf("there were %d answers to %d repetitions", answers, flood)
	}
}

// A flood of responses for a type that nothing is subscribed to is slowed down too, and
// says so in the log once.
func TestFloodOfIgnoredResponses(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		s := server.asked()
		s.send(types.clusters, "1", "n1", cluster("a", "blue"))
		a.cluster("blue")
		const flood = 10_000
		start := time.Now()
		for range flood {
			s.send(types.endpoints, "1", "n1", endpoints("e"))
		}
		s.send(types.clusters, "2", "n2", cluster("a", "green"))
		a.cluster("green")
		if took := time.Since(start); took < 10*time.Second {
			t.Errorf("%d responses were read within %v, want them to be slowed down", flood, took)
		}
		xdstest.Equal(t, "responses ignored", flood, c.Stats().Ignored)
	})
}
