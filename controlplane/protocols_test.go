package controlplane_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// peer is a client of either protocol, for what both have in common.
type peer interface {
	// subscribe sends a request that answers nothing: with all names (SotW), or with
	// those to add (delta).
	subscribe(typeURL string, names ...string)
	// drop unsubscribes from names, so that only rest are subscribed.
	drop(typeURL string, rest []string, names ...string)
	// identify is subscribe with a node of its own.
	identify(node, typeURL string, names ...string)
	// accept and reject answer a reply; rest are the names that stay subscribed.
	accept(r reply, rest ...string)
	reject(r reply, message string, rest ...string)
	next() reply
	fence()
	typeStatus(control *controlplane.Server, typeURL string) controlplane.TypeStatus
	end() error
	closeSend() error
}

// reply is a response of either protocol. In its content "a" is a resource, "-a" a removed
// one, and "!a: CODE" an error.
type reply struct {
	typeURL, version, nonce string
	content                 []string
	values                  []string // of the resources, as bytes
	message                 proto.Message
}

// eachProtocol runs a test over SotW and delta.
func eachProtocol(t *testing.T, test func(t *testing.T, protocol controlplane.Protocol, open func(*testServer) peer)) {
	t.Parallel()
	t.Run("SotW", func(t *testing.T) {
		t.Parallel()
		test(t, controlplane.ProtocolSotW, func(s *testServer) peer { return s.open(t) })
	})
	t.Run("delta", func(t *testing.T) {
		t.Parallel()
		test(t, controlplane.ProtocolDelta, func(s *testServer) peer { return s.openDelta(t) })
	})
}

// wantReply is want for either protocol.
func wantReply(t testing.TB, p peer, typeURL string, content ...string) reply {
	t.Helper()
	r := p.next()
	if r.typeURL != typeURL || !slices.Equal(r.content, content) {
		t.Fatalf("got a response of type %s with %q, want type %s with %q", r.typeURL, r.content, typeURL, content)
	}
	return r
}

func (c *client) drop(typeURL string, rest []string, _ ...string) { c.subscribe(typeURL, rest...) }

func (c *client) identify(node, typeURL string, names ...string) {
	c.send(&discoverypb.DiscoveryRequest{Node: &corepb.Node{Id: node}, TypeUrl: typeURL, ResourceNames: names})
}

func (c *client) accept(r reply, rest ...string) {
	c.ack(r.message.(*discoverypb.DiscoveryResponse), rest...)
}

func (c *client) reject(r reply, message string, rest ...string) {
	c.nack(r.message.(*discoverypb.DiscoveryResponse), "", message, rest...)
}

func (c *client) next() reply {
	c.t.Helper()
	resp := c.recv()
	r := reply{typeURL: resp.GetTypeUrl(), version: resp.GetVersionInfo(), nonce: resp.GetNonce(), message: resp}
	r.content = withErrors(namesIn(c.t, resp), resp.GetResourceErrors())
	for _, packed := range resp.GetResources() {
		r.values = append(r.values, string(packed.GetValue()))
	}
	return r
}

func (c *deltaClient) drop(typeURL string, _ []string, names ...string) {
	c.unsubscribe(typeURL, names...)
}

func (c *deltaClient) identify(node, typeURL string, names ...string) {
	c.send(&deltaRequest{Node: &corepb.Node{Id: node}, TypeUrl: typeURL, ResourceNamesSubscribe: names})
}

func (c *deltaClient) accept(r reply, _ ...string) { c.ack(r.message.(*deltaResponse)) }

func (c *deltaClient) reject(r reply, message string, _ ...string) {
	c.nack(r.message.(*deltaResponse), message)
}

func (c *deltaClient) next() reply {
	c.t.Helper()
	resp := c.recv()
	r := reply{typeURL: resp.GetTypeUrl(), version: resp.GetSystemVersionInfo(), nonce: resp.GetNonce(), message: resp}
	content := slices.DeleteFunc(contentOf(resp), func(item string) bool { return item[0] == '!' })
	r.content = withErrors(content, resp.GetResourceErrors())
	for _, resource := range resp.GetResources() {
		r.values = append(r.values, string(resource.GetResource().GetValue()))
	}
	return r
}

func withErrors(content []string, errs []*discoverypb.ResourceError) []string {
	for _, e := range describe(errs) {
		content = append(content, "!"+e)
	}
	slices.Sort(content)
	return content
}

func (c *rawClient[Req, Resp]) closeSend() error { return c.stream.CloseSend() }

func TestRequestWithoutTypeEndsTheStream(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) peer) {
		c := open(startServer(t))
		c.subscribe("")
		if err := c.end(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "type_url") {
			t.Errorf("the stream ended with %v", err)
		}
	})
}

// Envoy, "How the client specifies what resources to return" and "Incremental xDS".
func TestWildcard(t *testing.T) {
	tests := []struct {
		name, typeURL string
		first         *deltaRequest // a SotW client requests the names to subscribe to
		then          []string      // the content of the response, nil if none comes
		missing       []string      // content of a delta response before that
	}{
		{"first Listener request without names", lds, &deltaRequest{}, []string{"l1", "l2"}, nil},
		{"first Cluster request without names", cds, &deltaRequest{}, []string{"c1", "c2"}, nil},
		{"explicit star", cds, &deltaRequest{ResourceNamesSubscribe: []string{"*"}}, []string{"c1", "c2"}, nil},
		{"star and names", cds, &deltaRequest{ResourceNamesSubscribe: []string{"*", "c1", "c9"}}, []string{"c1", "c2"}, []string{"-c9"}},
		{"a name only", cds, &deltaRequest{ResourceNamesSubscribe: []string{"c2"}}, []string{"c2"}, nil},
		{"first request that only unsubscribes", cds, &deltaRequest{ResourceNamesUnsubscribe: []string{"c1"}}, nil, nil},
		{"first request that unsubscribes from star", cds, &deltaRequest{ResourceNamesUnsubscribe: []string{"*"}}, nil, nil},
		{"first RouteConfiguration request without names", rds, &deltaRequest{}, nil, nil},
		{"first ClusterLoadAssignment request without names", eds, &deltaRequest{}, nil, nil},
		{"star of a type without wildcard", eds, &deltaRequest{ResourceNamesSubscribe: []string{"*"}}, nil, []string{"-*"}},
	}
	eachProtocol(t, func(t *testing.T, protocol controlplane.Protocol, open func(*testServer) peer) {
		for _, tt := range tests {
			subscribe, unsubscribe := tt.first.ResourceNamesSubscribe, tt.first.ResourceNamesUnsubscribe
			if protocol == controlplane.ProtocolSotW && unsubscribe != nil {
				continue
			}
			t.Log(tt.name)
			s := startServer(t)
			s.set(t, xdsmsg.DefaultListener("l1", "r1"), xdsmsg.DefaultListener("l2", "r1"), cluster("c1"), cluster("c2"),
				xdsmsg.RouteConfig("r1", "*"), xdsmsg.SimpleEndpoints("c1", "127.0.0.1:1"))
			c, want := open(s), tt.then
			if delta, ok := c.(*deltaClient); ok {
				delta.send(&deltaRequest{TypeUrl: tt.typeURL, ResourceNamesSubscribe: subscribe, ResourceNamesUnsubscribe: unsubscribe})
				want = slices.Concat(tt.missing, want)
			} else {
				c.subscribe(tt.typeURL, subscribe...)
			}
			if want != nil {
				wantReply(t, c, tt.typeURL, want...)
			}
			c.fence()
		}
	})
}

// A client that subscribes to everything learns that there is nothing.
func TestEmptyWildcardIsAnswered(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol controlplane.Protocol, open func(*testServer) peer) {
		for name, names := range map[string][]string{"legacy": nil, "star": {"*"}} {
			s := startServer(t)
			c := open(s)
			c.subscribe(lds, names...)
			r := wantReply(t, c, lds)
			if r.version == "" {
				t.Errorf("%s: the response has no version", name)
			}
			c.accept(r, names...)
			c.fence()
			s.set(t, xdsmsg.DefaultListener("l1", "r"))
			wantReply(t, c, lds, "l1")
			s.delete(t, lds, "l1")
			if protocol == controlplane.ProtocolDelta {
				wantReply(t, c, lds, "-l1")
			} else {
				wantReply(t, c, lds)
			}
		}
	})
}

// Envoy, "ACK": only the first request of a stream carries the node.
func TestNodeComesWithFirstRequestOnly(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol controlplane.Protocol, open func(*testServer) peer) {
		s := startServer(t)
		s.set(t, cluster("c"), xdsmsg.RouteConfig("r", "*"))
		c := open(s)
		c.identify("first", cds)
		wantReply(t, c, cds, "c")
		c.subscribe(rds, "r") // sends another node
		wantReply(t, c, rds, "r")
		c.fence()
		clients := s.control.Clients()
		if len(clients) != 1 || clients[0].Node.GetId() != "first" || clients[0].Peer == nil || clients[0].ID != 1 || clients[0].Protocol != protocol {
			t.Errorf("clients: %+v", clients)
		}
	})
}

// Envoy, "ACK/NACK and resource type instance version": each response has its nonce.
func TestNoncesAreUnique(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol controlplane.Protocol, open func(*testServer) peer) {
		s := startServer(t)
		s.set(t, cluster("c"))
		version := s.set(t, xdsmsg.RouteConfig("r", "*"))
		seen := map[string]bool{}
		for range 2 {
			c := open(s)
			for _, typeURL := range []string{cds, rds} {
				c.subscribe(typeURL, "c", "r")
				r := c.next()
				if r.nonce == "" || seen[r.nonce] {
					t.Errorf("nonce %q is empty or was used before", r.nonce)
				}
				seen[r.nonce] = true
				if protocol == controlplane.ProtocolDelta {
					checkDeltaVersions(t, s, r.message.(*deltaResponse), version)
				}
			}
		}
	})
}

// checkDeltaVersions is for a response with one resource. Envoy, "Basic Protocol Overview"
// and "Incremental xDS".
func checkDeltaVersions(t *testing.T, s *testServer, resp *deltaResponse, version uint64) {
	t.Helper()
	if resp.GetSystemVersionInfo() != strconv.FormatUint(version, 10) {
		t.Errorf("system_version_info %q, want the store's version %d", resp.GetSystemVersionInfo(), version)
	}
	r := resp.GetResources()[0]
	stored := s.store.Get(resp.GetTypeUrl(), r.GetName())
	if r.GetVersion() != stored.Version() || !proto.Equal(r.GetResource(), stored.Any()) {
		t.Errorf("resource %v, want version %q", r, stored.Version())
	}
}

func TestLongNACKMessageIsCut(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) peer) {
		s := startServer(t)
		s.set(t, xdsmsg.RouteConfig("a", "*"))
		c := open(s)
		c.subscribe(rds, "a")
		c.reject(wantReply(t, c, rds, "a"), strings.Repeat("x", 1<<20), "a")
		if ts := c.typeStatus(s.control, rds); ts.NACK == nil || len(ts.NACK.Err.Message()) != 4<<10 {
			t.Errorf("the message was not cut to 4 KiB: %v", ts.NACK != nil)
		}
	})
}

func TestLimitsPerStream(t *testing.T) {
	many := func(n int) []string {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("name-%d", i))
		}
		return names
	}
	long := strings.Repeat("x", 1000)
	names, bytes := "%d types and resources, the server allows %d", "the server allows 1000"
	tests := []struct {
		name string
		opt  controlplane.Options
		when func(c peer)
		want string
	}{
		{"names", controlplane.Options{MaxSubscriptions: 10}, func(c peer) { c.subscribe(rds, many(10)...) }, fmt.Sprintf(names, 11, 10)},
		{"types", controlplane.Options{MaxSubscriptions: 3}, func(c peer) {
			for _, typeURL := range many(4) {
				c.subscribe(typeURL)
			}
		}, fmt.Sprintf(names, 4, 3)},
		{"bytes of names", controlplane.Options{MaxNameBytes: 1000}, func(c peer) { c.subscribe(rds, long) }, bytes},
		{"bytes of the node", controlplane.Options{MaxNameBytes: 1000}, func(c peer) { c.identify(long, rds) }, bytes},
		{"bytes of what a delta client says it has", controlplane.Options{MaxNameBytes: 1000}, func(c peer) {
			if delta, ok := c.(*deltaClient); ok {
				delta.resume(cds, map[string]string{"a": long})
			} else {
				c.subscribe(cds, long)
			}
		}, bytes},
	}
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) peer) {
		for _, tt := range tests {
			c := open(startServer(t, tt.opt))
			tt.when(c)
			if err := c.end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: the stream ended with %v, want RESOURCE_EXHAUSTED and %q", tt.name, err, tt.want)
			}
		}
	})
}

func TestLimitCountsWhatIsSubscribedNow(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) peer) {
		s := startServer(t, controlplane.Options{MaxSubscriptions: 8, MaxNameBytes: 400})
		c := open(s)
		for i := range 200 {
			names := []string{fmt.Sprintf("name-a-%d", i), fmt.Sprintf("name-b-%d", i)}
			c.subscribe(rds, names...)
			c.subscribe(rds, names...)
			c.drop(rds, nil, names...)
			c.drop(rds, nil, names...)
		}
		c.subscribe(lds, "last")
		for c.next().typeURL != lds {
		}
	})
}

func TestSlowClientGetsTheNewestStateAndHoldsUpNobody(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) peer) {
		s := startServer(t)
		big := func(i int) *wrapperspb.StringValue {
			return wrapperspb.String(fmt.Sprintf("%03d", i) + strings.Repeat("x", 1<<20))
		}
		s.update(t, func(tx *controlplane.Tx) { tx.SetNamed("big", nil, big(0)) })
		slow, quick := open(s), open(s)
		slow.subscribe(custom, "big")
		// Whatever else it gets, the slow client has room for 64 KiB unread.
		quick.subscribe(rds, "r")
		const updates = 100
		for i := 1; i <= updates; i++ {
			s.update(t, func(tx *controlplane.Tx) {
				tx.SetNamed("big", nil, big(i))
				tx.Set(xdsmsg.RouteConfig("r", fmt.Sprintf("domain-%d", i)))
			})
			for slices.Equal(quick.next().content, []string{"-r"}) {
			}
		}
		final := string(s.store.Get(custom, "big").Any().GetValue())
		responses := 1
		for !slices.Contains(slow.next().values, final) {
			responses++
		}
		if responses > 10 {
			t.Errorf("the client that did not read was sent %d of %d states", responses, updates)
		}
	})
}

func TestCloseEndsStreamsAlsoStuckOnes(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) peer) {
		s := startServer(t)
		s.update(t, func(tx *controlplane.Tx) {
			for i := range 4 {
				tx.SetNamed(fmt.Sprint(i), nil, wrapperspb.String(strings.Repeat("x", 1<<20)))
			}
		})
		idle, stuck := open(s), open(s)
		idle.fence()
		for i := range 4 { // never reads; the second response has no room
			stuck.subscribe(custom, fmt.Sprint(i))
		}
		idle.fence()

		s.control.Close()
		s.control.Close()
		for name, c := range map[string]peer{"idle": idle, "stuck": stuck} {
			if err := c.end(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "shutting down") {
				t.Errorf("the %s stream ended with %v", name, err)
			}
		}
		if got := s.control.Clients(); len(got) != 0 {
			t.Errorf("clients after Close: %+v", got)
		}
		if err := open(s).end(); status.Code(err) != codes.Unavailable {
			t.Errorf("a stream after Close ended with %v", err)
		}
	})
}

func TestClientEndsItsStream(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) peer) {
		s := startServer(t)
		c := open(s)
		c.fence()
		xdstest.NoError(t, c.closeSend())
		if err := c.end(); err.Error() != "EOF" {
			t.Errorf("the stream ended with %v, want OK", err)
		}
		s.control.Close() // returns when the stream's goroutines have ended
	})
}

func TestClients(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) peer) {
		s := startServer(t)
		s.set(t, cluster("c"), xdsmsg.RouteConfig("r", "*"), xdsmsg.RouteConfig("q", "*"))
		a, b := open(s), open(s)
		a.subscribe(cds)
		wantReply(t, a, cds, "c")
		b.subscribe(rds, "r", "q")
		wantReply(t, b, rds, "q", "r")
		got := s.control.Clients()
		if len(got) != 2 || got[0].ID >= got[1].ID {
			t.Fatalf("clients: %+v", got)
		}
		for _, cl := range got {
			if len(cl.Types) != 1 {
				t.Fatalf("types: %+v", cl.Types)
			}
			ts := cl.Types[0]
			want := fmt.Sprintf("%s false [q r]", rds)
			if ts.TypeURL == cds {
				want = fmt.Sprintf("%s true []", cds)
			}
			if s := fmt.Sprintf("%s %t %v", ts.TypeURL, ts.Wildcard, ts.Names); s != want {
				t.Errorf("got %s, want %s", s, want)
			}
			if ts.SentVersion != "1" || ts.SentNonce == "" || ts.Reply != controlplane.ReplyAwaited || ts.ACKedVersion != "" {
				t.Errorf("delivery: %+v", ts)
			}
		}
	})
}
