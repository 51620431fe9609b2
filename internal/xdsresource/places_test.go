package xdsresource

import (
	"fmt"
	"slices"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
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

// placedResources has a resource of each type with lines from the first one up, 0 for no places.
func placedResources(first int) map[*xdsclient.ResourceType]proto.Message {
	l := xdsmsg.DefaultListener("l", "r")
	l.Metadata = placed(first)
	c := xdsmsg.EDSCluster("c", "")
	c.Metadata = placed(first)
	e := xdsmsg.SimpleEndpoints("e", "10.0.0.1:80", "10.0.0.2:80")
	for i, of := range e.Endpoints[0].LbEndpoints {
		of.Metadata = placed(first + min(first, i))
	}
	r := placedRoutes(first)
	r.VirtualHosts[0].Routes[0].Metadata = placed(first)
	return map[*xdsclient.ResourceType]proto.Message{ListenerType: l, ClusterType: c, EndpointsType: e, RouteConfigurationType: r}
}

func decodeOver(typ *xdsclient.ResourceType, last any, old, pb *anypb.Any) (any, error) {
	value, err := typ.Decode(pb, xdsclient.DecodeOptions{Last: last, LastBytes: old.GetValue()})
	return value, err
}

// Given a resource that the client has, when it comes with other places, or without, then its value stays
// the same pointer.
func TestOtherPlacesKeepTheValue(t *testing.T) {
	t.Parallel()
	for _, lines := range [][2]int{{1, 2}, {1, 0}, {0, 1}} {
		before, after := placedResources(lines[0]), placedResources(lines[1])
		for typ, pb := range before {
			last, err := typ.Decode(xdsmsg.Any(pb), xdsclient.DecodeOptions{})
			xdstest.NoError(t, err)
			if got, err := decodeOver(typ, last, xdsmsg.Any(pb), xdsmsg.Any(after[typ])); err != nil || got != last {
				t.Errorf("a %s with lines from %d, and then from %d: %v, error %v, want the value before", typ.Name, lines[0], lines[1], got, err)
			}
		}
	}
}

// What is not a place is not passed over.
func TestOtherMetadataIsDecoded(t *testing.T) {
	t.Parallel()
	edit := func(typ *xdsclient.ResourceType, edit func(proto.Message)) (before, after *anypb.Any) {
		pb := placedResources(5)[typ]
		edit(pb)
		return xdsmsg.Any(placedResources(1)[typ]), xdsmsg.Any(pb)
	}
	for name, tc := range map[string]struct {
		typ  *xdsclient.ResourceType
		edit func(proto.Message)
	}{
		"a name for telemetry": {ClusterType, func(m proto.Message) {
			m.(*clusterpb.Cluster).Metadata.FilterMetadata[telemetryMetadata] = &structpb.Struct{Fields: map[string]*structpb.Value{"service_name": structpb.NewStringValue("x")}}
		}},
		"a key of the hash": {EndpointsType, func(m proto.Message) {
			m.(*endpointpb.ClusterLoadAssignment).Endpoints[0].LbEndpoints[1].Metadata.FilterMetadata["envoy.lb"] = &structpb.Struct{
				Fields: map[string]*structpb.Value{"hash_key": structpb.NewStringValue("x")}}
		}},
		"a weight": {EndpointsType, func(m proto.Message) {
			m.(*endpointpb.ClusterLoadAssignment).Endpoints[0].LoadBalancingWeight.Value++
		}},
		"one endpoint less": {EndpointsType, func(m proto.Message) {
			e := m.(*endpointpb.ClusterLoadAssignment).Endpoints[0]
			e.LbEndpoints = e.LbEndpoints[:1]
		}},
		"one endpoint more": {EndpointsType, func(m proto.Message) {
			e := m.(*endpointpb.ClusterLoadAssignment).Endpoints[0]
			e.LbEndpoints = append(e.LbEndpoints, xdsmsg.SimpleEndpoints("e", "10.0.0.3:80").Endpoints[0].LbEndpoints[0])
		}},
		"another route table": {ListenerType, func(m proto.Message) {
			m.(*listenerpb.Listener).ApiListener = xdsmsg.DefaultListener("l", "other").ApiListener
		}},
		"a header of a route": {RouteConfigurationType, func(m proto.Message) {
			m.(*routepb.RouteConfiguration).VirtualHosts[0].Routes[9].RequestHeadersToRemove = []string{"x"}
		}},
	} {
		before, after := edit(tc.typ, tc.edit)
		last, err := tc.typ.Decode(before, xdsclient.DecodeOptions{})
		xdstest.NoError(t, err)
		want, err := tc.typ.Decode(after, xdsclient.DecodeOptions{})
		xdstest.NoError(t, err)
		got, err := decodeOver(tc.typ, last, before, after)
		xdstest.NoError(t, err)
		if got == last {
			t.Errorf("%s: the value is the one before", name)
		}
		if rc, ok := got.(*RouteConfiguration); ok {
			checkSameRouting(t, rc, want.(*RouteConfiguration))
		} else {
			xdstest.Equal(t, name, want, got)
		}
	}
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

// FuzzOtherPlaces has two inputs decoded one after the other: with the help of the first, the second has the
// outcome that it has alone.
func FuzzOtherPlaces(f *testing.F) {
	types := []*xdsclient.ResourceType{ListenerType, ClusterType, EndpointsType, RouteConfigurationType}
	for i, typ := range types {
		first, second := xdsmsg.Any(placedResources(1)[typ]).GetValue(), xdsmsg.Any(placedResources(2)[typ]).GetValue()
		f.Add(i, first, second)
		f.Add(i, first, append(slices.Clone(second[:len(second)-2]), 0xff, 0xff))
	}
	f.Fuzz(func(t *testing.T, i int, first, second []byte) {
		typ := types[uint(i)%uint(len(types))]
		before, after := &anypb.Any{TypeUrl: typ.TypeURL, Value: first}, &anypb.Any{TypeUrl: typ.TypeURL, Value: second}
		last, err := typ.Decode(before, xdsclient.DecodeOptions{})
		if err != nil {
			return
		}
		want, wantErr := typ.Decode(after, xdsclient.DecodeOptions{})
		got, gotErr := decodeOver(typ, last, before, after)
		if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
			t.Fatalf("Decode has error %v, want %v", gotErr, wantErr)
		}
		switch {
		case wantErr != nil:
		case typ.TypeURL == typeurl.RouteConfiguration:
			checkSameRouting(t, got.(*RouteConfiguration), want.(*RouteConfiguration))
		case typ.TypeURL == typeurl.Endpoints:
			xdstest.Equal(t, "the value", want, got)
		}
	})
}
