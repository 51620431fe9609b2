package demo

import (
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/xdstest"
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
	xdstest.Equal(t, "matches", []string{"/grpc.testing.TestService/EmptyCall", "/"}, got)
}
