package lrs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadpb "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/load"
)

const (
	method = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
	// SendAllClusters is the client feature that lets the server ask for all
	// clusters without naming them.
	SendAllClusters = "envoy.lrs.supports_send_all_clusters"
	// maxAnswer is the largest answer of a server, in bytes: the names of some
	// ten thousand clusters.
	maxAnswer = 4 << 20
	// maxReport is the size, in bytes, from which a report is continued in
	// another message. gRPC servers take up to 4 MiB if they are not told
	// otherwise.
	maxReport = 1 << 20
)

// order is the order of a server (LoadStatsResponse). It is immutable.
type order struct {
	// interval is at least MinInterval; asked is what the server said.
	interval, asked time.Duration
	// all clusters, or those with the names.
	all   bool
	names map[string]struct{}
	// endpoints: the server would take statistics for each endpoint, which are
	// not offered.
	endpoints bool
}

func decodeOrder(message []byte) (*order, error) {
	var pb loadpb.LoadStatsResponse
	if err := proto.Unmarshal(message, &pb); err != nil {
		return nil, fmt.Errorf("malformed LoadStatsResponse: %w", err)
	}
	if d := pb.GetLoadReportingInterval(); d != nil {
		if err := d.CheckValid(); err != nil {
			return nil, fmt.Errorf("malformed LoadStatsResponse: load_reporting_interval: %w", err)
		}
	}
	o := &order{
		asked:     pb.GetLoadReportingInterval().AsDuration(),
		all:       pb.GetSendAllClusters(),
		endpoints: pb.GetReportEndpointGranularity(),
	}
	o.interval = max(o.asked, MinInterval)
	if o.all {
		return o, nil
	}
	o.names = make(map[string]struct{}, len(pb.GetClusters()))
	for _, name := range pb.GetClusters() {
		o.names[name] = struct{}{}
	}
	return o, nil
}

func (o *order) wants(cluster string) bool {
	_, named := o.names[cluster]
	return o.all || named
}

// String says what is ignored, too.
func (o *order) String() string {
	text := fmt.Sprintf("%d clusters, every %v", len(o.names), o.interval)
	if o.all {
		text = fmt.Sprintf("all clusters, every %v", o.interval)
	}
	if o.asked < o.interval {
		text += fmt.Sprintf(" (the server asks for %v, which is too often)", o.asked)
	}
	if o.endpoints {
		text += "; report_endpoint_granularity is ignored"
	}
	return text
}

// encodeHello makes the first request of a stream.
func encodeHello(node *corepb.Node) ([]byte, error) {
	node = cmp.Or(proto.CloneOf(node), &corepb.Node{})
	node.ClientFeatures = append(node.ClientFeatures, SendAllClusters)
	return proto.Marshal(&loadpb.LoadStatsRequest{Node: node})
}

// encodeReports makes a request of the first n reports: of as many as fit. There may be
// none.
func encodeReports(reports []*load.Report) (message []byte, n int, err error) {
	pb := &loadpb.LoadStatsRequest{}
	size := 0
	for _, r := range reports {
		stats := ClusterStats(r)
		size += proto.Size(stats)
		if n > 0 && size > maxReport {
			break
		}
		pb.ClusterStats = append(pb.ClusterStats, stats)
		n++
	}
	message, err = proto.Marshal(pb)
	return message, n, err
}

// ClusterStats returns a report as it goes on the wire.
func ClusterStats(r *load.Report) *endpointpb.ClusterStats {
	pb := &endpointpb.ClusterStats{
		ClusterName:          r.Cluster,
		ClusterServiceName:   r.Service,
		TotalDroppedRequests: r.TotalDropped,
		LoadReportInterval:   durationpb.New(r.Interval),
	}
	for _, category := range slices.Sorted(maps.Keys(r.Dropped)) {
		pb.DroppedRequests = append(pb.DroppedRequests, &endpointpb.ClusterStats_DroppedRequests{
			Category: category, DroppedCount: r.Dropped[category],
		})
	}
	for _, l := range r.Localities {
		pb.UpstreamLocalityStats = append(pb.UpstreamLocalityStats, localityStats(l))
	}
	return pb
}

func localityStats(l *load.LocalityReport) *endpointpb.UpstreamLocalityStats {
	pb := &endpointpb.UpstreamLocalityStats{
		Locality:                &corepb.Locality{Region: l.ID.Region, Zone: l.ID.Zone, SubZone: l.ID.SubZone},
		TotalIssuedRequests:     l.Issued,
		TotalSuccessfulRequests: l.Succeeded,
		TotalErrorRequests:      l.Failed,
		TotalRequestsInProgress: l.InProgress,
		CpuUtilization:          unnamedMetric(l.CPU),
		MemUtilization:          unnamedMetric(l.Memory),
		ApplicationUtilization:  unnamedMetric(l.Application),
	}
	for _, name := range slices.Sorted(maps.Keys(l.Named)) {
		m := l.Named[name]
		pb.LoadMetricStats = append(pb.LoadMetricStats, &endpointpb.EndpointLoadMetricStats{
			MetricName:                    "named_metrics." + name, // gRFC A85
			NumRequestsFinishedWithMetric: m.Count,
			TotalMetricValue:              m.Sum,
		})
	}
	return pb
}

// unnamedMetric returns nil for one that no RPC has brought.
func unnamedMetric(m load.Metric) *endpointpb.UnnamedEndpointLoadMetricStats {
	if m.Count == 0 {
		return nil
	}
	return &endpointpb.UnnamedEndpointLoadMetricStats{NumRequestsFinishedWithMetric: m.Count, TotalMetricValue: m.Sum}
}
