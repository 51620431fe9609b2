package controlplane_test

import (
	"fmt"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
)

func TestServer_LimitsPerStream(t *testing.T) {
	t.Parallel()
	many := func(n int) []string {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("name-%d", i))
		}
		return names
	}
	tests := []struct {
		name string
		opt  controlplane.Option
		when func(c *client)
		want string
	}{
		{"names", controlplane.WithMaxSubscriptions(10), func(c *client) { c.subscribe(rds, many(10)...) }, "11 types and resources, the server allows 10"},
		{"types", controlplane.WithMaxSubscriptions(3), func(c *client) {
			for _, typeURL := range many(4) {
				c.subscribe(typeURL)
			}
		}, "4 types and resources, the server allows 3"},
		{"bytes of names", controlplane.WithMaxNameBytes(1000), func(c *client) { c.subscribe(rds, strings.Repeat("x", 1000)) }, "the server allows 1000"},
		{"bytes of the node", controlplane.WithMaxNameBytes(1000), func(c *client) {
			c.send(&discoverypb.DiscoveryRequest{TypeUrl: rds, Node: &corepb.Node{Id: strings.Repeat("x", 1000)}})
		}, "the server allows 1000"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := startServer(t, tt.opt).open(t)
			tt.when(c)
			err := c.end()
			if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the stream ended with %v, want RESOURCE_EXHAUSTED and %q", err, tt.want)
			}
		})
	}
}

func TestServer_LimitCountsWhatIsSubscribedNow(t *testing.T) {
	t.Parallel()
	s := startServer(t, controlplane.WithMaxSubscriptions(8), controlplane.WithMaxNameBytes(400))
	s.set(t, xdsmsg.RouteConfig("r", "*"))
	c := s.open(t)
	c.subscribe(rds, "r")
	resp := c.want(rds, "r")
	for i := range 200 {
		c.ack(resp, "r", fmt.Sprintf("name-a-%d", i), fmt.Sprintf("name-b-%d", i))
	}
	c.fence()
}

func TestServer_SlowClientGetsTheNewestStateAndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	big := func(i int) *wrapperspb.StringValue {
		return wrapperspb.String(fmt.Sprintf("%03d", i) + strings.Repeat("x", 1<<20))
	}
	s.update(t, func(tx *controlplane.Tx) { tx.SetNamed("big", big(0)) })
	slow, quick := s.open(t), s.open(t)
	slow.subscribe(custom, "big")
	// Whatever else it gets, the slow client has room for 64 KiB unread.
	quick.subscribe(rds, "r")

	const updates = 100
	for i := 1; i <= updates; i++ {
		s.update(t, func(tx *controlplane.Tx) {
			tx.SetNamed("big", big(i))
			tx.Set(xdsmsg.RouteConfig("r", fmt.Sprintf("domain-%d", i)))
		})
		quick.want(rds, "r")
	}

	final := s.store.Get(custom, "big").Any().GetValue()
	responses := 0
	for {
		resp := slow.recv()
		responses++
		if string(resp.GetResources()[0].GetValue()) == string(final) {
			break
		}
	}
	if responses > 10 {
		t.Errorf("the client that did not read was sent %d of %d states", responses, updates)
	}
}

func TestServer_CloseEndsStreamsAlsoStuckOnes(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.update(t, func(tx *controlplane.Tx) {
		for i := range 4 {
			tx.SetNamed(fmt.Sprint(i), wrapperspb.String(strings.Repeat("x", 1<<20)))
		}
	})
	idle, stuck := s.open(t), s.open(t)
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
	if err := s.open(t).end(); status.Code(err) != codes.Unavailable {
		t.Errorf("a stream after Close ended with %v", err)
	}
}

func TestServer_ClientEndsItsStream(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.open(t)
	c.fence()
	if err := c.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := c.end(); err.Error() != "EOF" {
		t.Errorf("the stream ended with %v, want OK", err)
	}
	s.control.Close() // returns when the stream's goroutines have ended
}

func TestServer_Clients(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.set(t, cluster("c"), xdsmsg.RouteConfig("r", "*"))
	a, b := s.open(t), s.open(t)
	a.subscribe(cds)
	a.want(cds, "c")
	b.subscribe(rds, "r", "q")
	b.want(rds, "r")
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
}
