package meshroute

import (
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// Other fields of a Cluster or a route are not for a service to set.
func TestSettings_OtherFieldsAreFaults(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]*Service{
		"envoy.config.cluster.v3.Cluster.name":             {Name: "s", Cluster: &clusterpb.Cluster{Name: "x"}},
		"envoy.config.route.v3.RouteAction.prefix_rewrite": {Name: "s", Route: &routepb.RouteAction{PrefixRewrite: "/x"}},
	} {
		_, err := Build(Input{Services: []*Service{s}}, nil)
		if err == nil || !strings.Contains(err.Error(), "service s: the settings have "+want+", which is not among those that a service may have") {
			t.Errorf("got %v, want a fault about %s", err, want)
		}
	}
}
