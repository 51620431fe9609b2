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

// census counts the servers and resources of a target for the gauges.
type census struct {
	// connected has by server whether all channels to it work: entries of the bootstrap may name
	// one server with different credentials.
	connected map[string]bool
	resources map[censusKey]int64
	// fromDisk counts by authority and type.
	fromDisk map[censusKey]int64
}

type censusKey struct {
	authority, typ string
	state          CacheState
	cached         bool
}

// takeCensus counts, unless nothing has changed since the last time. Targets without streams of their own have
// the same census. The result does not change any more.
func (c *XDSClient) takeCensus(target string) *census {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hasStreamsFor(target) {
		target = ""
	}
	if c.censuses == nil {
		c.censuses = make(map[string]*census)
	}
	if n := c.censuses[target]; n != nil {
		return n
	}
	n := &census{make(map[string]bool), make(map[censusKey]int64), make(map[censusKey]int64)}
	c.censuses[target] = n
	for key, ch := range c.channels {
		if key.target != "" && key.target != target {
			continue
		}
		others, ok := n.connected[ch.server.URI]
		n.connected[ch.server.URI] = ch.link.Connected() && (others || !ok)
	}
	for r := range c.entries() {
		of := r.authority.key
		if of.target != "" && of.target != target {
			continue
		}
		if r.taken.stored {
			n.fromDisk[censusKey{authority: of.label(), typ: r.key.typ.label()}]++
		}
		n.resources[censusKey{of.label(), r.key.typ.label(), r.state(), r.payload != nil}]++
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

// stateLabel is the value of grpc.xds.cache_state (gRFC A78, and A88, "Cache Entry States, CSDS,
// and XdsClient Metrics").
func (k *censusKey) stateLabel() string {
	label := strings.ToLower(string(k.state))
	if k.cached && k.state != StateRequested && k.state != StateACKed && k.state != StateTimeout {
		label += "_but_cached"
	}
	return label
}
