package xdsclient

import (
	"strings"

	estats "google.golang.org/grpc/experimental/stats"
)

// The labels and metrics of gRFC A78, "XdsClient". The last two metrics are ours.
const (
	labelTarget       = "grpc.target"
	labelServer       = "grpc.xds.server"
	labelAuthority    = "grpc.xds.authority"
	labelCacheState   = "grpc.xds.cache_state"
	labelResourceType = "grpc.xds.resource_type"

	metricConnected     = "grpc.xds_client.connected"
	metricServerFailure = "grpc.xds_client.server_failure"
	metricValid         = "grpc.xds_client.resource_updates_valid"
	metricInvalid       = "grpc.xds_client.resource_updates_invalid"
	metricResources     = "grpc.xds_client.resources"
	metricUnmatched     = "dynxds.xds_client.unmatched_variants"
	metricFromDisk      = "dynxds.xds_client.resources_from_disk"
)

// Metrics returns descriptors of the metrics that a client reports (gRFC A78, with the labels
// of A88, and two of ours). All are off unless a stats plugin enables them.
//
// A client reports to the metrics that gRPC's registry has under these names, or not at all.
// Importing the module's root package registers them; gRPC-Go's own xds registers the same, and
// either package's will do.
func Metrics() []estats.MetricDescriptor {
	metric := func(typ estats.MetricType, name, unit, description string, labels ...string) estats.MetricDescriptor {
		return estats.MetricDescriptor{Type: typ, Name: name, Unit: unit, Description: description, Labels: labels}
	}
	const count, gauge = estats.MetricTypeIntCount, estats.MetricTypeIntAsyncGauge
	return []estats.MetricDescriptor{
		metric(gauge, metricConnected, "{bool}",
			"1 while the xDS client has a working ADS stream to the management server, otherwise 0.",
			labelTarget, labelServer),
		metric(count, metricServerFailure, "{failure}",
			"How often a management server went from reachable to unreachable.",
			labelTarget, labelServer),
		metric(count, metricValid, "{resource}",
			"Resources received that are valid, unchanged ones included.",
			labelTarget, labelServer, labelResourceType),
		metric(count, metricInvalid, "{resource}",
			"Resources received that are invalid.",
			labelTarget, labelServer, labelResourceType),
		metric(count, metricUnmatched, "{resource}",
			"Variants of watched resources received that match nobody's dynamic parameter constraints and were dropped.",
			labelTarget, labelServer, labelResourceType),
		metric(gauge, metricResources, "{resource}",
			"Resources in the cache of the xDS client.",
			labelTarget, labelAuthority, labelCacheState, labelResourceType),
		metric(gauge, metricFromDisk, "{resource}",
			"Resources in use that are from disk, as no management server has answered for them.",
			labelTarget, labelAuthority, labelResourceType),
	}
}

// census has the values of the gauges for a target.
type census map[gauge]int64

// gauge is a metric with its labels, but for the target.
type gauge struct {
	metric string
	// of is the URI of a server, or an authority.
	of, typ string
	state   CacheState
	// but says that a resource is cached beside an error.
	but bool
}

// takeCensus counts, unless nothing has changed since the last time. Targets without streams of their own have
// the same census. The result does not change any more.
func (c *XDSClient) takeCensus(target string) census {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hasStreamsFor(target) {
		target = ""
	}
	if c.censuses == nil {
		c.censuses = make(map[string]census)
	}
	if n := c.censuses[target]; n != nil {
		return n
	}
	n := make(census)
	c.censuses[target] = n
	for key, ch := range c.channels {
		if key.target != "" && key.target != target {
			continue
		}
		// All channels to a server have to work: entries of the bootstrap may name it with different credentials.
		of := gauge{metric: metricConnected, of: ch.server.URI}
		if _, known := n[of]; !ch.link.Connected() {
			n[of] = 0
		} else if !known {
			n[of] = 1
		}
	}
	for r := range c.entries() {
		of := r.authority.key
		if of.target != "" && of.target != target {
			continue
		}
		if r.taken.stored {
			n[gauge{metric: metricFromDisk, of: of.label(), typ: r.key.typ.label()}]++
		}
		state := r.state()
		but := r.payload != nil && state != StateRequested && state != StateACKed && state != StateTimeout
		n[gauge{metricResources, of.label(), r.key.typ.label(), state, but}]++
	}
	return n
}

func (c *XDSClient) hasStreamsFor(target string) bool {
	for key := range c.channels {
		if key.target == target {
			return true
		}
	}
	return false
}

// label is the type as metrics name it, for example
// "envoy.config.listener.v3.Listener".
func (t *ResourceType) label() string {
	return t.TypeURL[strings.LastIndexByte(t.TypeURL, '/')+1:]
}

// labels are the values of the metric's labels behind the target. That of the state is of gRFC A78, and A88, "Cache Entry States, CSDS,
// and XdsClient Metrics".
func (g *gauge) labels() []string {
	switch g.metric {
	case metricConnected:
		return []string{g.of}
	case metricFromDisk:
		return []string{g.of, g.typ}
	}
	state := strings.ToLower(string(g.state))
	if g.but {
		state += "_but_cached"
	}
	return []string{g.of, state, g.typ}
}
