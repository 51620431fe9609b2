package demo

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

	"github.com/dynxds/dynxds/testutils"
)

// A configuration's number survives what time an RPC loses on its way, and
// rounding in both directions.
func TestConfigurationIsReadFromTheDeadline(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 4; n++ {
		for _, change := range []time.Duration{time.Second, 0, -time.Second, -20 * time.Second} {
			if got := configurationOf(maxStreamDuration(n) + change); got != n {
				t.Errorf("configurationOf(that of %d %+v) = %d", n, change, got)
			}
		}
	}
}

func TestAnsweredByReadsTheHeader(t *testing.T) {
	t.Parallel()
	tests := []struct {
		header        metadata.MD
		backend       string
		configuration int
	}{
		{metadata.Pairs(testutils.BackendIDHeader, "b", configurationHeader, "3"), "b", 3},
		{metadata.Pairs(testutils.BackendIDHeader, "b"), "b", 0},
		{metadata.Pairs(configurationHeader, "x"), "", 0},
		{nil, "", 0},
	}
	for _, tt := range tests {
		backend, configuration := answeredBy(tt.header)
		if backend != tt.backend || configuration != tt.configuration {
			t.Errorf("answeredBy(%v) = %q, %d, want %q, %d", tt.header, backend, configuration, tt.backend, tt.configuration)
		}
	}
}

// Every route of a RouteConfiguration carries its number, the method's before
// the others'.
func TestRoutes(t *testing.T) {
	t.Parallel()
	list := routes(3, 50, 50, emptyCall).GetVirtualHosts()[0].GetRoutes()
	var got []string
	for _, r := range list {
		got = append(got, r.GetMatch().GetPath()+r.GetMatch().GetPrefix())
		if n := configurationOf(r.GetRoute().GetMaxStreamDuration().GetMaxStreamDuration().AsDuration()); n != 3 {
			t.Errorf("route %v carries configuration %d, want 3", r.GetMatch(), n)
		}
	}
	if diff := cmp.Diff([]string{"/grpc.testing.TestService/EmptyCall", "/"}, got); diff != "" {
		t.Errorf("matches (-want +got):\n%s", diff)
	}
}

// A connection counts as lost when the last one to its address has ended.
func TestConnectionsLostAt(t *testing.T) {
	t.Parallel()
	c := newConnections()
	tag := func(port int) context.Context {
		return c.TagConn(t.Context(), &stats.ConnTagInfo{RemoteAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}})
	}
	one, two, other := tag(1), tag(1), tag(2)
	lost := func() bool { _, ok := c.lostAt("127.0.0.1:1"); return ok }
	steps := []struct {
		ctx   context.Context
		event stats.ConnStats
		lost  bool
	}{
		{one, &stats.ConnBegin{}, false},
		{two, &stats.ConnBegin{}, false},
		{one, &stats.ConnEnd{}, false},
		{other, &stats.ConnBegin{}, false},
		{other, &stats.ConnEnd{}, false},
		{two, &stats.ConnEnd{}, true},
		{one, &stats.ConnBegin{}, false},
	}
	for i, s := range steps {
		c.HandleConn(s.ctx, s.event)
		if got := lost(); got != s.lost {
			t.Errorf("after event %d: lost = %v, want %v", i, got, s.lost)
		}
	}
}
