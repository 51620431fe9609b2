package xdsmsg_test

import (
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
)

// The validators are those that Envoy generates from its protos: what these
// helpers build is what a control plane may send.
func TestMessagesAreValid(t *testing.T) {
	t.Parallel()
	fault := xdsmsg.Filter("fault", &faultpb.HTTPFault{})
	routes := xdsmsg.RouteConfigOf("routes",
		xdsmsg.VirtualHost("h", []string{"*"},
			xdsmsg.PathRoute("/s/m", "a"),
			xdsmsg.WeightedRoute("/s/", xdsmsg.Weighted{Cluster: "a", Weight: 9}, xdsmsg.Weighted{Cluster: "b", Weight: 1}),
			xdsmsg.PrefixRoute("/", "b")))
	tests := map[string]struct {
		message proto.Message
		typeURL string
	}{
		"default listener": {xdsmsg.DefaultListener("l", "routes", fault), xdsmsg.ListenerType},
		"inline listener":  {xdsmsg.InlineListener("l", routes), xdsmsg.ListenerType},
		"routes":           {routes, xdsmsg.RouteType},
		"routes, short":    {xdsmsg.RouteConfig("r", "example.com", xdsmsg.PrefixRoute("", "a")), xdsmsg.RouteType},
		"cluster":          {xdsmsg.EDSCluster("c", "service"), xdsmsg.ClusterType},
		"inline cluster":   {xdsmsg.InlineCluster("c", clusterpb.Cluster_STRICT_DNS, xdsmsg.In("z1", "name.test:1")), xdsmsg.ClusterType},
		"aggregate":        {xdsmsg.AggregateCluster("c", "a", "b"), xdsmsg.ClusterType},
		"endpoints":        {xdsmsg.Endpoints("c", xdsmsg.In("z1", "127.0.0.1:1"), xdsmsg.Locality{Priority: 1, Weight: 3}), xdsmsg.EndpointType},
		"simple endpoints": {xdsmsg.SimpleEndpoints("c", "[::1]:80", "127.0.0.1:2"), xdsmsg.EndpointType},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := tt.message.(interface{ ValidateAll() error }).ValidateAll(); err != nil {
				t.Error(err)
			}
			if got := xdsmsg.Any(tt.message).GetTypeUrl(); got != tt.typeURL {
				t.Errorf("type URL %q, want %q", got, tt.typeURL)
			}
		})
	}
}
