package xdsresource

import (
	"fmt"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func placed(line int) *corepb.Metadata {
	if line == 0 {
		return nil
	}
	return provenance.Metadata(map[string]string{provenance.Service: fmt.Sprintf("services.yaml:%d", line), provenance.Matches: "a.yaml:1"})
}

// placedRoutes are 300 routes, with lines from the first one up.
func placedRoutes(first int) *routepb.RouteConfiguration {
	pb := routeConfig()
	pb.VirtualHosts[0].Routes = nil
	for i := range 300 {
		route := xdsmsg.Route(xdsmsg.Path(methodOf(i)), xdsmsg.ToCluster(fmt.Sprint("cluster", i%2)))
		route.Metadata = placed(first + i)
		pb.VirtualHosts[0].Routes = append(pb.VirtualHosts[0].Routes, route)
	}
	return pb
}

// Routes that say where each was written are alike otherwise.
func TestRoutesWithPlacesShareSettings(t *testing.T) {
	t.Parallel()
	pb := placedRoutes(1)
	broken := pb.VirtualHosts[0].Routes[299]
	routes := mustDecode[RouteConfiguration](t, RouteConfigurationType, pb).VirtualHosts[0].Routes
	if routes[0].Settings != routes[298].Settings || routes[0].Settings == routes[1].Settings {
		t.Error("the settings of routes are not shared by those that have the same")
	}
	for name, tc := range map[string]struct {
		metadata *corepb.Metadata
		shared   bool
	}{
		"other metadata": {&corepb.Metadata{FilterMetadata: map[string]*structpb.Struct{"x": {}}}, false},
		"none":           {nil, true},
	} {
		broken.Metadata = tc.metadata
		routes = mustDecode[RouteConfiguration](t, RouteConfigurationType, pb).VirtualHosts[0].Routes
		xdstest.Equal(t, name+": the settings are shared", tc.shared, routes[299].Settings == routes[1].Settings)
	}
}
