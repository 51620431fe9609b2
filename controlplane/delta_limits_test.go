package controlplane_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/controlplane"
)

func TestDelta_RequestWithoutTypeEndsTheStream(t *testing.T) {
	t.Parallel()
	c := startServer(t).openDelta(t)
	c.subscribe("")
	if err := c.end(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "type_url") {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestDelta_CanBeRefused(t *testing.T) {
	t.Parallel()
	s := startServer(t, controlplane.Options{NoDelta: true})
	s.set(t, cluster("c"))
	if err := s.openDelta(t).end(); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "StreamAggregatedResources") {
		t.Errorf("the stream ended with %v", err)
	}
	c := s.open(t)
	c.subscribe(cds)
	c.want(cds, "c")
	if got := s.control.Clients(); len(got) != 1 || got[0].Protocol != controlplane.ProtocolSotW {
		t.Errorf("clients: %+v", got)
	}
}

func TestDelta_LimitsPerStream(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		opt  controlplane.Options
		when *deltaRequest
		want string
	}{
		{
			"names", controlplane.Options{MaxSubscriptions: 3},
			&deltaRequest{TypeUrl: rds, ResourceNamesSubscribe: []string{"a", "b", "c"}}, "4 types and resources, the server allows 3",
		},
		{
			"bytes of names", controlplane.Options{MaxNameBytes: 1000},
			&deltaRequest{TypeUrl: rds, ResourceNamesSubscribe: []string{strings.Repeat("x", 1000)}}, "the server allows 1000",
		},
		{
			"bytes of what the client says it has", controlplane.Options{MaxNameBytes: 1000},
			&deltaRequest{TypeUrl: cds, InitialResourceVersions: map[string]string{"a": strings.Repeat("x", 1000)}}, "the server allows 1000",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := startServer(t, tt.opt).openDelta(t)
			c.send(tt.when)
			if err := c.end(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the stream ended with %v, want RESOURCE_EXHAUSTED and %q", err, tt.want)
			}
		})
	}
}

func TestDelta_LimitCountsWhatIsSubscribedNow(t *testing.T) {
	t.Parallel()
	s := startServer(t, controlplane.Options{MaxSubscriptions: 8, MaxNameBytes: 400})
	c := s.openDelta(t)
	for i := range 200 {
		names := []string{fmt.Sprintf("name-a-%d", i), fmt.Sprintf("name-b-%d", i)}
		c.subscribe(rds, names...)
		c.subscribe(rds, names...)
		c.unsubscribe(rds, names...)
		c.unsubscribe(rds, names...)
	}
	c.subscribe(lds, "last")
	for c.recv().GetTypeUrl() != lds {
	}
}

func TestDelta_CloseEndsStreams(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.openDelta(t)
	c.fence()
	s.control.Close()
	if err := c.end(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "shutting down") {
		t.Errorf("the stream ended with %v", err)
	}
	if err := s.openDelta(t).end(); status.Code(err) != codes.Unavailable {
		t.Errorf("a stream after Close ended with %v", err)
	}
}
