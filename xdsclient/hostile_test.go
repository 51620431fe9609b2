package xdsclient

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// What a server may send in place of a good resource, and what it is answered. One good resource
// goes along, and must be used (gRFC A46).
func TestFaultyResources(t *testing.T) {
	types := newTestTypes()
	rawAny := func(typeURL string, value []byte) proto.Message {
		return &anypb.Any{TypeUrl: typeURL, Value: value}
	}
	const wrongType = `its type is "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment" in a response for "type.googleapis.com/envoy.config.cluster.v3.Cluster"`
	for name, tc := range map[string]struct {
		// wrapped are sent in wrappers by both protocols, sotw by SotW, and delta by delta.
		wrapped []part
		sotw    []proto.Message
		delta   []part
		// nack is what follows the count in the NACK; empty for an ACK.
		nack string
		// a is what the watcher of cluster a gets; empty for nothing.
		a string
	}{
		"good":                       {wrapped: []part{has("a", "1", cluster("a", ""))}, a: "value"},
		"named by itself":            {wrapped: []part{has("", "1", cluster("a", ""))}, a: "value"},
		"named by the wrapper alone": {wrapped: []part{has("a", "1", cluster("", "x"))}, a: "value"},
		"without a version":          {wrapped: []part{has("a", "", cluster("a", ""))}, a: "value"},
		"without a name":             {wrapped: []part{has("", "1", cluster("", "x"))}, nack: `; resources[1]: it has no name`},
		"bare without a name":        {sotw: []proto.Message{cluster("", "x")}, nack: `; resources[1]: it has no name`},
		"under another name": {
			wrapped: []part{has("a", "1", cluster("b", ""))},
			nack:    `; Cluster "a": it calls itself "b", other than its wrapper`,
			a:       "invalid",
		},
		"empty Any": {
			sotw: []proto.Message{&anypb.Any{}},
			nack: `; resources[1]: there is no resource in the google.protobuf.Any`,
		},
		"empty Any in a wrapper": {
			wrapped: []part{has("a", "1", &anypb.Any{})},
			nack:    `; Cluster "a": there is no resource in the google.protobuf.Any`,
			a:       "invalid",
		},
		"empty": {
			wrapped: []part{has("", "", nil)},
			nack:    `; resources[1]: there is no resource in the google.protobuf.Any`,
		},
		"empty wrapper": {
			wrapped: []part{has("a", "", nil)},
			nack:    `; Cluster "a": there is no resource in the google.protobuf.Any`,
			a:       "invalid",
		},
		"wrong type":              {sotw: []proto.Message{endpoints("a")}, nack: `; resources[1]: ` + wrongType},
		"wrong type in a wrapper": {wrapped: []part{has("a", "1", endpoints("a"))}, nack: `; Cluster "a": ` + wrongType, a: "invalid"},
		"wrapper in a wrapper": {
			wrapped: []part{has("a", "1", wrap(t, "a", cluster("a", "")))},
			nack:    `; Cluster "a": its type is "` + wrapperType + `" in a response for "type.googleapis.com/envoy.config.cluster.v3.Cluster"`,
			a:       "invalid",
		},
		"garbled wrapper": {
			sotw: []proto.Message{rawAny(wrapperType, []byte{0xff})},
			nack: `; resources[1]: malformed envoy.service.discovery.v3.Resource: unexpected EOF`,
		},
		"wrapper whose name is not UTF-8": {
			sotw: []proto.Message{rawAny(wrapperType, []byte{3<<3 | 2, 1, 0xff})},
			nack: `; resources[1]: name: not valid UTF-8`,
		},
		"decoder panics": {
			sotw: []proto.Message{cluster("a", "panic")},
			nack: `; resources[1]: the decoder panicked: decoder out of order`,
		},
		"decoder panics in a wrapper": {
			wrapped: []part{has("a", "1", cluster("a", "panic"))},
			nack:    `; Cluster "a": the decoder panicked: decoder out of order`,
			a:       "invalid",
		},
		"decoder makes nothing of it": {
			sotw: []proto.Message{cluster("a", "nothing")},
			nack: `; Cluster "a": the decoder made nothing of it`,
			a:    "invalid",
		},
		"fault that is not UTF-8": {
			sotw: []proto.Message{cluster("a", "garbled")},
			nack: "; Cluster \"a\": it has \uFFFD in it",
			a:    "invalid",
		},
		"twice, the first counts": {
			wrapped: []part{has("a", "1", cluster("a", "first")), has("a", "2", cluster("a", "second"))},
			nack:    `; Cluster "a": the response has more than one resource of this name`,
			a:       "value and ambient",
		},
		"bare twice, the first counts": {
			sotw: []proto.Message{cluster("a", "first"), cluster("a", "second")},
			nack: `; Cluster "a": the response has more than one resource of this name`,
			a:    "value and ambient",
		},
		"twice the same": {
			sotw: []proto.Message{cluster("a", "x"), wrap(t, "a", cluster("a", "x"))},
			nack: `; Cluster "a": the response has more than one resource of this name`,
			a:    "value and ambient",
		},
		"unasked": {
			sotw: []proto.Message{cluster("u", ""), badCluster("v", "x"), wrap(t, "w", cluster("w", "panic")), cluster("a", "")},
			a:    "value",
		},
		"unasked in delta": {
			delta: []part{has("u", "1", cluster("u", "")), has("v", "1", badCluster("v", "x")), has("w", "1", endpoints("w")), lacks("x"), fails("y", codes.Internal, "z")},
		},
		"error without a name": {
			delta: []part{fails("", codes.NotFound, "which?")},
			nack:  `; resource_errors[0]: it names no resource`,
		},
	} {
		check := func(t *testing.T, c *XDSClient, n int, send func(), answer func() string) {
			good, _ := listen(t, c, types.clusters, "good")
			a, _ := listen(t, c, types.clusters, "a")
			send()
			text := ""
			if tc.nack != "" {
				text = fmt.Sprintf("1 of %d Cluster resources are invalid%s", n+1, tc.nack)
			}
			// The protobuf runtime varies its white space on purpose.
			if got := strings.ReplaceAll(answer(), "\u00a0", " "); got != text {
				t.Errorf("error_detail is\n%s\nwant\n%s", got, text)
			}
			good.cluster("1")
			if strings.HasPrefix(tc.a, "value") {
				a.value()
			}
			switch tc.a {
			case "value and ambient": // the watcher may get both in one go
				a.ambient(KindInvalid)
			case "invalid":
				a.fault(KindInvalid)
			}
			a.silent()
		}
		if tc.delta == nil {
			t.Run("SotW/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					messages := append([]proto.Message{cluster("good", "1")}, tc.sotw...)
					for _, r := range deltaResponse(types.clusters, "", tc.wrapped...).GetResources() {
						messages = append(messages, r)
					}
					var s *scriptStream
					server := newScript(t)
					check(t, server.client(), len(messages)-1, func() {
						s = server.stream()
						s.request()
						s.send(types.clusters, "1", "n1", messages...)
					}, func() string { return s.answer() })
					s.quiet()
				})
			})
		}
		if tc.sotw == nil {
			t.Run("delta/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					parts := append([]part{has("good", "1", cluster("good", "1"))}, append(tc.wrapped, tc.delta...)...)
					var s *deltaStream
					server := newScript(t)
					check(t, server.deltaClient(), len(parts)-1, func() {
						s = server.delta()
						s.request()
						s.send(types.clusters, "n1", parts...)
					}, func() string { return s.answer() })
					s.quiet()
				})
			})
		}
	}
}

// A resource whose name cannot be read may be any of those that seem to be
// missing, so none is deleted.
func TestNamelessResourceDeletesNothing(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		s := server.stream()
		s.send(types.clusters, "1", "n1", cluster("a", "1"))
		a.cluster("1")
		s.send(types.clusters, "2", "n2", cluster("a", "panic"))
		a.silent()
	})
}

// Resources that nobody asked for are dropped, whatever their number.
func TestFloodOfUnaskedResources(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		s := server.stream()
		s.request()
		const flood = 20_000
		var resources []proto.Message
		for i := range flood {
			resources = append(resources, wrap(t, fmt.Sprint("u", i), cluster("u", "")))
		}
		s.send(types.clusters, "1", "n1", append(resources, cluster("a", "1"))...)
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, version: "1", nonce: "n1"})
		a.cluster("1")
		if got := c.Stats(); got.Unasked != flood || got.Decoded != 1 {
			t.Errorf("%d resources were dropped and %d decoded, want %d and 1", got.Unasked, got.Decoded, flood)
		}
	})
}

// A NACK lists the faults up to a bound, and says how many there are.
func TestNACKIsBounded(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		listen(t, c, types.clusters, "a")
		s := server.stream()
		s.request()
		var resources []proto.Message
		for range 1000 {
			resources = append(resources, badCluster("", strings.Repeat("x", 1000)))
		}
		s.send(types.clusters, "1", "n1", resources...)
		text := s.request().GetErrorDetail().GetMessage()
		if len(text) > maxFaultText+1000 {
			t.Errorf("the NACK has %d bytes", len(text))
		}
		if !strings.HasPrefix(text, "1000 of 1000 Cluster resources are invalid; resources[0]: ") || !strings.Contains(text, " more") {
			t.Errorf("the NACK is %.100s … %s", text, text[len(text)-100:])
		}
	})
}

// A server that resets each stream after a response is asked no more often than
// the first step of the backoff allows if the response was good, and less and less
// often if it was not.
func TestStreamResetsAfterEveryResponse(t *testing.T) {
	second := time.Second
	overEachProtocol(t, nil, func(v *protocolTest) {
		a := v.listen("a")
		for range 4 {
			s := v.connect()
			s.say(v.types.clusters, "1", clusters(badCluster("a", "no")))
			synctest.Wait()
			s.breakOff()
		}
		a.fault(KindInvalid)
		for range 4 {
			s := v.connect()
			s.say(v.types.clusters, "2", clusters(cluster("a", "x")))
			synctest.Wait()
			s.breakOff()
		}
		a.cluster("x")
		v.connect()
		want := []time.Duration{0, 1 * second, 3 * second, 7 * second, 15 * second, 16 * second, 17 * second, 18 * second, 19 * second}
		if got := v.server.attempts(); !slices.Equal(got, want) {
			t.Errorf("streams began at %v, want %v", got, want)
		}
		a.silent()
	})
}

// A server that answers with garbage is one that does not answer.
func TestGarbageIsNoAnswer(t *testing.T) {
	overEachProtocol(t, nil, func(v *protocolTest) {
		a := v.listen("a")
		for range 3 {
			v.connect().say(&ResourceType{}, "1", nil)
		}
		if err := a.fault(KindUnreachable); !strings.Contains(err.Error(), "DiscoveryResponse: type_url is empty") {
			t.Errorf("got %v, want the fault of the response in it", err)
		}
		v.connect().say(v.types.clusters, "1", clusters(cluster("a", "x")))
		a.cluster("x")
		want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}
		if got := v.server.attempts(); !slices.Equal(got, want) {
			t.Errorf("streams began at %v, want %v", got, want)
		}
	})
}

// stallingConn lets only so many bytes through to its reader until it is closed.
type stallingConn struct {
	net.Conn
	left   int
	closed chan struct{}
	once   sync.Once
}

func (c *stallingConn) Read(b []byte) (int, error) {
	if c.left == 0 {
		<-c.closed
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

func (c *stallingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A server that stalls half-way through a message: what it was asked for does not
// come in time, which the watchers hear; and when the connection is gone, all
// comes again.
func TestStallHalfWayThroughAMessage(t *testing.T) {
	overEachProtocol(t, nil, func(v *protocolTest) {
		const size = 100_000
		conns := make(chan *stallingConn, 10)
		v.server.wire = func(conn net.Conn) net.Conn {
			c := &stallingConn{Conn: conn, left: size / 2, closed: make(chan struct{})}
			conns <- c
			return c
		}
		cached, a := v.listen("cached"), v.listen("a")
		s := v.connect()
		s.say(v.types.clusters, "1", clusters(cluster("cached", "x")))
		cached.cluster("x")
		long := strings.Repeat("x", size)
		s.say(v.types.clusters, "2", clusters(cluster("cached", "x"), cluster("a", long)))
		pass(14 * time.Second)
		a.silent()
		if v.delta {
			a.fault(KindTimeout)
		} else {
			a.fault(KindDoesNotExist)
		}
		fresh := v.listen("fresh")
		pass(16 * time.Second)
		if h := fresh.next(); h.err == nil {
			t.Errorf("got %v from a server that stalls", h)
		}
		cached.silent()

		v.server.mu.Lock()
		v.server.wire = nil
		v.server.mu.Unlock()
		(<-conns).Close()
		v.connect().say(v.types.clusters, "3", clusters(cluster("cached", "x"), cluster("a", long), cluster("fresh", "x")))
		a.cluster(long)
		fresh.cluster("x")
		cached.silent()
	})
}
