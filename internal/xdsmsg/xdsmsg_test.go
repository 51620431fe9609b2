package xdsmsg_test

import (
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

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

func TestListener_EndsWithTheRouter(t *testing.T) {
	t.Parallel()
	fault := xdsmsg.Filter("fault", &faultpb.HTTPFault{})
	for name, l := range map[string]*listenerpb.Listener{
		"default": xdsmsg.DefaultListener("l", "routes", fault),
		"inline":  xdsmsg.InlineListener("l", &routepb.RouteConfiguration{Name: "routes"}, fault),
	} {
		var manager hcmpb.HttpConnectionManager
		if err := l.GetApiListener().GetApiListener().UnmarshalTo(&manager); err != nil {
			t.Fatal(err)
		}
		filters := manager.GetHttpFilters()
		if len(filters) != 2 || filters[0].GetName() != "fault" || filters[1].GetName() != "router" {
			t.Errorf("%s: filters %v", name, filters)
		}
		if manager.GetRds().GetRouteConfigName()+manager.GetRouteConfig().GetName() != "routes" {
			t.Errorf("%s: routes %v", name, &manager)
		}
	}
}

func TestEndpoints_Fields(t *testing.T) {
	t.Parallel()
	got := xdsmsg.Endpoints("c", xdsmsg.Locality{
		Region: "r", Zone: "z", SubZone: "s", Weight: 5, Priority: 2,
		Endpoints: []xdsmsg.Endpoint{{Addr: "127.0.0.1:80", Health: corepb.HealthStatus_DRAINING, Weight: 7}, {Addr: "nonsense"}},
	})
	l := got.GetEndpoints()[0]
	if l.GetLocality().String() != (&corepb.Locality{Region: "r", Zone: "z", SubZone: "s"}).String() ||
		l.GetLoadBalancingWeight().GetValue() != 5 || l.GetPriority() != 2 {
		t.Errorf("locality: %v", l)
	}
	endpoints := l.GetLbEndpoints()
	first := func(e *endpointpb.LbEndpoint) *corepb.SocketAddress {
		return e.GetEndpoint().GetAddress().GetSocketAddress()
	}
	if a := first(endpoints[0]); a.GetAddress() != "127.0.0.1" || a.GetPortValue() != 80 {
		t.Errorf("address: %v", a)
	}
	if endpoints[0].GetHealthStatus() != corepb.HealthStatus_DRAINING || endpoints[0].GetLoadBalancingWeight().GetValue() != 7 {
		t.Errorf("endpoint: %v", endpoints[0])
	}
	if a := first(endpoints[1]); a.GetAddress() != "nonsense" || a.GetPortValue() != 0 || endpoints[1].GetLoadBalancingWeight() != nil {
		t.Errorf("endpoint: %v", endpoints[1])
	}
}

func TestWith(t *testing.T) {
	t.Parallel()
	c := xdsmsg.With(xdsmsg.EDSCluster("c", ""), `alt_stat_name: %q circuit_breakers { thresholds { max_requests { value: %d } } }`, "s", 3)
	if c.GetName() != "c" || c.GetAltStatName() != "s" || c.GetCircuitBreakers().GetThresholds()[0].GetMaxRequests().GetValue() != 3 {
		t.Errorf("the cluster is %v", c)
	}
	defer func() {
		if recover() == nil {
			t.Error("an unknown field is accepted")
		}
	}()
	xdsmsg.With(c, "no_such_field: 1")
}
