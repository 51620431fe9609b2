//lint:file-ignore SA1019 Control planes still send deprecated fields.

package xdsresource

import (
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	ringhashpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/xdsclient"
)

func TestIgnoredFields(t *testing.T) {
	t.Parallel()
	const is = "this client does not act on the field"
	listener := func(edit func(*listenerpb.Listener, *hcmpb.HttpConnectionManager)) *listenerpb.Listener {
		hcm := validManager(t)
		l := &listenerpb.Listener{Name: "l"}
		edit(l, hcm)
		l.ApiListener = &listenerpb.ApiListener{ApiListener: mustAny(t, hcm)}
		return l
	}
	for _, tc := range []struct {
		given    string
		resource proto.Message
		want     []Ignored
	}{
		{"routes of all kinds", richRoutes(), []Ignored{
			{"virtual_hosts[0].routes[0].match.runtime_fraction.runtime_key", is},
			{"virtual_hosts[0].routes[3].route.request_mirror_policies[0].runtime_fraction.runtime_key", is},
		}},
		{"a listener", listener(func(*listenerpb.Listener, *hcmpb.HttpConnectionManager) {}), nil},
		{
			"fields of a listener and its manager",
			listener(func(l *listenerpb.Listener, m *hcmpb.HttpConnectionManager) {
				l.TrafficDirection = corepb.TrafficDirection_OUTBOUND
				m.StatPrefix = "x"
				m.CommonHttpProtocolOptions = &corepb.HttpProtocolOptions{
					MaxStreamDuration: durationpb.New(1), IdleTimeout: durationpb.New(1),
				}
				config := routeConfig(toCluster("/", "a"))
				config.ValidateClusters = wrapperspb.Bool(true)
				m.RouteSpecifier = &hcmpb.HttpConnectionManager_RouteConfig{RouteConfig: config}
			}),
			[]Ignored{
				{"traffic_direction", is},
				{hcmPath + ".route_config.validate_clusters", is},
				{hcmPath + ".common_http_protocol_options.idle_timeout", is},
			},
		}, {
			"one field in many routes",
			routeConfig(
				toCluster("/a", "a"),
				routeWith(prefixMatch("/b"), func(a *routepb.RouteAction) { a.Timeout = durationpb.New(1) }),
				routeWith(prefixMatch("/c"), func(a *routepb.RouteAction) { a.Timeout = durationpb.New(1) }),
				&routepb.Route{Match: &routepb.RouteMatch{Cookies: []*routepb.CookieMatcher{{}}}, StatPrefix: "x"},
			),
			[]Ignored{
				{"virtual_hosts[0].routes[1].route.timeout", is + ", which the resource has 2 times"},
				{"virtual_hosts[0].routes[3].match.cookies", is},
				{"virtual_hosts[0].routes[3].stat_prefix", is},
			},
		}, {
			"a policy's runtime_key", routeConfig(&routepb.Route{Match: &routepb.RouteMatch{RuntimeFraction: fraction(1, 0)}}),
			[]Ignored{{"virtual_hosts[0].routes[0].match.runtime_fraction.runtime_key", is}},
		},
		{
			"a cluster", &clusterpb.Cluster{
				Name: "c", ConnectTimeout: durationpb.New(1),
				EdsClusterConfig: &clusterpb.Cluster_EdsClusterConfig{EdsConfig: &corepb.ConfigSource{
					ConfigSourceSpecifier: &corepb.ConfigSource_Ads{}, InitialFetchTimeout: durationpb.New(1), ResourceApiVersion: corepb.ApiVersion_V3,
				}},
				CircuitBreakers: &clusterpb.CircuitBreakers{Thresholds: []*clusterpb.CircuitBreakers_Thresholds{
					{MaxRequests: wrapperspb.UInt32(1)}, {MaxRetries: wrapperspb.UInt32(1)},
				}},
				OutlierDetection: &clusterpb.OutlierDetection{Consecutive_5Xx: wrapperspb.UInt32(1), Interval: durationpb.New(1)},
			},
			[]Ignored{
				{"eds_cluster_config.eds_config.initial_fetch_timeout", is}, {"connect_timeout", is},
				{"circuit_breakers.thresholds[1].max_retries", is}, {"outlier_detection.consecutive_5xx", is},
			},
		}, {
			"policies within policies",
			&clusterpb.Cluster{LoadBalancingPolicy: policies(wrrLocality(t, policies(mustAny(t, &ringhashpb.RingHash{
				MinimumRingSize: wrapperspb.UInt64(1), UseHostnameForHashing: true,
			}))))},
			[]Ignored{{
				"load_balancing_policy.policies[0].typed_extension_config.typed_config.endpoint_picking_policy" +
					".policies[0].typed_extension_config.typed_config.use_hostname_for_hashing", is,
			}},
		},
		{
			"endpoints",
			&endpointpb.ClusterLoadAssignment{
				Endpoints: []*endpointpb.LocalityLbEndpoints{{
					Proximity: wrapperspb.UInt32(1),
					LbEndpoints: []*endpointpb.LbEndpoint{{Metadata: &corepb.Metadata{
						FilterMetadata: map[string]*structpb.Struct{"envoy.lb": {}, "other": {}},
					}}},
				}},
				Policy: &endpointpb.ClusterLoadAssignment_Policy{OverprovisioningFactor: wrapperspb.UInt32(1)},
			},
			[]Ignored{
				{`endpoints[0].lb_endpoints[0].metadata.filter_metadata["other"]`, is}, {"endpoints[0].proximity", is},
				{"policy.overprovisioning_factor", is},
			},
		},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			got, err := IgnoredFields(mustAny(t, tc.resource))
			if err != nil {
				t.Fatal(err)
			}
			checkIgnored(t, got, tc.want...)
		})
	}
}

func TestIgnoredFieldsThatNobodyKnows(t *testing.T) {
	t.Parallel()
	resource := mustAny(t, &clusterpb.Cluster{Name: "c"})
	for number := range protowire.Number(200) {
		resource.Value = protowire.AppendVarint(protowire.AppendTag(resource.Value, 5000+number, protowire.VarintType), 1)
	}
	got, err := IgnoredFields(resource)
	if err != nil || len(got) != 100 || got[0].Path != "(unknown field 5000)" {
		t.Errorf("%d fields from %v on, %v; want the first 100 from field 5000 on", len(got), got, err)
	}
}

func TestIgnoredFieldsOfWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		unknownURL:     `no resource type with type URL "` + unknownURL + `"`,
		ClusterTypeURL: "cannot be read as envoy.config.cluster.v3.Cluster",
	} {
		if _, err := IgnoredFields(&anypb.Any{TypeUrl: url, Value: []byte{0xff}}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error = %v, want %q", err, want)
		}
	}
}

func TestUsedFieldsExist(t *testing.T) {
	t.Parallel()
	for message, fields := range usedFields {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(message)
		if err != nil {
			t.Errorf("%s: %v", message, err)
			continue
		}
		for _, field := range fields {
			if d.(protoreflect.MessageDescriptor).Fields().ByName(protoreflect.Name(field)) == nil {
				t.Errorf("%s has no field %s", message, field)
			}
		}
	}
}

// What a resource type says for dumps and the log is both: fields nobody acts on,
// and what the decoder left out.
func TestResourceTypesSayWhatIsIgnored(t *testing.T) {
	t.Parallel()
	const is = "this client does not act on the field"
	hcm := validManager(t)
	hcm.ServerName = "x"
	hcm.HttpFilters = append([]*hcmpb.HttpFilter{{Name: "f", IsOptional: true, ConfigType: &hcmpb.HttpFilter_TypedConfig{
		TypedConfig: &anypb.Any{TypeUrl: unknownURL},
	}}}, hcm.HttpFilters...)
	hashed := routeWith(prefixMatch("/"), func(a *routepb.RouteAction) {
		a.HashPolicy = []*routepb.RouteAction_HashPolicy{hashState("other")}
		a.Timeout = durationpb.New(1)
	})
	for _, tc := range []struct {
		typ      *xdsclient.ResourceType
		resource proto.Message
		want     []Ignored
	}{
		{ListenerType, apiListener(t, hcm), []Ignored{
			{hcmPath + ".server_name", is},
			{hcmPath + ".http_filters[0]", `filter "f": this client has no filter for type "` + unknownURL + `"; is_optional is set`},
		}},
		{RouteConfigurationType, routeConfig(hashed), []Ignored{
			{"virtual_hosts[0].routes[0].route.timeout", is},
			{"virtual_hosts[0].routes[0].route.hash_policy[0]", `gives no hash: a gRPC client knows header, and filter_state with the key "io.grpc.channel_id"`},
		}},
		{
			ClusterType,
			edsCluster(func(c *clusterpb.Cluster) {
				c.AltStatName = "x"
				c.LoadBalancingPolicy = policies(&anypb.Any{TypeUrl: unknownURL}, mustAny(t, &ringhashpb.RingHash{}))
			}),
			[]Ignored{{"alt_stat_name", is}, passedOver(0, unknownURL)},
		},
		{EndpointsType, &endpointpb.ClusterLoadAssignment{
			ClusterName: "c", Policy: &endpointpb.ClusterLoadAssignment_Policy{OverprovisioningFactor: wrapperspb.UInt32(1)},
		}, []Ignored{{"policy.overprovisioning_factor", is}}},
	} {
		t.Run(tc.typ.Name, func(t *testing.T) {
			t.Parallel()
			resource := mustAny(t, tc.resource)
			_, value, err := tc.typ.Decode(resource, xdsclient.DecodeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got []Ignored
			for _, part := range tc.typ.Ignored(resource, value) {
				got = append(got, Ignored(part))
			}
			checkIgnored(t, got, tc.want...)
		})
	}
}

func TestUsedKeysExist(t *testing.T) {
	t.Parallel()
	for field := range usedKeys {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(field)
		if err != nil || !d.(protoreflect.FieldDescriptor).IsMap() {
			t.Errorf("%s: no such map: %v", field, err)
		}
	}
}
