package xdsresource

import (
	"testing"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

// config_source.proto, "self": the server that the resource came from. So the value
// is of that server alone.
func TestLoadReportingIsOfTheServer(t *testing.T) {
	t.Parallel()
	loads := load.NewStore(nil)
	decode := func(fields string) *Cluster {
		value, err := ClusterType.Decode(xdsmsg.Any(blue(t, fields)), xdsclient.DecodeOptions{Loads: loads})
		xdstest.NoError(t, err)
		return value.(*Cluster)
	}
	c := decode(`lrs_server{self{}} eds_cluster_config{service_name:"svc"}`)
	if c.Load == nil || c.Load.Loads != loads || c.Load.Service != "svc" || !c.ServerBound() {
		t.Errorf("Load = %+v, bound to the server: %v", c.Load, c.ServerBound())
	}
	c = decode(`lrs_report_endpoint_metrics:"cpu_utilization"`)
	if c.Load != nil || c.ServerBound() {
		t.Errorf("without lrs_server: Load = %+v, bound to the server: %v", c.Load, c.ServerBound())
	}
}

func TestHealthSetOfUnknownStatuses(t *testing.T) {
	t.Parallel()
	all := Set[HealthStatus](0xff)
	for _, h := range []HealthStatus{-1, 8, 1 << 30} {
		if all.Has(h) {
			t.Errorf("Has(%d) is true", h)
		}
	}
}
