package xdsresource

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/xdsclient"
)

// IgnoredFields lists the populated fields of a received resource that this
// client does not act on (gRFC A27: a client ignores what it does not know).
// It reads the resource again and so is for tools and logs, not for each
// update. What matters comes first (xdsclient.SeverityWarning), and then the fields are
// in the order of the messages' definitions. A field that occurs many times is listed once, at its
// first place; one whose job another field of the message does is not listed. The list
// has at most 100 entries. What the decoder left out for other reasons is in the Ignored
// field of the decoded value. Of a DPDS resource it lists the constraints for what is
// the type of no resource.
//
// It is an error if the resource is of none of the types of this package or cannot be
// read.
func IgnoredFields(resource *anypb.Any) ([]Ignored, error) {
	if resource.GetTypeUrl() == DynamicParameterConstraintsTypeURL {
		return ignoredConstraints(resource)
	}
	m := newMessage(resource.GetTypeUrl())
	if m == nil {
		return nil, fmt.Errorf("no resource type with type URL %s", faults.Quote(resource.GetTypeUrl()))
	}
	if err := proto.Unmarshal(resource.GetValue(), m); err != nil {
		return nil, fmt.Errorf("cannot be read as %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	var w fieldWalk
	w.message(nil, m.ProtoReflect())
	return w.ignored.list(), nil
}

// ignoredIn is ResourceType.Ignored: what IgnoredFields lists, and what the decoder left
// out of the value.
func ignoredIn(resource *anypb.Any, value any) []Ignored {
	list, err := IgnoredFields(resource)
	if err != nil {
		return nil // Not reached: the resource was decoded.
	}
	switch value := value.(type) {
	case *Listener:
		list = append(list, value.Ignored...)
	case *RouteConfiguration:
		list = append(list, value.Ignored...)
	case *Cluster:
		list = append(list, value.Ignored...)
	}
	sortIgnored(list)
	return list
}

func newMessage(typeURL string) proto.Message {
	switch typeURL {
	case ListenerTypeURL:
		return new(listenerpb.Listener)
	case RouteConfigurationTypeURL:
		return new(routepb.RouteConfiguration)
	case ClusterTypeURL:
		return new(clusterpb.Cluster)
	case EndpointsTypeURL:
		return new(endpointpb.ClusterLoadAssignment)
	default:
		return nil
	}
}

// ignoredList collects what is ignored of one resource: the same of the same field
// once, however many places have it.
type ignoredList struct {
	found []Ignored
	// known has the index in found, by path without indexes and what is the same.
	known map[string]int
}

// maxIgnored bounds the list of what is left out of a resource.
const maxIgnored = 100

// add notes what is ignored at a path. same stands for what is to be said of it.
func (l *ignoredList) add(at *faults.Path, severity xdsclient.Severity, same, reason string) {
	key := at.WithoutIndexes() + "\x00" + same
	if i, ok := l.known[key]; ok {
		l.found[i].Places++
		return
	}
	// What matters has room in any case: there are few such fields.
	if len(l.found) >= maxIgnored && severity != xdsclient.SeverityWarning || len(l.found) >= 2*maxIgnored {
		return
	}
	if l.known == nil {
		l.known = make(map[string]int)
	}
	l.known[key] = len(l.found)
	l.found = append(l.found, Ignored{Path: at.String(), Reason: reason, Severity: severity, Places: 1})
}

// list returns what was collected, what matters first.
func (l *ignoredList) list() []Ignored {
	sortIgnored(l.found)
	l.found = l.found[:min(len(l.found), maxIgnored)]
	return l.found
}

func sortIgnored(list []Ignored) {
	slices.SortStableFunc(list, func(a, b Ignored) int { return cmp.Compare(b.Severity, a.Severity) })
}

// fieldWalk collects ignored fields.
type fieldWalk struct{ ignored ignoredList }

// message goes through the fields of a message.
func (w *fieldWalk) message(at *faults.Path, m protoreflect.Message) {
	w.unknown(at, m.GetUnknown())
	name := m.Descriptor().FullName()
	used, listed := usedFields[name]
	if !listed {
		return // It is acted on as a whole.
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case !m.Has(f):
		case used.has(string(f.Name())):
			w.value(at, f, m.Get(f))
		case !twinApplied(m, f):
			w.field(at, name, string(f.Name()))
		}
	}
}

// field notes that nobody acts on a field of a message.
func (w *fieldWalk) field(at *faults.Path, message protoreflect.FullName, name string) {
	severity := xdsclient.SeverityInfo
	if fieldsThatMatter[message].has(name) {
		severity = xdsclient.SeverityWarning
	}
	w.ignored.add(at.Field(name), severity, "", "this client does not act on the field")
}

// twinApplied reports whether another field does the job of f.
func twinApplied(m protoreflect.Message, f protoreflect.FieldDescriptor) bool {
	name, has := twins[m.Descriptor().FullName()][string(f.Name())]
	if !has {
		return false
	}
	twin := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	if twin.Message() == nil || twin.IsList() {
		return m.Has(twin)
	}
	said := false
	m.Get(twin).Message().Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
		said = true
		return false
	})
	return said
}

func (w *fieldWalk) value(at *faults.Path, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	name := string(f.Name())
	switch {
	case f.IsMap():
		w.entries(at, f, v.Map())
	case f.Message() == nil:
	case f.IsList():
		for i := range v.List().Len() {
			w.message(at.Item(name, i), v.List().Get(i).Message())
		}
	default:
		w.message(at.Field(name), v.Message())
		if packed, ok := v.Message().Interface().(*anypb.Any); ok {
			w.packed(at.Field(name), packed)
		}
	}
}

// packed goes through a message in an Any, if it is one of which not all is used.
func (w *fieldWalk) packed(at *faults.Path, a *anypb.Any) {
	name := a.MessageName()
	if typeURL, fields, err := httpfilter.TypedStruct(a); err == nil && fields != nil {
		name = (&anypb.Any{TypeUrl: typeURL}).MessageName()
	}
	if reason, idle := idleFilters[name]; idle {
		w.ignored.add(at, xdsclient.SeverityInfo, "", reason)
		return
	}
	if _, listed := usedFields[name]; !listed {
		return
	}
	if m, err := a.UnmarshalNew(); err == nil {
		w.message(at, m.ProtoReflect())
	}
}

// entries goes through a map: of configurations, or one of which only some keys are
// used.
func (w *fieldWalk) entries(at *faults.Path, f protoreflect.FieldDescriptor, m protoreflect.Map) {
	used, listed := usedKeys[f.FullName()]
	ofAny := f.MapValue().Message() != nil && f.MapValue().Message().FullName() == "google.protobuf.Any"
	if !listed && !ofAny {
		return
	}
	var keys []protoreflect.MapKey
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	for _, k := range keys {
		name := string(f.Name()) + "[" + faults.Quote(k.String()) + "]"
		switch {
		case ofAny:
			w.packed(at.Field(name), m.Get(k).Message().Interface().(*anypb.Any))
		case !used.has(k.String()):
			w.field(at, "", name)
		}
	}
}

// unknown adds the fields that the generated code does not know.
func (w *fieldWalk) unknown(at *faults.Path, b protoreflect.RawFields) {
	for len(b) > 0 {
		number, _, n := protowire.ConsumeField(b)
		if n < 0 {
			return
		}
		b = b[n:]
		w.field(at, "", "(unknown field "+strconv.Itoa(int(number))+")")
	}
}

// fieldNames is a set of names of fields of one message.
type fieldNames []string

func (names fieldNames) has(name string) bool { return slices.Contains(names, name) }

// headerEditFields are the fields of headerFields.
var headerEditFields = fieldNames{
	"request_headers_to_add", "request_headers_to_remove", "response_headers_to_add", "response_headers_to_remove",
}

// fieldsThatMatter has the fields without which connections may have less security than
// the resource asks for, or RPCs may go elsewhere than it says.
var fieldsThatMatter = map[protoreflect.FullName]fieldNames{
	"envoy.config.cluster.v3.Cluster":                     {"transport_socket", "transport_socket_matches", "lb_subset_config"},
	"envoy.config.route.v3.RouteConfiguration":            {"vhds", "ignore_port_in_host_matching"},
	"envoy.config.route.v3.VirtualHost":                   {"require_tls", "matcher"},
	"envoy.config.route.v3.RouteMatch":                    {"cookies", "tls_context", "dynamic_metadata", "filter_state"},
	"envoy.config.route.v3.RouteAction":                   {"metadata_match"},
	"envoy.config.route.v3.WeightedCluster.ClusterWeight": {"metadata_match"},
}

// twins has fields that control planes fill in beside another one, for Envoy or for
// older clients, and the field that does their job here.
var twins = map[protoreflect.FullName]map[string]string{
	"envoy.config.route.v3.RouteAction":     {"timeout": "max_stream_duration", "max_grpc_timeout": "max_stream_duration"},
	"envoy.config.route.v3.WeightedCluster": {"total_weight": "clusters"},
}

// idleFilters has the configurations of filters that are known and do nothing in a
// client, and why.
var idleFilters = map[protoreflect.FullName]string{
	"envoy.extensions.filters.http.cors.v3.Cors":       forBrowsers,
	"envoy.extensions.filters.http.cors.v3.CorsPolicy": forBrowsers,
}

const forBrowsers = "CORS is for browsers; a gRPC client does nothing for it"

// usedKeys has the keys that the decoders of this package look up, for each map in
// which they do not look at all.
var usedKeys = map[protoreflect.FullName]fieldNames{
	"envoy.config.core.v3.Metadata.filter_metadata": {"envoy.lb"},
}

// usedFields has the fields that the decoders of this package read, for each
// message in which they do not read all. Those that only lead to a fault or to
// a failing RPC are read as well.
var usedFields = map[protoreflect.FullName]fieldNames{
	"envoy.config.listener.v3.Listener":    {"name", "api_listener"},
	"envoy.config.listener.v3.ApiListener": {"api_listener"},
	// A name for statistics, which is there as Envoy wants one, asks for nothing.
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager": {
		"stat_prefix", "rds", "route_config", "common_http_protocol_options", "http_filters",
		"xff_num_trusted_hops", "original_ip_detection_extensions",
	},
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter": {"name", "typed_config", "config_discovery", "is_optional", "disabled"},
	"envoy.extensions.filters.network.http_connection_manager.v3.Rds":        {"config_source", "route_config_name"},
	// What is asked for is always of v3.
	"envoy.config.core.v3.ConfigSource":         {"ads", "self", "path", "path_config_source", "api_config_source", "resource_api_version"},
	"envoy.config.core.v3.TypedExtensionConfig": {"name", "typed_config"},
	"envoy.config.core.v3.HttpProtocolOptions":  {"max_stream_duration"},

	"envoy.config.route.v3.RouteConfiguration": append(fieldNames{
		"name", "virtual_hosts", "most_specific_header_mutations_wins", "max_direct_response_body_size_bytes",
		"cluster_specifier_plugins", "request_mirror_policies",
	}, headerEditFields...),
	"envoy.config.route.v3.VirtualHost": append(fieldNames{
		"name", "domains", "routes", "typed_per_filter_config", "retry_policy", "request_mirror_policies",
	}, headerEditFields...),
	"envoy.config.route.v3.Route": append(fieldNames{
		"name", "match", "route", "redirect", "direct_response", "filter_action", "non_forwarding_action",
		"typed_per_filter_config",
	}, headerEditFields...),
	// An RPC is always one of gRPC, so grpc holds.
	"envoy.config.route.v3.RouteMatch": {
		"prefix", "path", "safe_regex", "path_separated_prefix", "case_sensitive", "runtime_fraction", "headers",
		"query_parameters", "grpc",
	},
	"envoy.config.core.v3.RuntimeFractionalPercent": {"default_value"},
	"envoy.type.matcher.v3.RegexMatcher":            {"regex", "google_re2"},
	"envoy.config.route.v3.RouteAction": {
		"cluster", "weighted_clusters", "cluster_header", "cluster_specifier_plugin", "inline_cluster_specifier_plugin",
		"prefix_rewrite", "regex_rewrite", "host_rewrite_literal", "host_rewrite_header", "auto_host_rewrite",
		"retry_policy", "request_mirror_policies", "hash_policy", "max_stream_duration",
	},
	"envoy.config.route.v3.RouteAction.MaxStreamDuration":   {"max_stream_duration", "grpc_timeout_header_max"},
	"envoy.config.route.v3.RouteAction.HashPolicy":          {"header", "filter_state", "terminal"},
	"envoy.config.route.v3.RouteAction.RequestMirrorPolicy": {"cluster", "cluster_header", "runtime_fraction", "disable_shadow_host_suffix_append", "request_headers_mutations", "host_rewrite_literal"},
	"envoy.config.route.v3.RetryPolicy":                     {"retry_on", "num_retries", "retry_back_off"},
	"envoy.config.route.v3.WeightedCluster":                 {"clusters"},
	"envoy.config.route.v3.WeightedCluster.ClusterWeight": append(fieldNames{
		"name", "cluster_header", "weight", "typed_per_filter_config", "host_rewrite_literal",
	}, headerEditFields...),
	"envoy.config.route.v3.FilterConfig":         {"config", "is_optional", "disabled"},
	"envoy.config.route.v3.DirectResponseAction": {"status", "body"},
	"envoy.config.core.v3.DataSource":            {"inline_bytes", "inline_string"},
	"envoy.config.route.v3.RedirectAction": {
		"https_redirect", "scheme_redirect", "host_redirect", "port_redirect", "path_redirect", "prefix_rewrite",
		"regex_rewrite", "response_code", "strip_query",
	},

	// gRPC speaks HTTP/2 anyhow, so that http2_protocol_options is there is true.
	"envoy.config.core.v3.Http2ProtocolOptions": {},
	"envoy.config.cluster.v3.Cluster": {
		"http2_protocol_options", "name", "type", "cluster_type", "eds_cluster_config", "lb_policy", "load_balancing_policy", "lrs_server", "lrs_report_endpoint_metrics",
		"circuit_breakers", "outlier_detection", "ring_hash_lb_config", "least_request_lb_config",
		"load_assignment", "dns_lookup_family", "dns_refresh_rate", "common_lb_config", "upstream_config",
	},
	"envoy.config.cluster.v3.Cluster.CommonLbConfig":       {"override_host_status"},
	"envoy.config.cluster.v3.Cluster.EdsClusterConfig":     {"eds_config", "service_name"},
	"envoy.config.cluster.v3.CircuitBreakers":              {"thresholds"},
	"envoy.config.cluster.v3.CircuitBreakers.Thresholds":   {"priority", "max_requests"},
	"envoy.config.cluster.v3.Cluster.RingHashLbConfig":     {"minimum_ring_size", "maximum_ring_size", "hash_function"},
	"envoy.config.cluster.v3.Cluster.LeastRequestLbConfig": {"choice_count"},
	"envoy.config.cluster.v3.OutlierDetection": {
		"interval", "base_ejection_time", "max_ejection_time", "max_ejection_percent",
		"success_rate_stdev_factor", "enforcing_success_rate", "success_rate_minimum_hosts", "success_rate_request_volume",
		"failure_percentage_threshold", "enforcing_failure_percentage", "failure_percentage_minimum_hosts", "failure_percentage_request_volume",
	},
	"envoy.config.cluster.v3.LoadBalancingPolicy":        {"policies"},
	"envoy.config.cluster.v3.LoadBalancingPolicy.Policy": {"typed_extension_config"},

	"envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality":   {"endpoint_picking_policy"},
	"envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin":     {},
	"envoy.extensions.load_balancing_policies.random.v3.Random":              {},
	"envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest": {"choice_count"},
	"envoy.extensions.load_balancing_policies.pick_first.v3.PickFirst":       {"shuffle_address_list"},
	"envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash":         {"minimum_ring_size", "maximum_ring_size", "hash_function"},
	"envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin": {
		"enable_oob_load_report", "error_utilization_penalty", "oob_reporting_period", "blackout_period",
		"weight_expiration_period", "weight_update_period",
	},

	"envoy.config.endpoint.v3.ClusterLoadAssignment":        {"cluster_name", "endpoints", "policy"},
	"envoy.config.endpoint.v3.LocalityLbEndpoints":          {"locality", "priority", "load_balancing_weight", "lb_endpoints"},
	"envoy.config.endpoint.v3.ClusterLoadAssignment.Policy": {"drop_overloads"},
	"envoy.config.endpoint.v3.LbEndpoint":                   {"endpoint", "health_status", "load_balancing_weight", "metadata"},
	"envoy.config.core.v3.Metadata":                         {"filter_metadata"},
	"envoy.config.endpoint.v3.Endpoint":                     {"address", "hostname", "additional_addresses"},
	"envoy.config.core.v3.SocketAddress":                    {"address", "port_value"},
}
