package controlplane_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/controlplane"
)

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
