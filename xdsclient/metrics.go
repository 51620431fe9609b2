package xdsclient

import (
	"slices"
	"strings"

	estats "google.golang.org/grpc/experimental/stats"
)

// The labels of gRFC A78, "XdsClient".
const (
	labelTarget       = "grpc.target"
	labelServer       = "grpc.xds.server"
	labelAuthority    = "grpc.xds.authority"
	labelCacheState   = "grpc.xds.cache_state"
	labelResourceType = "grpc.xds.resource_type"
)

// The metrics of gRFC A78, "XdsClient".
const (
	metricConnected     = "grpc.xds_client.connected"
	metricServerFailure = "grpc.xds_client.server_failure"
	metricValid         = "grpc.xds_client.resource_updates_valid"
	metricInvalid       = "grpc.xds_client.resource_updates_invalid"
	metricResources     = "grpc.xds_client.resources"
)

// metricUnmatched is ours.
const metricUnmatched = "dynxds.xds_client.unmatched_variants"

// Metrics returns descriptors of the metrics that a client reports (gRFC A78,
// with the labels of A88, and one of ours). All are off unless a stats plugin is
// told to collect them.
//
// A client reports to the metrics that gRPC's registry has under these names, or
// not at all. Importing the module's root package registers them; gRPC-Go's own
// xds registers the same, and either package's will do.
func Metrics() []estats.MetricDescriptor {
	return []estats.MetricDescriptor{
		{
			Name:        metricConnected,
			Description: "1 while the xDS client has a working ADS stream to the management server, otherwise 0.",
			Unit:        "{bool}",
			Labels:      []string{labelTarget, labelServer},
			Type:        estats.MetricTypeIntAsyncGauge,
		},
		{
			Name:        metricServerFailure,
			Description: "How often a management server went from reachable to unreachable.",
			Unit:        "{failure}",
			Labels:      []string{labelTarget, labelServer},
			Type:        estats.MetricTypeIntCount,
		},
		{
			Name:        metricValid,
			Description: "Resources received that are valid, unchanged ones included.",
			Unit:        "{resource}",
			Labels:      []string{labelTarget, labelServer, labelResourceType},
			Type:        estats.MetricTypeIntCount,
		},
		{
			Name:        metricInvalid,
			Description: "Resources received that are invalid.",
			Unit:        "{resource}",
			Labels:      []string{labelTarget, labelServer, labelResourceType},
			Type:        estats.MetricTypeIntCount,
		},
		{
			Name:        metricUnmatched,
			Description: "Variants of watched resources received that match nobody's dynamic parameter constraints and were dropped.",
			Unit:        "{resource}",
			Labels:      []string{labelTarget, labelServer, labelResourceType},
			Type:        estats.MetricTypeIntCount,
		},
		{
			Name:        metricResources,
			Description: "Resources in the cache of the xDS client.",
			Unit:        "{resource}",
			Labels:      []string{labelTarget, labelAuthority, labelCacheState, labelResourceType},
			Type:        estats.MetricTypeIntAsyncGauge,
		},
	}
}

// handles are what metrics are recorded with. One that gRPC's registry does not
// have, or has otherwise, is nil.
type handles struct {
	connected, resources          *estats.Int64AsyncGaugeHandle
	serverFailure, valid, invalid *estats.Int64CountHandle
	unmatched                     *estats.Int64CountHandle
}

// registeredHandles looks the metrics up in gRPC's registry. The registry is
// complete when the program's init functions have run, so this must not happen
// before.
func registeredHandles() handles {
	found := make(map[string]*estats.MetricDescriptor)
	for _, want := range Metrics() {
		got := estats.DescriptorForMetric(want.Name)
		if got != nil && got.Type == want.Type && slices.Equal(got.Labels, want.Labels) && len(got.OptionalLabels) == 0 {
			found[want.Name] = got
		}
	}
	return handles{
		connected:     (*estats.Int64AsyncGaugeHandle)(found[metricConnected]),
		resources:     (*estats.Int64AsyncGaugeHandle)(found[metricResources]),
		serverFailure: (*estats.Int64CountHandle)(found[metricServerFailure]),
		valid:         (*estats.Int64CountHandle)(found[metricValid]),
		invalid:       (*estats.Int64CountHandle)(found[metricInvalid]),
		unmatched:     (*estats.Int64CountHandle)(found[metricUnmatched]),
	}
}

// census counts a client's servers and resources for the gauges. Several channels
// report the same one.
type census struct {
	// changes counts the times that XDSClient.mu was held to change something, and at is
	// that when the census was taken.
	changes, at uint64
	// connected says of each server whether all channels to it work: entries of
	// the bootstrap may name one server with different credentials.
	connected map[string]bool
	resources map[censusKey]int64
}

type censusKey struct{ authority, state, typ string }

// takeCensus counts, unless nothing has changed since the last time. The result
// is not changed any more.
func (c *XDSClient) takeCensus() census {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.census.connected != nil && c.census.at == c.census.changes {
		return c.census
	}
	n := census{changes: c.census.changes, at: c.census.changes, connected: make(map[string]bool), resources: make(map[censusKey]int64)}
	for _, ch := range c.channels {
		others, ok := n.connected[ch.server.URI]
		n.connected[ch.server.URI] = ch.link.Connected() && (others || !ok)
	}
	for r := range c.entries() {
		n.resources[censusKey{r.level.authority.key.label(), r.stateLabel(), r.key.typ.label()}]++
	}
	c.census = n
	return n
}

// label is the type as metrics name it, for example
// "envoy.config.listener.v3.Listener".
func (t *ResourceType) label() string {
	return t.TypeURL[strings.LastIndexByte(t.TypeURL, '/')+1:]
}

// stateLabel is the value of grpc.xds.cache_state (gRFC A78, and A88, "Cache
// Entry States, CSDS, and XdsClient Metrics").
func (r *resource) stateLabel() string {
	cached := r.payload != nil
	switch r.state {
	case StateRequested:
		return "requested"
	case StateACKed:
		return "acked"
	case StateTimeout:
		return "timeout"
	case StateNACKed:
		if cached {
			return "nacked_but_cached"
		}
		return "nacked"
	case StateReceivedError:
		if cached {
			return "received_error_but_cached"
		}
		return "received_error"
	default:
		if cached {
			return "does_not_exist_but_cached"
		}
		return "does_not_exist"
	}
}
