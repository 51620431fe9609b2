package xdsresource

import (
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// fieldNames is a set of names of fields of one message.
type fieldNames []string

func (names fieldNames) has(name string) bool { return slices.Contains(names, name) }

// headerEditFields are the fields of headerFields.
var headerEditFields = fieldNames{
	"request_headers_to_add", "request_headers_to_remove", "response_headers_to_add", "response_headers_to_remove",
}

// slowStartFields are the fields of slowStartConfig.
var slowStartFields = fieldNames{"slow_start_window", "aggression", "min_weight_percent"}

// fieldsThatMatter has the fields without which connections may have less security than
// the resource asks for, or RPCs may go elsewhere than it says.
var fieldsThatMatter = map[protoreflect.FullName]fieldNames{
	"envoy.config.cluster.v3.Cluster":                      {"lb_subset_config"},
	proxyMessage:                                           {"default_proxy_address"},
	"envoy.config.route.v3.RouteConfiguration":             {"vhds", "ignore_port_in_host_matching"},
	"envoy.config.route.v3.VirtualHost":                    {"require_tls", "matcher"},
	"envoy.config.route.v3.RouteMatch":                     {"cookies", "tls_context", "dynamic_metadata", "filter_state"},
	"envoy.config.route.v3.RouteAction":                    {"metadata_match"},
	"envoy.config.route.v3.WeightedCluster.ClusterWeight":  {"metadata_match"},
	filterMessages + "fault.v3.HTTPFault":                  {"upstream_cluster", "downstream_nodes", "headers"},
	filterMessages + "local_ratelimit.v3.LocalRateLimit":   {"descriptors", "rate_limits"},
	filterMessages + "stateful_session.v3.StatefulSession": {"strict"}, // gRFC A55
	filterMessages + "ext_authz.v3.ExtAuthz":               {"shadow_mode", "with_request_body"},
	filterMessages + "ext_authz.v3.ExtAuthzPerRoute":       {"disabled"},
	filterMessages + "ext_proc.v3.ExtProcPerRoute":         {"disabled"},
}

// filterMessages starts the names of the messages of HTTP filters.
const filterMessages = "envoy.extensions.filters.http."

// twins has fields that control planes fill in beside another one, for Envoy or for
// older clients, and the field that does their job here.
var twins = map[protoreflect.FullName]map[string]string{
	"envoy.config.route.v3.RouteAction":     {"timeout": "max_stream_duration", "max_grpc_timeout": "max_stream_duration"},
	"envoy.config.route.v3.WeightedCluster": {"total_weight": "clusters"},
	tlsMessages + "CertificateValidationContext": {
		"trusted_ca": "ca_certificate_provider_instance", "match_subject_alt_names": "match_typed_subject_alt_names",
	},
	tlsMessages + "CommonTlsContext": {
		"tls_certificates": "tls_certificate_provider_instance", "tls_certificate_sds_secret_configs": "tls_certificate_provider_instance",
		"tls_certificate_certificate_provider_instance": "tls_certificate_provider_instance",
	},
}

// proxyMessage is the transport socket of gRFC A86.
const proxyMessage = "envoy.extensions.transport_sockets.http_11_proxy.v3.Http11ProxyUpstreamTransport"

// tlsMessages starts the names of the messages for TLS.
const tlsMessages = "envoy.extensions.transport_sockets.tls.v3."

// gRPCDoes has fields that control planes fill in, and the value that asks for what gRPC does anyway. nil: any value does.
var gRPCDoes = map[protoreflect.FullName]proto.Message{
	// No timeout but the RPC's own deadline.
	"envoy.config.route.v3.RouteAction.timeout":          new(durationpb.Duration),
	"envoy.config.route.v3.RouteAction.max_grpc_timeout": new(durationpb.Duration),
	// Retries have the header grpc-previous-rpc-attempts.
	"envoy.config.route.v3.VirtualHost.include_request_attempt_count": nil,
	"envoy.config.route.v3.RouteConfiguration.validate_clusters":      wrapperspb.Bool(false),
	// Envoy's default.
	"envoy.config.endpoint.v3.ClusterLoadAssignment.Policy.overprovisioning_factor": wrapperspb.UInt32(140),
}

// usedFields has the fields that the decoders of this package read, for each
// message in which they do not read all. Those that only lead to an error or to
// a failing RPC are read as well.
var usedFields = map[protoreflect.FullName]fieldNames{
	//
	// Names for statistics and spans ask a client for nothing, and so do the addresses of a Listener for clients,
	// which is not listened on.
	"envoy.config.listener.v3.Listener":    {"name", "api_listener", "metadata", "address", "additional_addresses", "traffic_direction", "stat_prefix"},
	"envoy.config.listener.v3.ApiListener": {"api_listener"},
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager": {
		"stat_prefix", "rds", "route_config", "common_http_protocol_options", "http_filters",
		"xff_num_trusted_hops", "original_ip_detection_extensions",
	},
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter": {"name", "typed_config", "config_discovery", "is_optional", "disabled"},
	"envoy.extensions.filters.network.http_connection_manager.v3.Rds":        {"config_source", "route_config_name"},
	// This client always asks for v3.
	"envoy.config.core.v3.ConfigSource":         {"ads", "self", "path", "path_config_source", "api_config_source", "resource_api_version"},
	"envoy.config.core.v3.TypedExtensionConfig": {"name", "typed_config"},
	"envoy.config.core.v3.HttpProtocolOptions":  {"max_stream_duration"},

	"envoy.config.route.v3.RouteConfiguration": append(fieldNames{
		"name", "virtual_hosts", "most_specific_header_mutations_wins", "max_direct_response_body_size_bytes",
		"cluster_specifier_plugins", "request_mirror_policies",
	}, headerEditFields...),
	"envoy.config.route.v3.VirtualHost": append(fieldNames{
		"name", "domains", "routes", "typed_per_filter_config", "retry_policy", "hedge_policy", "request_mirror_policies",
	}, headerEditFields...),
	"envoy.config.route.v3.Route": append(fieldNames{
		"name", "match", "route", "redirect", "direct_response", "filter_action", "non_forwarding_action",
		"typed_per_filter_config", "metadata", "decorator", "stat_prefix",
	}, headerEditFields...),
	// Every RPC is a gRPC request, so grpc always holds.
	"envoy.config.route.v3.RouteMatch": {
		"prefix", "path", "safe_regex", "path_separated_prefix", "case_sensitive", "runtime_fraction", "headers",
		"query_parameters", "grpc",
	},
	"envoy.config.core.v3.RuntimeFractionalPercent": {"default_value"},
	"envoy.type.matcher.v3.RegexMatcher":            {"regex", "google_re2"},
	"envoy.config.route.v3.RouteAction": {
		"cluster", "weighted_clusters", "cluster_header", "cluster_specifier_plugin", "inline_cluster_specifier_plugin",
		"prefix_rewrite", "regex_rewrite", "host_rewrite_literal", "host_rewrite_header", "auto_host_rewrite",
		"retry_policy", "hedge_policy", "request_mirror_policies", "hash_policy", "max_stream_duration",
	},
	"envoy.config.route.v3.RouteAction.MaxStreamDuration":   {"max_stream_duration", "grpc_timeout_header_max"},
	"envoy.config.route.v3.RouteAction.HashPolicy":          {"header", "filter_state", "terminal", "cookie", "query_parameter", "connection_properties"},
	"envoy.config.route.v3.RouteAction.RequestMirrorPolicy": {"cluster", "cluster_header", "runtime_fraction", "disable_shadow_host_suffix_append", "request_headers_mutations", "host_rewrite_literal", "trace_sampled"},
	"envoy.config.route.v3.RetryPolicy": {
		"retry_on", "num_retries", "retry_back_off", "per_try_timeout", "per_try_idle_timeout",
		"rate_limited_retry_back_off", "retriable_headers", "retriable_request_headers",
		"retry_host_predicate", "host_selection_retry_max_attempts",
	},
	"envoy.config.route.v3.HedgePolicy":     {"hedge_on_per_try_timeout"},
	"envoy.config.route.v3.WeightedCluster": {"clusters"},
	"envoy.config.route.v3.WeightedCluster.ClusterWeight": append(fieldNames{
		"name", "cluster_header", "weight", "typed_per_filter_config", "host_rewrite_literal",
	}, headerEditFields...),
	"envoy.config.route.v3.FilterConfig":         {"config", "is_optional", "disabled"},
	"envoy.config.route.v3.DirectResponseAction": {"status", "body"},
	"envoy.config.route.v3.RedirectAction": {
		"https_redirect", "scheme_redirect", "host_redirect", "port_redirect", "path_redirect", "prefix_rewrite",
		"regex_rewrite", "response_code", "strip_query",
	},

	filterMessages + "fault.v3.HTTPFault": {"delay", "abort", "max_active_faults", "response_rate_limit", "disable_downstream_cluster_stats"},
	filterMessages + "local_ratelimit.v3.LocalRateLimit": {
		"stat_prefix", "token_bucket", "filter_enabled", "filter_enforced", "request_headers_to_add_when_not_enforced", "response_headers_to_add",
		"rate_limited_as_resource_exhausted",
	},
	filterMessages + "stateful_session.v3.StatefulSession": {"session_state", "stat_prefix"},
	filterMessages + "gcp_authn.v3.GcpAuthnFilterConfig":   {"cache_config"},
	filterMessages + "ext_authz.v3.ExtAuthz": {
		"grpc_service", "http_service", "transport_api_version", "stat_prefix", "failure_mode_allow", "failure_mode_allow_header_add", "status_on_error",
		"filter_enabled", "deny_at_disable", "allowed_headers", "disallowed_headers", "decoder_header_mutation_rules",
	},
	filterMessages + "ext_authz.v3.ExtAuthzPerRoute": {},
	filterMessages + "ext_proc.v3.ExternalProcessor": {
		"grpc_service", "http_service", "stat_prefix", "failure_mode_allow", "processing_mode", "request_attributes", "response_attributes", "forward_rules",
		"mutation_rules", "disable_immediate_response", "observability_mode", "deferred_close_timeout",
	},
	filterMessages + "ext_proc.v3.ExtProcPerRoute":  {"overrides"},
	filterMessages + "ext_proc.v3.ExtProcOverrides": {"grpc_service", "failure_mode_allow", "processing_mode", "request_attributes", "response_attributes"},
	filterMessages + "ext_proc.v3.ProcessingMode": {
		"request_header_mode", "response_header_mode", "response_trailer_mode", "request_body_mode", "response_body_mode",
	},

	// gRPC always speaks HTTP/2, as http2_protocol_options asks.
	"envoy.config.core.v3.Http2ProtocolOptions": {},
	"envoy.config.cluster.v3.Cluster": {
		"http2_protocol_options", "name", "type", "cluster_type", "eds_cluster_config", "lb_policy", "load_balancing_policy", "lrs_server", "lrs_report_endpoint_metrics",
		"circuit_breakers", "outlier_detection", "health_checks", "ring_hash_lb_config", "maglev_lb_config", "round_robin_lb_config", "least_request_lb_config",
		"load_assignment", "dns_lookup_family", "dns_refresh_rate", "common_lb_config", "upstream_config", "metadata", "alt_stat_name",
	},
	"envoy.extensions.clusters.dns.v3.DnsCluster": {"dns_refresh_rate", "dns_lookup_family", "all_addresses_in_single_endpoint"},
	"envoy.config.core.v3.TransportSocket":        {"name", "typed_config"},
	proxyMessage:                                  {}, // transport_socket is as that of a Cluster.
	tlsMessages + "UpstreamTlsContext":            {"common_tls_context", "sni", "auto_host_sni", "auto_sni_san_validation"},
	tlsMessages + "CommonTlsContext": {
		"tls_certificate_provider_instance", "tls_certificate_certificate_provider_instance",
		"validation_context", "combined_validation_context", "validation_context_certificate_provider_instance",
	},
	tlsMessages + "CommonTlsContext.CombinedCertificateValidationContext": {
		"default_validation_context", "validation_context_certificate_provider_instance",
	},
	tlsMessages + "CertificateValidationContext": {
		"ca_certificate_provider_instance", "system_root_certs", "match_typed_subject_alt_names", "match_subject_alt_names", "max_verify_depth",
	},
	// Weights of localities always count.
	"envoy.config.cluster.v3.Cluster.CommonLbConfig":                     {"override_host_status", "locality_weighted_lb_config"},
	"envoy.config.cluster.v3.Cluster.EdsClusterConfig":                   {"eds_config", "service_name"},
	"envoy.config.cluster.v3.CircuitBreakers":                            {"thresholds"},
	"envoy.config.cluster.v3.CircuitBreakers.Thresholds":                 {"priority", "max_requests", "max_retries", "retry_budget"},
	"envoy.config.cluster.v3.CircuitBreakers.Thresholds.RetryBudget":     {"budget_percent", "budget_interval", "min_retry_concurrency"},
	"envoy.config.cluster.v3.Cluster.RingHashLbConfig":                   {"minimum_ring_size", "maximum_ring_size", "hash_function"},
	"envoy.config.cluster.v3.Cluster.MaglevLbConfig":                     {"table_size"},
	"envoy.config.cluster.v3.Cluster.LeastRequestLbConfig":               {"choice_count", "slow_start_config"},
	"envoy.config.cluster.v3.Cluster.RoundRobinLbConfig":                 {"slow_start_config"},
	"envoy.config.cluster.v3.Cluster.SlowStartConfig":                    slowStartFields,
	"envoy.extensions.load_balancing_policies.common.v3.SlowStartConfig": slowStartFields,
	"envoy.config.core.v3.RuntimeDouble":                                 {"default_value"},
	"envoy.config.core.v3.HealthCheck":                                   {"grpc_health_check"},
	"envoy.config.core.v3.HealthCheck.GrpcHealthCheck":                   {"service_name"},
	"envoy.config.cluster.v3.OutlierDetection": {
		"interval", "base_ejection_time", "max_ejection_time", "max_ejection_percent",
		"success_rate_stdev_factor", "enforcing_success_rate", "success_rate_minimum_hosts", "success_rate_request_volume",
		"failure_percentage_threshold", "enforcing_failure_percentage", "failure_percentage_minimum_hosts", "failure_percentage_request_volume",
		"consecutive_5xx", "enforcing_consecutive_5xx", "consecutive_gateway_failure", "enforcing_consecutive_gateway_failure",
		"split_external_local_origin_errors", "consecutive_local_origin_failure", "enforcing_consecutive_local_origin_failure",
		"max_ejection_time_jitter",
	},
	"envoy.config.cluster.v3.LoadBalancingPolicy":        {"policies"},
	"envoy.config.cluster.v3.LoadBalancingPolicy.Policy": {"typed_extension_config"},

	"envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality":           {"endpoint_picking_policy"},
	"envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin":             {"slow_start_config"},
	"envoy.extensions.load_balancing_policies.maglev.v3.Maglev":                      {"table_size"},
	"envoy.extensions.load_balancing_policies.random.v3.Random":                      {},
	"envoy.extensions.load_balancing_policies.random_subsetting.v3.RandomSubsetting": {"subset_size", "child_policy"},
	"envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest":         {"choice_count", "slow_start_config"},
	"envoy.extensions.load_balancing_policies.pick_first.v3.PickFirst":               {"shuffle_address_list"},
	"envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash":                 {"minimum_ring_size", "maximum_ring_size", "hash_function"},
	"envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin": {
		"enable_oob_load_report", "error_utilization_penalty", "oob_reporting_period", "blackout_period",
		"weight_expiration_period", "weight_update_period",
	},

	"envoy.config.endpoint.v3.ClusterLoadAssignment":        {"cluster_name", "endpoints", "policy"},
	"envoy.config.endpoint.v3.LocalityLbEndpoints":          {"locality", "priority", "load_balancing_weight", "lb_endpoints", "metadata"},
	"envoy.config.endpoint.v3.ClusterLoadAssignment.Policy": {"drop_overloads"},
	"envoy.config.endpoint.v3.LbEndpoint":                   {"endpoint", "health_status", "load_balancing_weight", "metadata"},
	"envoy.config.core.v3.Metadata":                         {"filter_metadata", "typed_filter_metadata"},
	"envoy.config.endpoint.v3.Endpoint":                     {"address", "hostname", "additional_addresses"},
	"envoy.config.core.v3.SocketAddress":                    {"address", "port_value"},
}
