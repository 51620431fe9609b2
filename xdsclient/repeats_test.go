package xdsclient

import (
	"fmt"
	"testing"
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
	// replies takes the requests that have come, of which each answers a response.
	replies() (n int)
}

type sotwAnswerer struct {
	*scriptStream
	n int
}

func (s *sotwAnswerer) repeat(typ *ResourceType, text string) {
	s.n++
	s.send(typ, "1", fmt.Sprint("n", s.n), cluster("a", text))
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
