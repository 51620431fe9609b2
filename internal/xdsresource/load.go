package xdsresource

import (
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/load"
)

// LoadReporting says how the load of a cluster is reported to a management server
// (Cluster.lrs_server).
type LoadReporting struct {
	// Loads counts load for the server that sent the Cluster, which is the meaning of
	// "self". It is nil, and counts nothing, in a Cluster decoded without a server.
	Loads *load.Store
	// Service is eds_cluster_config.service_name as the resource has it.
	Service string
	// Metrics are the backends' metrics to report (lrs_report_endpoint_metrics,
	// gRFC A85). nil: none.
	Metrics *load.Metrics
}

// ServerBound implements xdsclient.ServerBound.
func (c *Cluster) ServerBound() bool { return c.Load != nil }

// loadReporting returns nil if the load of the cluster is not to be reported.
func (d clusterDecoder) loadReporting(pb *clusterpb.Cluster) *LoadReporting {
	server := pb.GetLrsServer()
	if server == nil {
		return nil
	}
	if server.GetSelf() == nil {
		d.fault(faults.Field("lrs_server"), "must be self, is %s", whichOneof(server, "config_source_specifier"))
		return nil
	}
	return &LoadReporting{
		Loads:   d.loads,
		Service: pb.GetEdsClusterConfig().GetServiceName(),
		Metrics: endpointMetrics(pb.GetLrsReportEndpointMetrics()),
	}
}

// endpointMetrics ignores names that are not in gRFC A85, as that specifies.
func endpointMetrics(names []string) *load.Metrics {
	var m load.Metrics
	any := false
	for _, name := range names {
		known := true
		switch key, named := strings.CutPrefix(name, "named_metrics."); {
		case name == "cpu_utilization":
			m.CPU = true
		case name == "mem_utilization":
			m.Memory = true
		case name == "application_utilization":
			m.Application = true
		case named && key == "*":
			m.AllNamed = true
		case named:
			if m.Named == nil {
				m.Named = make(map[string]struct{})
			}
			m.Named[key] = struct{}{}
		default:
			known = false
		}
		any = any || known
	}
	if !any {
		return nil
	}
	if m.AllNamed {
		m.Named = nil
	}
	return &m
}
