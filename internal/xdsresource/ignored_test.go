//lint:file-ignore SA1019 Control planes still send deprecated fields.

package xdsresource

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	xdspb "github.com/cncf/xds/go/xds/type/v3"
	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corspb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	_ "github.com/dynxds/dynxds/httpfilter/inert"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

func TestIgnoredFields(t *testing.T) {
	t.Parallel()
	const is = notActedOn
	listener := func(edit func(*listenerpb.Listener, *hcmpb.HttpConnectionManager)) *listenerpb.Listener {
		hcm := validManager()
		l := &listenerpb.Listener{Name: "l"}
		edit(l, hcm)
		l.ApiListener = &listenerpb.ApiListener{ApiListener: xdsmsg.Any(hcm)}
		return l
	}
	for _, tc := range []struct {
		given    string
		resource proto.Message
		want     []note
	}{
		{"routes of all kinds", richRoutes(t), []note{
			{"virtual_hosts[0].routes[0].match.runtime_fraction.runtime_key", is},
			{"virtual_hosts[0].routes[3].route.request_mirror_policies[0].runtime_fraction.runtime_key", is},
		}},
		{"a listener", listener(func(*listenerpb.Listener, *hcmpb.HttpConnectionManager) {}), nil},
		{
			"fields of a listener and its manager",
			listener(func(l *listenerpb.Listener, m *hcmpb.HttpConnectionManager) {
				l.TrafficDirection = corepb.TrafficDirection_OUTBOUND
				l.ConnectionBalanceConfig = &listenerpb.Listener_ConnectionBalanceConfig{}
				m.StatPrefix = "x"
				m.CommonHttpProtocolOptions = &corepb.HttpProtocolOptions{
					MaxStreamDuration: durationpb.New(1), IdleTimeout: durationpb.New(1),
				}
				config := routeConfig(xdsmsg.PrefixRoute("/", "a"))
				config.ValidateClusters = wrapperspb.Bool(true)
				m.RouteSpecifier = &hcmpb.HttpConnectionManager_RouteConfig{RouteConfig: config}
			}),
			[]note{
				{hcmPath + ".route_config.validate_clusters", is},
				{hcmPath + ".common_http_protocol_options.idle_timeout", is},
				{"connection_balance_config", is},
			},
		}, {
			"one field in many routes",
			routeConfig(
				xdsmsg.PrefixRoute("/a", "a"),
				withText(t, xdsmsg.PrefixRoute("/b", "a"), `route{timeout{nanos:1}}`),
				withText(t, xdsmsg.PrefixRoute("/c", "a"), `route{timeout{nanos:1}}`),
				&routepb.Route{Match: &routepb.RouteMatch{Cookies: []*routepb.CookieMatcher{{}}}, StatPrefix: "x"},
			),
			[]note{
				{"virtual_hosts[0].routes[3].match.cookies", is},
				{"virtual_hosts[0].routes[1].route.timeout", is},
			},
		}, {
			"a policy's runtime_key", routeConfig(&routepb.Route{Match: &routepb.RouteMatch{RuntimeFraction: runtimeFraction(1, 0)}}),
			[]note{{"virtual_hosts[0].routes[0].match.runtime_fraction.runtime_key", is}},
		},
		{
			"a cluster", withText(t, &clusterpb.Cluster{}, `connect_timeout{nanos:1}
				eds_cluster_config{eds_config{ads{} initial_fetch_timeout{nanos:1} resource_api_version:V3}}
				circuit_breakers{thresholds{max_requests{value:1}} thresholds{max_connections{value:1}}}
				outlier_detection{consecutive_5xx{value:1} max_ejection_time_jitter{nanos:1} interval{nanos:1}
					enforcing_local_origin_success_rate{value:1}}`),
			[]note{
				{"eds_cluster_config.eds_config.initial_fetch_timeout", is}, {"connect_timeout", is},
				{"circuit_breakers.thresholds[1].max_connections", is}, {"outlier_detection.enforcing_local_origin_success_rate", is},
			},
		}, {
			"settings of policies", withText(t,
				picking(t, `[RoundRobin]{slow_start_config{} locality_lb_config{}}`,
					`[Maglev]{table_size{value:7} consistent_hashing_lb_config{}}`),
				`round_robin_lb_config{slow_start_config{slow_start_window{nanos:1} aggression{default_value:2 runtime_key:"k"}}}`),
			[]note{
				{"round_robin_lb_config.slow_start_config.aggression.runtime_key", is},
				{"load_balancing_policy.policies[0].typed_extension_config.typed_config.locality_lb_config", is},
				{"load_balancing_policy.policies[1].typed_extension_config.typed_config.consistent_hashing_lb_config", is},
			},
		}, {
			"policies within policies",
			picking(t, wrrLocality(`[RingHash]{minimum_ring_size{value:1} use_hostname_for_hashing:true}`)),
			[]note{{
				"load_balancing_policy.policies[0].typed_extension_config.typed_config.endpoint_picking_policy" +
					".policies[0].typed_extension_config.typed_config.use_hostname_for_hashing", is,
			}},
		}, {
			"endpoints", withText(t, &endpointpb.ClusterLoadAssignment{}, `policy{overprovisioning_factor{value:1}}
				endpoints{proximity{value:1} lb_endpoints{metadata{
					filter_metadata{key:"envoy.lb" value{}} filter_metadata{key:"other" value{}}}}}`),
			[]note{
				{"endpoints[0].proximity", is},
				{"policy.overprovisioning_factor", is},
			},
		},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			got, err := IgnoredFields(xdsmsg.Any(tc.resource))
			xdstest.NoError(t, err)
			checkIgnored(t, got, tc.want...)
		})
	}
}

// ignoredOf decodes a resource and returns what its type says is ignored of it.
func ignoredOf(t *testing.T, typ *xdsclient.ResourceType, m proto.Message) []xdsclient.Ignored {
	t.Helper()
	resource := xdsmsg.Any(m)
	value, err := typ.Decode(resource, xdsclient.DecodeOptions{})
	xdstest.NoError(t, err)
	return typ.Ignored(resource, value, nil)
}

const firstRoute = "virtual_hosts[0].routes[0]"

// An ignored field is listed once for a resource, however many routes have it, whether the
// decoder skips it or never reads it.
func TestIgnoredFieldsAreListedOnce(t *testing.T) {
	t.Parallel()
	var routes []*routepb.Route
	for i := range 117 {
		conditions := "unavailable,retriable-4xx,refused-stream,retriable-status-codes" + strings.Repeat(",reset", i%2)
		routes = append(routes, withText(t, xdsmsg.PrefixRoute(fmt.Sprint("/", i), "a"),
			`route{retry_policy{retry_on:"`+conditions+`" retriable_status_codes:503}}`))
	}
	routes[116].RequestHeadersToRemove = []string{":path", "te"}
	got := ignoredOf(t, RouteConfigurationType, routeConfig(routes...))
	want := []xdsclient.Ignored{
		{Path: firstRoute + ".route.retry_policy.retriable_status_codes", Reason: "this client does not act on the field", Places: 117},
		{Path: firstRoute + ".route.retry_policy.retry_on", Reason: `this client does not support "retriable-4xx,retriable-status-codes"`, Places: 117},
		{
			Path: "virtual_hosts[0].routes[116].request_headers_to_remove[0]", Places: 1,
			Reason: `header ":path": pseudo headers cannot be edited; routes have rewrites for path and host`,
		},
		{Path: "virtual_hosts[0].routes[116].request_headers_to_remove[1]", Reason: `header "te": gRPC fills this header in`, Places: 1},
	}
	xdstest.Equal(t, "Ignored", want, got)
	xdstest.Equal(t, "String()", want[1].Path+": "+want[1].Reason+" (at 117 places)", got[1].String())
}

// A field whose job another field does is not missed: control planes that serve
// Envoy and gRPC fill in both.
func TestIgnoredFieldsWithATwinThatIsApplied(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		action string
		want   []string
	}{
		"timeout alone":                      {`timeout{nanos:1}`, []string{firstRoute + ".route.timeout"}},
		"timeout beside max_stream_duration": {`timeout{nanos:1} max_stream_duration{max_stream_duration{nanos:1}}`, nil},
		"max_grpc_timeout beside grpc_timeout_header_max": {
			`max_grpc_timeout{nanos:1} max_stream_duration{grpc_timeout_header_max{nanos:1}}`, nil},
		"timeout beside a max_stream_duration that says nothing": {
			`timeout{nanos:1} max_stream_duration{}`, []string{firstRoute + ".route.timeout"}},
		"total_weight beside the weights": {`weighted_clusters{clusters{name:"a" weight{value:1}} total_weight{value:1}}`, nil},
	} {
		var got []string
		for _, part := range ignoredOf(t, RouteConfigurationType, acting(t, tc.action)) {
			got = append(got, part.Path)
		}
		xdstest.Equal(t, fmt.Sprintf("%s: Ignored", name), tc.want, got)
	}
}

// Values that ask for what gRPC does without them are not listed; other values of the same fields are.
func TestFieldsThatAskForNothing(t *testing.T) {
	t.Parallel()
	for action, want := range map[string][]string{
		`timeout{} max_grpc_timeout{}`:                                                                      {},
		`timeout{seconds:1} max_grpc_timeout{nanos:1}`:                                                      {firstRoute + ".route.timeout", firstRoute + ".route.max_grpc_timeout"},
		`retry_policy{retry_on:"refused-stream,retriable-status-codes,unavailable"}`:                        {},
		`retry_policy{retry_on:"unavailable,retriable-status-codes" retriable_status_codes:503}`:            {firstRoute + ".route.retry_policy.retriable_status_codes", firstRoute + ".route.retry_policy.retry_on"},
		`request_mirror_policies{cluster:"b" trace_sampled{} runtime_fraction{default_value{numerator:1}}}`: {},
	} {
		got := []string{}
		for _, i := range ignoredOf(t, RouteConfigurationType, acting(t, action)) {
			got = append(got, i.Path)
		}
		xdstest.Equal(t, action, want, got)
	}
}

// A rewrite of the authority that the server is not trusted with, and a hash policy that gives no hash, are warnings:
// servers get another authority, and RPCs that belong together part.
func TestIgnoredRewritesAndHashesAreWarnings(t *testing.T) {
	t.Parallel()
	for _, action := range []string{
		`host_rewrite_literal:"a"`, `host_rewrite_header:"a"`, `auto_host_rewrite{value:true}`,
		`hash_policy{cookie{name:"c"}}`, `hash_policy{query_parameter{name:"c"}}`,
	} {
		got := ignoredOf(t, RouteConfigurationType, acting(t, action))
		if len(got) != 1 || got[0].Severity != xdsclient.SeverityWarning {
			t.Errorf("%s: %v, want one warning", action, got)
		}
	}
}

// Fields that affect security or routing come first, as warnings, and the order is stable.
func TestIgnoredFieldsThatMatter(t *testing.T) {
	t.Parallel()
	const optional = `[FilterConfig]{config{` + unknownMessage + `} is_optional:true}`
	plugin := withText(t, &routepb.RouteConfiguration{}, `name:"routes"
		cluster_specifier_plugins{extension{name:"p" typed_config{`+unknownMessage+`}} is_optional:true}
		virtual_hosts{domains:"*"
			routes{match{prefix:"/" cookies{name:"c"}} stat_prefix:"x"
				route{cluster:"a" timeout{nanos:1} metadata_match{}}
				typed_per_filter_config{key:"a" value{`+optional+`}} typed_per_filter_config{key:"b" value{`+optional+`}}}
			routes{match{prefix:"/p"} route{cluster_specifier_plugin:"p"}}}`)
	for _, tc := range []struct {
		typ      *xdsclient.ResourceType
		resource proto.Message
		warnings []string
		infos    []string
	}{
		{ClusterType, blue(t, `max_requests_per_connection{value:1} connect_timeout{nanos:1} lb_subset_config{}`), []string{"lb_subset_config"}, []string{"connect_timeout", "max_requests_per_connection"}},
		{RouteConfigurationType, plugin,
			[]string{firstRoute + ".match.cookies", firstRoute + ".route.metadata_match", "virtual_hosts[0].routes[1].route"},
			[]string{firstRoute + ".route.timeout", firstRoute + `.typed_per_filter_config["a"].config`, firstRoute + `.typed_per_filter_config["b"].config`}},
	} {
		for range 20 {
			var warnings, infos []string
			for _, part := range ignoredOf(t, tc.typ, tc.resource) {
				switch {
				case part.Severity == xdsclient.SeverityWarning && infos == nil:
					warnings = append(warnings, part.Path)
				case part.Severity == xdsclient.SeverityWarning:
					t.Errorf("%s comes late", part.Path)
				default:
					infos = append(infos, part.Path)
				}
			}
			slices.Sort(warnings)
			slices.Sort(tc.warnings)
			if diff := cmp.Diff([][]string{tc.warnings, tc.infos}, [][]string{warnings, infos}); diff != "" {
				t.Errorf("%s: warnings and infos (-want +got):\n%s", tc.typ.Name, diff)
				break
			}
		}
	}
}

// A filter that does nothing in a client is known, and its configuration listed as ignored.
func TestIgnoredFilters(t *testing.T) {
	t.Parallel()
	const reason = "CORS is for browsers; a gRPC client does nothing for it"
	policy := xdsmsg.Any(&corspb.CorsPolicy{AllowMethods: "GET"})
	hcm := validManager()
	hcm.HttpFilters = append([]*hcmpb.HttpFilter{httpFilter("cors", xdsmsg.Any(&corspb.Cors{}))}, hcm.HttpFilters...)
	route, other := xdsmsg.PrefixRoute("/a", "a"), xdsmsg.PrefixRoute("/b", "b")
	route.TypedPerFilterConfig = map[string]*anypb.Any{"cors": policy}
	other.TypedPerFilterConfig = route.TypedPerFilterConfig
	wrapper := xdsmsg.PrefixRoute("/c", "c")
	wrapper.TypedPerFilterConfig = map[string]*anypb.Any{
		"wrapped": xdsmsg.Any(&routepb.FilterConfig{Config: policy}),
		"typed":   xdsmsg.Any(&xdspb.TypedStruct{TypeUrl: policy.GetTypeUrl()}),
	}
	config := routeConfig(route, other, wrapper)
	const c = "virtual_hosts[0].routes[2]"
	for _, tc := range []struct {
		resource proto.Message
		want     []xdsclient.Ignored
	}{
		{apiListener(hcm), []xdsclient.Ignored{{Path: hcmPath + ".http_filters[0].typed_config", Reason: reason, Places: 1}}},
		{config, []xdsclient.Ignored{
			{Path: firstRoute + `.typed_per_filter_config["cors"]`, Reason: reason, Places: 2},
			{Path: c + `.typed_per_filter_config["typed"]`, Reason: reason, Places: 1},
			{Path: c + `.typed_per_filter_config["wrapped"].config`, Reason: reason, Places: 1},
		}},
	} {
		got, err := IgnoredFields(xdsmsg.Any(tc.resource))
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("Ignored (-want +got):\n%s, %v", diff, err)
		}
	}
}

// An optional filter of an unknown type may have any configuration. One of a megabyte that consists of
// messages within messages took minutes.
func TestIgnoredFieldsOfNestedMessages(t *testing.T) {
	t.Parallel()
	config := xdsmsg.Any(&routepb.FilterConfig{Disabled: true})
	for range 1000 {
		config = xdsmsg.Any(&routepb.FilterConfig{Config: config})
	}
	hcm := validManager()
	hcm.HttpFilters = append([]*hcmpb.HttpFilter{optional(httpFilter("f", config))}, hcm.HttpFilters...)
	got, err := IgnoredFields(xdsmsg.Any(apiListener(hcm)))
	want := []xdsclient.Ignored{{
		Path:   hcmPath + ".http_filters[0].typed_config" + strings.Repeat(".config", 31),
		Reason: "the message is too deep in others for its fields to be listed", Places: 1,
	}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Ignored (-want +got):\n%s, %v", diff, err)
	}
}

func TestIgnoredUnknownFields(t *testing.T) {
	t.Parallel()
	resource := xdsmsg.Any(&clusterpb.Cluster{Name: "c"})
	for number := range protowire.Number(200) {
		resource.Value = protowire.AppendVarint(protowire.AppendTag(resource.Value, 5000+number, protowire.VarintType), 1)
	}
	got, err := IgnoredFields(resource)
	if err != nil || len(got) != 100 || got[0].Path != "(unknown field 5000)" {
		t.Errorf("%d fields from %v on, %v; want the first 100 from field 5000 on", len(got), got, err)
	}
}

func TestIgnoredFieldsOfAMalformedResource(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		unknownURL:      `no resource type with type URL "` + unknownURL + `"`,
		typeurl.Cluster: "cannot be read as envoy.config.cluster.v3.Cluster",
	} {
		if _, err := IgnoredFields(&anypb.Any{TypeUrl: url, Value: []byte{0xff}}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error = %v, want %q", err, want)
		}
	}
}

// The ignored fields of a resource type, for dumps and the log, are those that are never
// read and those that the decoder skips.
func TestResourceTypesListIgnoredFields(t *testing.T) {
	t.Parallel()
	const is = notActedOn
	hcm := validManager()
	hcm.ServerName = "x"
	hcm.HttpFilters = append([]*hcmpb.HttpFilter{{Name: "f", IsOptional: true, ConfigType: &hcmpb.HttpFilter_TypedConfig{
		TypedConfig: &anypb.Any{TypeUrl: unknownURL},
	}}}, hcm.HttpFilters...)
	hashed := acting(t, `hash_policy{filter_state{key:"other"}} timeout{nanos:1}`)
	for _, tc := range []struct {
		typ      *xdsclient.ResourceType
		resource proto.Message
		want     []note
	}{
		{ListenerType, apiListener(hcm), []note{
			{hcmPath + ".server_name", is},
			{hcmPath + ".http_filters[0]", `filter "f": this client has no filter for type "` + unknownURL + `"; is_optional is set`},
		}},
		{RouteConfigurationType, hashed, []note{
			{"virtual_hosts[0].routes[0].route.hash_policy[0].filter_state", `gives no hash: a gRPC client knows header, and filter_state with the key "io.grpc.channel_id"`},
			{"virtual_hosts[0].routes[0].route.timeout", is},
		}},
		{
			ClusterType, withText(t, picking(t, unknownMessage, `[RingHash]{}`), `connect_timeout{nanos:1}`),
			[]note{{"connect_timeout", is}, note{passedOver(0, unknownURL).Path, passedOver(0, unknownURL).Reason}},
		},
		{EndpointsType, withText(t, assignment(), `policy{overprovisioning_factor{value:1}}`), []note{{"policy.overprovisioning_factor", is}}},
	} {
		xdstest.Parallel(t, tc.typ.Name, func(t *testing.T) {
			checkIgnored(t, ignoredOf(t, tc.typ, tc.resource), tc.want...)
		})
	}
}

// The tables of fields name messages, fields and maps that exist.
func TestTablesOfFields(t *testing.T) {
	t.Parallel()
	check := func(message protoreflect.FullName, fields ...string) {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(message)
		if err != nil {
			t.Errorf("%s: %v", message, err)
			return
		}
		for _, field := range fields {
			if d.(protoreflect.MessageDescriptor).Fields().ByName(protoreflect.Name(field)) == nil {
				t.Errorf("%s has no field %s", message, field)
			}
		}
	}
	for message, fields := range usedFields {
		check(message, fields...)
	}
	for message, fields := range fieldsThatMatter {
		check(message, fields...)
	}
	for message, fields := range twins {
		for field, twin := range fields {
			check(message, field, twin)
		}
	}
	for field := range gRPCDoes {
		if _, listed := usedFields[field.Parent()]; !listed {
			t.Errorf("%s: all fields of the message are used", field)
		}
		check(field.Parent(), string(field.Name()))
	}
}
