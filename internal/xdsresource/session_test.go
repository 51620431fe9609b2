package xdsresource

import (
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	upstreampb "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
)

func withOverrideHosts(set *corepb.HealthStatusSet) *clusterpb.Cluster {
	return edsCluster(func(c *clusterpb.Cluster) {
		c.CommonLbConfig = &clusterpb.Cluster_CommonLbConfig{OverrideHostStatus: set}
	})
}

func withUpstream(config proto.Message) *clusterpb.Cluster {
	return edsCluster(func(c *clusterpb.Cluster) {
		c.UpstreamConfig = &corepb.TypedExtensionConfig{Name: "u"}
		if config != nil {
			c.UpstreamConfig.TypedConfig = xdsmsg.Any(config)
		}
	})
}

func idleTimeout(d *durationpb.Duration) *upstreampb.HttpProtocolOptions {
	return &upstreampb.HttpProtocolOptions{CommonHttpProtocolOptions: &corepb.HttpProtocolOptions{IdleTimeout: d}}
}

// gRFC A55, "Load Balancer Configuration Containing override_host_status", and
// gRFC A75, "Reading the idle_timeout field in CDS".
func TestSessions(t *testing.T) {
	t.Parallel()
	statuses := func(s ...corepb.HealthStatus) *corepb.HealthStatusSet {
		return &corepb.HealthStatusSet{Statuses: s}
	}
	byDefault := HealthSetOf(HealthUnknown, HealthHealthy)
	checkEach(t, "Sessions", func(t *testing.T, resource *clusterpb.Cluster) Sessions {
		return mustDecode[Cluster](t, ClusterType, resource).Sessions
	}, rows[*clusterpb.Cluster, Sessions]{
		{"nothing", edsCluster(), Sessions{byDefault, time.Hour}},
		{"common_lb_config without the set", withOverrideHosts(nil), Sessions{byDefault, time.Hour}},
		{"an empty set", withOverrideHosts(statuses()), Sessions{0, time.Hour}},
		{"DRAINING", withOverrideHosts(statuses(corepb.HealthStatus_DRAINING)), Sessions{HealthSetOf(HealthDraining), time.Hour}},
		{
			"statuses that gRPC ignores",
			withOverrideHosts(statuses(corepb.HealthStatus_HEALTHY, corepb.HealthStatus_UNHEALTHY, corepb.HealthStatus_TIMEOUT, corepb.HealthStatus_DEGRADED, 77)),
			Sessions{HealthSetOf(HealthHealthy), time.Hour},
		},
		{"HttpProtocolOptions without common options", withUpstream(&upstreampb.HttpProtocolOptions{}), Sessions{byDefault, time.Hour}},
		{"common options without idle_timeout", withUpstream(idleTimeout(nil)), Sessions{byDefault, time.Hour}},
		{"idle_timeout", withUpstream(idleTimeout(durationpb.New(time.Minute))), Sessions{byDefault, time.Minute}},
		{"an idle_timeout of 0", withUpstream(idleTimeout(&durationpb.Duration{})), Sessions{byDefault, 0}},
	})
}

func TestSessionFaults(t *testing.T) {
	t.Parallel()
	const at = "upstream_config.typed_config"
	const idle = at + ".common_http_protocol_options.idle_timeout"
	checkAllFaults(t, ClusterType, []faultTest{
		{"no typed_config", withUpstream(nil), []fault{{at, `has type "", want "` + httpProtocolOptionsTypeURL + `"`}}},
		{
			"another type", withUpstream(&corepb.HttpProtocolOptions{}),
			[]fault{{at, `has type "type.googleapis.com/envoy.config.core.v3.HttpProtocolOptions", want "` + httpProtocolOptionsTypeURL + `"`}},
		},
		{"a negative idle_timeout", withUpstream(idleTimeout(durationpb.New(-1))), []fault{{idle, "is negative: -1ns"}}},
		{"seconds out of range", withUpstream(idleTimeout(&durationpb.Duration{Seconds: 315576000001})), []fault{{idle, "is not a valid duration: seconds: 315576000001, nanos: 0"}}},
		{"nanos out of range", withUpstream(idleTimeout(&durationpb.Duration{Nanos: 1e9})), []fault{{idle, "is not a valid duration: seconds: 0, nanos: 1000000000"}}},
	})
}

func TestHealthSetOfStatusesThatNobodyKnows(t *testing.T) {
	t.Parallel()
	all := HealthSet(0xff)
	for _, h := range []HealthStatus{-1, 8, 1 << 30} {
		if all.Has(h) {
			t.Errorf("Has(%d) is true", h)
		}
	}
}
