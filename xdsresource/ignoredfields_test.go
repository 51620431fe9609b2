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
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
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
				{hcmPath + ".stat_prefix", is},
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
		{"a cluster", &clusterpb.Cluster{Name: "c", ConnectTimeout: durationpb.New(1)}, []Ignored{{"connect_timeout", is}}},
		{
			"endpoints",
			&endpointpb.ClusterLoadAssignment{Endpoints: []*endpointpb.LocalityLbEndpoints{{Proximity: wrapperspb.UInt32(1), LbEndpoints: []*endpointpb.LbEndpoint{{Metadata: &corepb.Metadata{}}}}}},
			[]Ignored{{"endpoints[0].lb_endpoints[0].metadata", is}, {"endpoints[0].proximity", is}},
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
