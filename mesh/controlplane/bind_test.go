package controlplane_test

import (
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// A client is sent none of the responses that were composed before the constraints of its node changed.
func TestBindLocators_RefreshDuringAPush(t *testing.T) {
	t.Parallel()
	p := newPolicy("one", "direct")
	var control *controlplane.Server
	s := startServer(t, controlplane.Options{
		BindLocators: true,
		NodeConstraints: func(node *corepb.Node) dynparam.ByType {
			byType, _ := p.of(node)
			return byType
		},
		MaxResponseSize: 1, // each name in a response of its own
		Absence: func(_, name string, _ func(string) bool) string {
			if name == "c" {
				p.set("one", "via_proxy")
				control.RefreshNodeConstraints(nil)
			}
			return ""
		},
	})
	control = s.control
	w := s.openTwinDelta(t)
	var locators []*discoverypb.ResourceLocator
	for _, name := range []string{"a", "b", "c", "d"} {
		locators = append(locators, &discoverypb.ResourceLocator{Name: name})
	}
	w.send(&discoverypb.DeltaDiscoveryRequest{Node: &corepb.Node{Id: "one"}, TypeUrl: lds, ResourceLocatorsSubscribe: locators})
	for _, name := range []string{"a", "b"} {
		if got := w.recv().GetRemovedResourceNames(); len(got) != 1 || got[0].GetName() != name {
			t.Errorf("removed are %v, want %s", got, name)
		}
	}
	if next, err := w.stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("next on the stream is %v, %v, want its end with UNAVAILABLE", next, err)
	}
}
