package relay_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadpb "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// load reports the load of a cluster in a zone: RPCs that are ok, failed, busy or dropped, and a metric.
func (c *playedClient) load(front services, words []string) {
	req := new(loadpb.LoadStatsRequest)
	if !c.loads.isOpen() {
		c.loads = front.open(c.ctx, loadpb.LoadReportingService_StreamLoadStats_FullMethodName)
		c.loads.up.open = true
		req.Node = c.node
	}
	at := &endpointpb.UpstreamLocalityStats{Locality: &corepb.Locality{Zone: words[1]}}
	stats := &endpointpb.ClusterStats{ClusterName: words[0], UpstreamLocalityStats: []*endpointpb.UpstreamLocalityStats{at}}
	for _, word := range words[2:] {
		name, value, _ := strings.Cut(word, "=")
		number, err := strconv.ParseFloat(value, 64)
		xdstest.NoError(c.t, err)
		switch n := uint64(number); name {
		case "ok":
			at.TotalIssuedRequests, at.TotalSuccessfulRequests = at.TotalIssuedRequests+n, n
		case "failed":
			at.TotalIssuedRequests, at.TotalErrorRequests = at.TotalIssuedRequests+n, n
		case "busy":
			at.TotalRequestsInProgress = n
		case "dropped":
			stats.TotalDroppedRequests = n
			stats.DroppedRequests = []*endpointpb.ClusterStats_DroppedRequests{{Category: "lb", DroppedCount: n}}
		case "cpu":
			at.CpuUtilization = &endpointpb.UnnamedEndpointLoadMetricStats{NumRequestsFinishedWithMetric: 1, TotalMetricValue: number}
		default:
			at.LoadMetricStats = append(at.LoadMetricStats,
				&endpointpb.EndpointLoadMetricStats{MetricName: "named_metrics." + name, NumRequestsFinishedWithMetric: 2, TotalMetricValue: number})
		}
	}
	req.ClusterStats = []*endpointpb.ClusterStats{stats}
	data, err := proto.Marshal(req)
	xdstest.NoError(c.t, err)
	c.loads.up.send(mem.BufferSlice{mem.SliceBuffer(data)})
}

// textsOfLoads are the loads of clusters, by name.
func textsOfLoads(all []controlplane.ClusterLoad) map[string]string {
	texts := map[string]string{}
	for _, c := range all {
		var text strings.Builder
		for _, at := range c.Localities {
			fmt.Fprintf(&text, " %s: %d issued, %d ok, %d failed, %d busy", at.Zone, at.Issued, at.Succeeded, at.Failed, at.InProgress)
			for _, name := range slices.Sorted(maps.Keys(at.Metrics)) {
				fmt.Fprintf(&text, ", %s %v of %d", name, at.Metrics[name].Sum, at.Metrics[name].RPCs)
			}
			text.WriteString(";")
		}
		fmt.Fprintf(&text, " %d dropped %v", c.TotalDropped, c.Dropped)
		texts[c.Cluster] = text.String()
	}
	return texts
}

// verified is what a connection knows of a client with this SPIFFE ID in its certificate.
func verified(t testing.TB, id string) credentials.AuthInfo {
	uri, err := url.Parse(id)
	xdstest.NoError(t, err)
	const uriTag = 6
	names, err := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: uriTag, Bytes: []byte(id)}})
	xdstest.NoError(t, err)
	cert := &x509.Certificate{URIs: []*url.URL{uri}, Extensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: names}}}
	return credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}}
}
