package e2e_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	udpapb "github.com/cncf/xds/go/udpa/type/v1"
	xdspb "github.com/cncf/xds/go/xds/type/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corspb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	gcppb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/gcp_authn/v3"
	headerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	limitpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	rbacpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	sessionpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
)

// faultsOf decodes a resource and returns its faults.
func faultsOf(t *testing.T, rt *xdsclient.ResourceType, resource proto.Message) []faults.Fault {
	t.Helper()
	_, err := rt.Decode(xdsmsg.Any(resource), xdsclient.DecodeOptions{})
	var wrong *xdsresource.Faults
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &wrong):
		t.Fatal(err)
	}
	return wrong.List
}

func managerOf(filters ...*hcmpb.HttpFilter) *hcmpb.HttpConnectionManager {
	m := with(new(hcmpb.HttpConnectionManager), `rds { route_config_name: "r" config_source { ads {} resource_api_version: V3 } }`)
	m.HttpFilters = filters
	return m
}

// Configurations of built-in filters.
var (
	someLimit  = with(new(limitpb.LocalRateLimit), `stat_prefix: "s" token_bucket { max_tokens: 1 fill_interval { seconds: 1 } }`)
	sessionOff = with(new(sessionpb.StatefulSessionPerRoute), `disabled: true`)
)

// gRFC A39, of every built-in filter: on which side it is known ("The set of known
// filter config types will be different on the gRPC client and server": HTTP API
// Listener, TCP Listener), whether it takes overrides and of what type ("it will
// fail validation if the override config is of the filter's top-level config type
// and …"), and that an override is accepted whichever side the filter is for.
func TestBuiltInFiltersByA39(t *testing.T) {
	t.Parallel()
	inOneWay(t, "resources are decoded, and not sent")
	for _, test := range []struct {
		name                     string
		config                   proto.Message
		client, server, terminal bool
		overrides                []proto.Message // accepted
		wrong                    []proto.Message // rejected as overrides
	}{
		{"router", &routerpb.Router{}, true, true, true, nil, []proto.Message{&routerpb.Router{}}},
		{"fault", &faultpb.HTTPFault{}, true, false, false, []proto.Message{&faultpb.HTTPFault{}}, nil},
		{"gcp_authn", &gcppb.GcpAuthnFilterConfig{}, true, false, false, []proto.Message{&gcppb.GcpAuthnFilterConfig{}}, []proto.Message{&gcppb.Audience{Url: "a"}}},
		{"header_mutation", &headerpb.HeaderMutation{}, true, false, false, []proto.Message{&headerpb.HeaderMutationPerRoute{}}, []proto.Message{&headerpb.HeaderMutation{}}},
		{"local_ratelimit", someLimit, true, false, false, []proto.Message{someLimit}, nil},
		{"stateful_session", &sessionpb.StatefulSession{}, true, false, false, []proto.Message{sessionOff}, []proto.Message{&sessionpb.StatefulSession{}}},
		{"cors", &corspb.Cors{}, true, true, false, []proto.Message{&corspb.CorsPolicy{AllowMethods: "GET"}}, []proto.Message{&corspb.Cors{}}},
		{"rbac", &rbacpb.RBAC{}, false, true, false, []proto.Message{&rbacpb.RBACPerRoute{}}, []proto.Message{&rbacpb.RBAC{}}},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			chain := []*hcmpb.HttpFilter{xdsmsg.Filter("f", test.config)}
			if !test.terminal {
				chain = append(chain, xdsmsg.Router())
			}
			manager := managerOf(chain...)
			if faults := faultsOf(t, xdsresource.ListenerType, xdsmsg.APIListener("l", manager)); (len(faults) == 0) != test.client {
				t.Errorf("in an API listener: %v", faults)
			}
			tcp := with(new(listenerpb.Listener), `name: "l" filter_chains { filters { name: "hcm" typed_config {} } }`)
			tcp.FilterChains[0].Filters[0].ConfigType = &listenerpb.Filter_TypedConfig{TypedConfig: xdsmsg.Any(manager)}
			// The first fault is that this is no Listener for a client.
			if faults := faultsOf(t, xdsresource.ListenerType, tcp); (len(faults) == 1) != test.server {
				t.Errorf("in a TCP listener: %v", faults)
			}
			override := func(m proto.Message) []faults.Fault {
				route := toCluster("c")
				route.TypedPerFilterConfig = map[string]*anypb.Any{"f": xdsmsg.Any(m)}
				return faultsOf(t, xdsresource.RouteConfigurationType, xdsmsg.RouteConfig("r", "*", route))
			}
			for _, m := range test.overrides {
				if faults := override(m); faults != nil {
					t.Errorf("override %T: %v", m, faults)
				}
				if faults := override(&routepb.FilterConfig{Config: xdsmsg.Any(m)}); faults != nil {
					t.Errorf("override %T in a FilterConfig: %v", m, faults)
				}
			}
			for _, m := range test.wrong {
				if override(m) == nil {
					t.Errorf("override %T is accepted", m)
				}
			}
		})
	}
}

// gRFC A39, "Top-Level Filter Configs" and "Filter Config Overrides": a TypedStruct
// is of the type that it names, also where that is one of a built-in filter.
func TestTypedStructsOfBuiltInFilters(t *testing.T) {
	t.Parallel()
	inOneWay(t, "resources are decoded, and not sent")
	session := with(new(sessionpb.StatefulSession), `session_state { name: "cookie" typed_config {
		[type.googleapis.com/envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState] { cookie { name: "c" } } } }`)
	aborting := with(new(faultpb.HTTPFault), `abort { grpc_status: 3 percentage { numerator: 1 } }`)
	mutation := with(new(headerpb.HeaderMutation), `mutations { request_mutations { remove: "k" } }`)
	perRoute := with(new(headerpb.HeaderMutationPerRoute), `mutations { request_mutations { remove: "k" } }`)
	for form, pack := range map[string]func(typeURL string, value *structpb.Struct) proto.Message{
		"xds.type.v3":  func(u string, v *structpb.Struct) proto.Message { return &xdspb.TypedStruct{TypeUrl: u, Value: v} },
		"udpa.type.v1": func(u string, v *structpb.Struct) proto.Message { return &udpapb.TypedStruct{TypeUrl: u, Value: v} },
		"without the prefix of type URLs": func(u string, v *structpb.Struct) proto.Message {
			return &xdspb.TypedStruct{TypeUrl: strings.TrimPrefix(u, typeurl.Prefix), Value: v}
		},
	} {
		// typed makes a TypedStruct of a message, with one more field if edit says so.
		typed := func(m proto.Message, edit func(*structpb.Struct)) proto.Message {
			text, err := protojson.Marshal(m)
			value := new(structpb.Struct)
			xdstest.NoError(t, errors.Join(err, protojson.Unmarshal(text, value)))
			edit(value)
			return pack(xdsmsg.Any(m).GetTypeUrl(), value)
		}
		asItIs := func(*structpb.Struct) {}
		misspelt := func(s *structpb.Struct) {
			s.Fields = map[string]*structpb.Value{"no_such": structpb.NewBoolValue(true)}
		}
		for _, m := range []proto.Message{&routerpb.Router{SuppressEnvoyHeaders: true}, aborting, mutation, someLimit, session} {
			listener := func(config proto.Message) proto.Message {
				if _, ok := m.(*routerpb.Router); ok {
					return xdsmsg.APIListener("l", managerOf(xdsmsg.Filter("f", config)))
				}
				return xdsmsg.APIListener("l", managerOf(xdsmsg.Filter("f", config), xdsmsg.Filter("router", typed(&routerpb.Router{}, asItIs))))
			}
			decode := func(config proto.Message) *xdsresource.Listener {
				l, err := xdsresource.ListenerType.Decode(xdsmsg.Any(listener(config)), xdsclient.DecodeOptions{})
				if err != nil {
					t.Errorf("%s of %T: %v", form, m, err)
					return new(xdsresource.Listener)
				}
				return l.(*xdsresource.Listener)
			}
			// The filter makes the same of both, as far as that can be seen: edits are
			// functions.
			plain, got := decode(m), decode(typed(m, asItIs))
			_, functions := m.(*headerpb.HeaderMutation)
			if len(got.Filters) != len(plain.Filters) || !functions && !reflect.DeepEqual(got.Filters, plain.Filters) {
				t.Errorf("%s of %T: filters %+v, want %+v", form, m, got.Filters, plain.Filters)
			}
			faults := faultsOf(t, xdsresource.ListenerType, listener(typed(m, misspelt)))
			if len(faults) != 1 || !strings.HasSuffix(faults[0].Path, "http_filters[0].typed_config") || !strings.Contains(faults[0].Problem, "no_such: ") {
				t.Errorf("%s of %T with an unknown field: %v", form, m, faults)
			}
		}
		for _, m := range []proto.Message{aborting, perRoute, someLimit, sessionOff, &rbacpb.RBACPerRoute{}} {
			for _, override := range []proto.Message{typed(m, asItIs), &routepb.FilterConfig{Config: xdsmsg.Any(typed(m, asItIs))}} {
				route := toCluster("c")
				route.TypedPerFilterConfig = map[string]*anypb.Any{"f": xdsmsg.Any(override)}
				if faults := faultsOf(t, xdsresource.RouteConfigurationType, xdsmsg.RouteConfig("r", "*", route)); faults != nil {
					t.Errorf("override, %s of %T: %v", form, m, faults)
				}
			}
		}
	}
}

// CORS policies for browsers (Istio: corsPolicy) and filters that compress or observe do not concern a gRPC client
// and fail no RPC.
func TestInertFiltersDoNothing(t *testing.T) {
	t.Parallel()
	const google, envoy = "type.googleapis.com/", "type.googleapis.com/envoy.extensions.filters.http."
	filters := []*hcmpb.HttpFilter{xdsmsg.Filter("cors", &corspb.Cors{})}
	overrides := map[string]proto.Message{
		"cors": with(new(corspb.CorsPolicy), `allow_methods: "GET,POST" allow_credentials { value: true } max_age: "86400"`),
	}
	for _, typeURL := range []string{
		envoy + "grpc_web.v3.GrpcWeb", envoy + "grpc_http1_bridge.v3.Config", envoy + "connect_grpc_bridge.v3.FilterConfig",
		envoy + "compressor.v3.Compressor", envoy + "decompressor.v3.Decompressor",
		envoy + "grpc_stats.v3.FilterConfig", envoy + "tap.v3.Tap",
		google + "stats.PluginConfig", google + "io.istio.http.peer_metadata.Config",
		google + "istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig",
	} {
		filters = append(filters, &hcmpb.HttpFilter{
			Name: typeURL, ConfigType: &hcmpb.HttpFilter_TypedConfig{TypedConfig: &anypb.Any{TypeUrl: typeURL, Value: []byte{0xff}}},
		})
	}
	filters = append(filters, xdsmsg.Filter("struct", &xdspb.TypedStruct{TypeUrl: google + "stats.PluginConfig"}))
	overrides[envoy+"compressor.v3.Compressor"] = &xdspb.TypedStruct{TypeUrl: envoy + "compressor.v3.CompressorPerRoute"}
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	m.serveFilters(backend, overrides, filters...)
	mustReach(t, m.dial("xds:///"+service), unary, backend)
}

// A configuration for CORS is validated as its type all the same.
func TestInvalidCORSIsRejected(t *testing.T) {
	t.Parallel()
	inOneWay(t, "resources are decoded, and not sent")
	for name, config := range map[string]*anypb.Any{
		"bytes":       {TypeUrl: xdsmsg.Any(&corspb.Cors{}).GetTypeUrl(), Value: []byte{0xff}},
		"an override": xdsmsg.Any(&corspb.CorsPolicy{}),
	} {
		filter := xdsmsg.Filter("cors", &corspb.Cors{})
		filter.GetTypedConfig().TypeUrl, filter.GetTypedConfig().Value = config.GetTypeUrl(), config.GetValue()
		if faults := faultsOf(t, xdsresource.ListenerType, xdsmsg.APIListener("l", managerOf(filter, xdsmsg.Router()))); len(faults) != 1 {
			t.Errorf("%s as the configuration of the filter: %v", name, faults)
		}
	}
}

// gRFC A39, "The Router Filter": "All fields will be ignored."
func TestTheRouterIgnoresItsFields(t *testing.T) {
	t.Parallel()
	inOneWay(t, "resources are decoded, and not sent")
	router := with(new(routerpb.Router),
		`dynamic_stats { value: false } suppress_envoy_headers: true strict_check_headers: "no-such-header"`)
	api := xdsmsg.APIListener("l", managerOf(xdsmsg.Filter("router", router)))
	if faults := faultsOf(t, xdsresource.ListenerType, api); faults != nil {
		t.Error(faults)
	}
	broken := xdsmsg.Router()
	broken.GetTypedConfig().Value = []byte{0xff}
	api = xdsmsg.APIListener("l", managerOf(broken))
	if faults := faultsOf(t, xdsresource.ListenerType, api); len(faults) != 1 || !strings.Contains(fmt.Sprint(faults[0]), "router") {
		t.Errorf("a configuration that cannot be read: %v", faults)
	}
}
