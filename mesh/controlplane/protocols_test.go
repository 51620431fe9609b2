package controlplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

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
		s.set(t, cluster("a"))
		c := open(s)
		c.subscribe(cds)
		xdstest.NoError(t, c.stream.CloseSend())
		c.want(cds, "a")
		if err := c.end(); err.Error() != "EOF" {
			t.Errorf("the stream ended with %v, want OK", err)
		}
		s.control.Close() // returns when the stream's goroutines have ended
	})
}
