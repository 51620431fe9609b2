package explain

import (
	"fmt"
	"strings"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// Match describes the conditions of a route as an explanation does; those that clients reject it
// returns as JSON.
func Match(m *routepb.RouteMatch) string {
	text, err := anypb.New(&routepb.RouteConfiguration{Name: "any", VirtualHosts: []*routepb.VirtualHost{{
		Domains: []string{"*"},
		Routes: []*routepb.Route{{
			Match: m,
			Action: &routepb.Route_Route{Route: &routepb.RouteAction{
				ClusterSpecifier: &routepb.RouteAction_Cluster{Cluster: "any"},
			}},
		}},
	}}})
	if err == nil {
		var decoded any
		decoded, err = xdsresource.RouteConfigurationType.Decode(text, xdsclient.DecodeOptions{})
		if rc, ok := decoded.(*xdsresource.RouteConfiguration); ok && err == nil && len(rc.VirtualHosts[0].Routes) == 1 {
			return DescribeMatch(&rc.VirtualHosts[0].Routes[0].Match)
		}
	}
	json, _ := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m) // a part of what was parsed
	return string(compact(json))
}

// Clusters describes where a route sends RPCs: the clusters with their shares. It is empty for a route
// that does not forward.
func Clusters(route *routepb.Route) string {
	action := route.GetRoute()
	switch to := action.GetClusterSpecifier().(type) {
	case *routepb.RouteAction_Cluster:
		return quote(to.Cluster)
	case *routepb.RouteAction_ClusterHeader:
		return "the cluster that header " + quote(to.ClusterHeader) + " names"
	case *routepb.RouteAction_WeightedClusters:
		total := 0.0
		for _, c := range to.WeightedClusters.GetClusters() {
			total += float64(c.GetWeight().GetValue())
		}
		var parts []string
		for _, c := range to.WeightedClusters.GetClusters() {
			if weight := c.GetWeight().GetValue(); weight > 0 {
				parts = append(parts, fmt.Sprintf("%s %s", quote(c.GetName()), formatPercent(100*float64(weight)/total)))
			}
		}
		return strings.Join(parts, ", ")
	}
	return ""
}
