package xdsresource

import (
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	upstreampb "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"

	"github.com/dynxds/dynxds/internal/faults"
)

// Sessions are the settings of a Cluster for RPCs that a filter binds to endpoints
// (gRFCs A55 and A75).
type Sessions struct {
	// Statuses are the health statuses of endpoints that such RPCs go to
	// (common_lb_config.override_host_status).
	Statuses HealthSet
	// IdleTimeout is how long a connection that only sessions need is kept after
	// the last pick of it.
	IdleTimeout time.Duration
}

// DefaultSessions are the settings of a Cluster that has none of its own.
var DefaultSessions = Sessions{Statuses: HealthSetOf(HealthUnknown, HealthHealthy), IdleTimeout: time.Hour}

// HealthSet is a set of HealthStatus. The zero HealthSet is empty.
type HealthSet uint8

// HealthSetOf returns the set of the given statuses.
func HealthSetOf(statuses ...HealthStatus) HealthSet {
	var s HealthSet
	for _, h := range statuses {
		s |= 1 << h
	}
	return s
}

// Has reports whether h is in the set.
func (s HealthSet) Has(h HealthStatus) bool {
	return s&(1<<uint(h)) != 0 // A resource may hold any number, negative ones too.
}

const httpProtocolOptionsTypeURL = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

func (d clusterDecoder) sessions(pb *clusterpb.Cluster) Sessions {
	s := DefaultSessions
	if set := pb.GetCommonLbConfig().GetOverrideHostStatus(); set != nil {
		s.Statuses = overrideHostStatus(set)
	}
	config := pb.GetUpstreamConfig()
	if config == nil {
		return s
	}
	at := faults.Field("upstream_config").Field("typed_config")
	options := new(upstreampb.HttpProtocolOptions)
	if !d.unmarshal(at, config.GetTypedConfig(), httpProtocolOptionsTypeURL, options) {
		return s
	}
	if idle := options.GetCommonHttpProtocolOptions().GetIdleTimeout(); idle != nil {
		s.IdleTimeout = d.duration(at.Field("common_http_protocol_options").Field("idle_timeout"), idle)
	}
	return s
}

// overrideHostStatus ignores statuses that gRPC does not support for sessions. gRFC A55
// requires them to be ignored rather than rejected, so that Envoy and gRPC can use the same
// Cluster.
func overrideHostStatus(pb *corepb.HealthStatusSet) HealthSet {
	var s HealthSet
	for _, h := range pb.GetStatuses() {
		switch h := HealthStatus(h); h {
		case HealthUnknown, HealthHealthy, HealthDraining:
			s |= HealthSetOf(h)
		}
	}
	return s
}
