package xdsresource

import (
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

// gRFC A85, "CDS Resource Validation": the names of metrics, of which those that
// are not known are ignored.
func TestEndpointMetricsToReport(t *testing.T) {
	t.Parallel()
	keys := func(keys ...string) map[string]struct{} {
		set := make(map[string]struct{})
		for _, k := range keys {
			set[k] = struct{}{}
		}
		return set
	}
	checkEach(t, "Metrics", func(t *testing.T, names []string) *load.Metrics {
		c := mustDecode[Cluster](t, ClusterType, edsCluster(func(c *clusterpb.Cluster) {
			c.LrsServer, c.LrsReportEndpointMetrics = self(), names
		}))
		return c.Load.Metrics
	}, rows[[]string, *load.Metrics]{
		{"none", nil, nil},
		{"only unknown ones", []string{"rps_fractional", "utilization.x", "request_cost.*", "named_metrics", "*", ""}, nil},
		{"the top-level fields", []string{"cpu_utilization", "mem_utilization", "application_utilization"}, &load.Metrics{CPU: true, Memory: true, Application: true}},
		{"an unknown one beside", []string{"eps", "cpu_utilization"}, &load.Metrics{CPU: true}},
		{"keys", []string{"named_metrics.foo", "named_metrics.a.b", "named_metrics."}, &load.Metrics{Named: keys("foo", "a.b", "")}},
		{"all keys", []string{"named_metrics.*"}, &load.Metrics{AllNamed: true}},
		{"all keys and one", []string{"named_metrics.foo", "named_metrics.*"}, &load.Metrics{AllNamed: true}},
	})
}

// config_source.proto, "self": the server that the resource came from. So the value
// is of that server alone.
func TestLoadReportingIsOfTheServer(t *testing.T) {
	t.Parallel()
	loads := load.NewStore(nil)
	decode := func(edit func(*clusterpb.Cluster)) *Cluster {
		_, value, err := ClusterType.Decode(xdsmsg.Any(edsCluster(edit)), xdsclient.DecodeOptions{Loads: loads})
		xdstest.NoError(t, err)
		return value.(*Cluster)
	}
	c := decode(func(c *clusterpb.Cluster) { c.LrsServer, c.EdsClusterConfig.ServiceName = self(), "svc" })
	if c.Load == nil || c.Load.Loads != loads || c.Load.Service != "svc" || !c.ServerBound() {
		t.Errorf("Load = %+v, bound to the server: %v", c.Load, c.ServerBound())
	}
	c = decode(func(c *clusterpb.Cluster) { c.LrsReportEndpointMetrics = []string{"cpu_utilization"} })
	if c.Load != nil || c.ServerBound() {
		t.Errorf("without lrs_server: Load = %+v, bound to the server: %v", c.Load, c.ServerBound())
	}
}
