package controlplane_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

func TestRequestWithoutTypeEndsTheStream(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
		c := open(startServer(t))
		c.subscribe("")
		if err := c.end(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "type_url") {
			t.Errorf("the stream ended with %v", err)
		}
	})
}

// Envoy, "ACK": only the first request of a stream carries the node.
func TestNodeComesWithFirstRequestOnly(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol controlplane.Protocol, open func(*testServer) *client) {
		s := startServer(t)
		s.set(t, cluster("c"), xdsmsg.RouteConfig("r", "*"))
		c := open(s)
		c.identify("first", cds)
		c.want(cds, "c")
		c.subscribe(rds, "r") // sends another node
		c.want(rds, "r")
		c.fence()
		clients := s.control.Clients()
		if len(clients) != 1 || clients[0].Node.GetId() != "first" || clients[0].Peer == nil || clients[0].ID != 1 || clients[0].Protocol != protocol {
			t.Errorf("clients: %+v", clients)
		}
	})
}

// Envoy, "ACK/NACK and resource type instance version": each response has its nonce.
func TestNoncesAreUnique(t *testing.T) {
	eachProtocol(t, func(t *testing.T, protocol controlplane.Protocol, open func(*testServer) *client) {
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
		when func(c *client)
		want string
	}{
		{"names", controlplane.Options{MaxSubscriptions: 10}, func(c *client) { c.subscribe(rds, many(10)...) }, fmt.Sprintf(names, 11, 10)},
		{"types", controlplane.Options{MaxSubscriptions: 3}, func(c *client) {
			for _, typeURL := range many(4) {
				c.subscribe(typeURL)
			}
		}, fmt.Sprintf(names, 4, 3)},
		{"bytes of names", controlplane.Options{MaxNameBytes: 1000}, func(c *client) { c.subscribe(rds, long) }, bytes},
		{"bytes of the node", controlplane.Options{MaxNameBytes: 1000}, func(c *client) { c.identify(long, rds) }, bytes},
		{"bytes of what a delta client says it has", controlplane.Options{MaxNameBytes: 1000}, func(c *client) {
			if isDeltaWire(c) {
				c.resume(cds, map[string]string{"a": long})
			} else {
				c.subscribe(cds, long)
			}
		}, bytes},
	}
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
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
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
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
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
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
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
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
		for name, c := range map[string]*client{"idle": idle, "stuck": stuck} {
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
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
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
