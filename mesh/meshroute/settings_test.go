package meshroute

import (
	"strings"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// The settings of a service are those of all of its Clusters and of all routes to it, and of no others.
func TestSettings(t *testing.T) {
	t.Parallel()
	s := service("s", map[string]string{"v": "1"})
	s.Cluster = &clusterpb.Cluster{
		LbPolicy:         clusterpb.Cluster_RING_HASH,
		OutlierDetection: &clusterpb.OutlierDetection{Interval: durationpb.New(5 * time.Second)},
		CircuitBreakers:  &clusterpb.CircuitBreakers{Thresholds: []*clusterpb.CircuitBreakers_Thresholds{{MaxRequests: wrapperspb.UInt32(7)}}},
	}
	s.Route = &routepb.RouteAction{
		RetryPolicy:       &routepb.RetryPolicy{RetryOn: "unavailable"},
		MaxStreamDuration: &routepb.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(time.Second)},
	}
	in := Input{Services: []*Service{s, service("other")}, Policies: policytest.Parse(t, "f", policytest.Text(
		"    - {matches: [{path: {exact: /a/b}}], backendRefs: [{kind: MeshServiceSubset, name: s, tags: {v: '1'}}, {kind: MeshService, name: other}]}\n"))}
	m := accepted(t, in, nil)
	for _, r := range m.Resources() {
		switch v := checkResource(t, r).(type) {
		case *xdsresource.Cluster:
			c := r.Message.(*clusterpb.Cluster)
			if set := strings.HasPrefix(r.Name, "s"); set != (c.GetLbPolicy() == clusterpb.Cluster_RING_HASH) || set != (v.Outliers != nil) || set != (v.MaxRequests == 7) {
				t.Errorf("the Cluster %s is %v", r.Name, c)
			}
		case *xdsresource.RouteConfiguration:
			for _, route := range v.VirtualHost("any").Routes {
				if set := r.Name == "s"; set != (route.Retry != nil) || set != (route.MaxStreamDuration != nil) {
					t.Errorf("a route of %s is %+v", r.Name, route)
				}
			}
		}
	}

	longer := *s
	longer.Route = proto.CloneOf(s.Route)
	longer.Route.MaxStreamDuration.MaxStreamDuration.Seconds = 2
	in.Services = []*Service{&longer, in.Services[1]}
	changed, removed := accepted(t, in, m).Changes(m)
	if len(changed) != 1 || changed[0].TypeURL != RouteConfigurationType || changed[0].Name != "s" || len(removed) > 0 {
		t.Errorf("another timeout changes %v and removes %v, want the routes", changed, removed)
	}
	reset := longer
	reset.Cluster = nil
	in.Services = []*Service{&reset, in.Services[1]}
	changed, _ = accepted(t, in, m).Changes(m)
	clusters := 0
	for _, r := range changed {
		if c, ok := r.Message.(*clusterpb.Cluster); ok {
			clusters++
			if c.GetLbPolicy() != clusterpb.Cluster_ROUND_ROBIN || c.GetOutlierDetection() != nil || c.GetCircuitBreakers() != nil {
				t.Errorf("without settings the Cluster is %v", c)
			}
		}
	}
	if clusters != 2 {
		t.Errorf("without settings %d Clusters change, want 2", clusters)
	}
}

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
