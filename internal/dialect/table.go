package dialect

const otherGRPC = "; other gRPC clients ignore it"

// The features, as far as other clients differ in them.
var (
	// Of routes.
	QueryParameters = &Feature{name: "query_parameters", effects: [...]Effect{GRPCGo: LeavesOut, OtherGRPC: LeavesOut, GRPCJS: Ignores}}
	ClusterHeader   = &Feature{name: "cluster_header", effects: grpc(LeavesOut)}
	SegmentPrefix   = &Feature{name: "path_separated_prefix", effects: grpc(Rejects)}
	MethodHeader    = &Feature{name: ":method", effects: grpc(Absent)}
	PseudoHeaders   = &Feature{name: "of a pseudo header", effects: [...]Effect{GRPCGo: Absent, OtherGRPC: Obeys, Envoy: Obeys, GRPCJS: Absent}}
	Redirects       = &Feature{name: "redirects", effects: grpc(Rejects),
		Note: "gRPC clients other than those of dynxds are not told the place: their RPCs fail with UNAVAILABLE, as if there were no endpoint"}
	Mirrors      = &Feature{name: "request_mirror_policies", effects: grpc(Ignores), Note: "dynxds and Envoy send copies" + otherGRPC}
	PathRewrites = &Feature{name: "rewrites of the path", effects: grpc(Ignores), Note: "dynxds and Envoy rewrite the path" + otherGRPC}
	HostRewrites = &Feature{name: "rewrites of the authority", effects: grpc(Ignores)}
	HeaderEdits  = &Feature{name: "header edits", effects: grpc(Ignores), Note: "dynxds and Envoy edit headers" + otherGRPC}
	ZeroWeights  = &Feature{name: "direct_response", effects: grpc(Rejects),
		Note: "in gRPC clients other than those of dynxds the RPCs fail with UNAVAILABLE, as if there were no endpoint"}
	RetryConditions = &Feature{name: "conditions beyond gRFC A44", effects: grpc(Ignores),
		Note: "dynxds and Envoy retry by all of these conditions; other gRPC clients by statuses only (gRFC A44)"}
	TryTimeouts = &Feature{name: "timeouts of attempts", effects: grpc(Ignores), Note: "dynxds and Envoy end attempts that take longer" + otherGRPC}
	RetryHosts  = &Feature{name: "retry_host_predicate", effects: grpc(Ignores), Note: "dynxds and Envoy prefer other endpoints for retries" + otherGRPC}

	// Of filters. universalFilters are those of every gRPC client with xDS.
	Filters = &Feature{name: "filters that it may not have", effects: grpc(Rejects),
		Note: "other gRPC clients than those of dynxds that do not have the filter %s reject the Listener; with is_optional they do without"}
	Sessions = &Feature{name: "sessions", effects: grpc(Ignores),
		Note: "dynxds, Envoy and gRPC clients with gRFC A55 keep the RPCs of a session with one endpoint; others ignore it"}

	// Of Clusters.
	StaticClusters = &Feature{name: "clusters of type STATIC and STRICT_DNS", effects: grpc(Rejects)}
	OtherPolicies  = &Feature{name: "lb_policy", effects: grpc(Rejects),
		Note: "gRPC clients other than those of dynxds reject the Clusters; they accept the policy in load_balancing_policy, with another one after it"}
	Maglev       = &Feature{name: "Maglev", effects: grpc(Ignores), Note: "dynxds and Envoy use a Maglev table; other gRPC clients use a hash ring"}
	LeastRequest = &Feature{name: "least_request", effects: [...]Effect{OtherGRPC: Ignores, GRPCJS: Ignores}}
	Random       = &Feature{name: "random", effects: grpc(Ignores), Note: "dynxds and Envoy pick endpoints at random; other gRPC clients in turns"}
	Subsets      = &Feature{name: "random subsets", effects: noneBut(Ignores),
		Note: "dynxds, and gRPC clients with gRFC A68, use a subset of the endpoints; others use all of them"}
	SlowStart   = &Feature{name: "slow start", effects: grpc(Ignores), Note: "dynxds and Envoy give endpoints that start a smaller share" + otherGRPC}
	Consecutive = &Feature{name: "consecutive failures", effects: grpc(Ignores),
		Note: "dynxds and Envoy eject endpoints for consecutive failures, and add jitter" + otherGRPC}
	RetryLimits = &Feature{name: "limits of retries", effects: grpc(Ignores), Note: "dynxds and Envoy limit the retries that are in flight" + otherGRPC}
	Health      = &Feature{name: "health_checks", effects: grpc(Ignores), Note: "dynxds and Envoy check the health of endpoints" + otherGRPC}
	LoadReports = &Feature{name: "lrs_server", effects: [...]Effect{Envoy: Ignores, GRPCJS: Obeys},
		Note: "gRPC clients report loads; Envoy does so only if its bootstrap says it"}
	Providers = &Feature{name: "certificate_providers", effects: [...]Effect{Envoy: Rejects, GRPCJS: Obeys},
		Note: "Envoy has none of gRPC's certificate_providers: it rejects the Clusters, or does not verify servers"}

	// Of endpoints.
	HostNames = &Feature{name: "host names", effects: [...]Effect{OtherGRPC: Rejects, Envoy: Rejects, GRPCJS: Rejects},
		Note: "%q is a name; Envoy and gRPC in languages other than Go take IP addresses only, and do not get this endpoint"}
)

// universalFilters are the filters of every gRPC client with xDS.
var universalFilters = map[string]bool{
	"envoy.extensions.filters.http.fault.v3.HTTPFault": true,
	"envoy.extensions.filters.http.router.v3.Router":   true,
}

// IsUniversal reports whether every gRPC client with xDS has the filter with this type of configuration.
func IsUniversal(filter string) bool { return universalFilters[filter] }

// policies are the load-balancing policies that not every client has, by the names of their messages, or those of dynxds for a
// TypedStruct (gRFC A52).
var policies = map[string]*Feature{
	"envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest":         LeastRequest,
	"envoy.extensions.load_balancing_policies.maglev.v3.Maglev":                      Maglev,
	"envoy.extensions.load_balancing_policies.random.v3.Random":                      Random,
	"envoy.extensions.load_balancing_policies.random_subsetting.v3.RandomSubsetting": Subsets,
	"dynxds_maglev":     Maglev,
	"dynxds_random":     Random,
	"dynxds_slow_start": SlowStart,
}

// Policy returns the feature that the load-balancing policy with this name is, nil for one that every
// client has or that is not known.
func Policy(message string) *Feature { return policies[message] }

// SlowStartField is the field of load-balancing policies that is the feature SlowStart.
const SlowStartField = "slow_start_config"
