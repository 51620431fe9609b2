package xdsresource

import (
	"errors"
	"strings"
	"testing"
	"time"

	udpapb "github.com/cncf/xds/go/udpa/type/v1"
	xdspb "github.com/cncf/xds/go/xds/type/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/httpfilter"
	_ "github.com/dynxds/dynxds/httpfilter/router"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

const (
	plainFilterURL  = "type.googleapis.com/dynxds.test.Plain"
	serverFilterURL = "type.googleapis.com/dynxds.test.Server"
	overridableURL  = "type.googleapis.com/dynxds.test.Overridable"
	overrideURL     = "type.googleapis.com/dynxds.test.Override"
	unknownURL      = "type.googleapis.com/dynxds.test.Unknown"
	hcmPath         = "api_listener.api_listener"
)

func init() {
	httpfilter.Register(plainFilter{})
	httpfilter.Register(serverFilter{})
	httpfilter.Register(overridableFilter{})
}

// plainFilter is a filter for clients that is not terminal and takes no
// override. Its configuration is the type URL that it was configured with.
type plainFilter struct{}

func (plainFilter) NewClientInstance(httpfilter.ClientInstanceInfo) httpfilter.ClientInstance {
	return nil
}

// serverFilter is a filter for servers alone.
type serverFilter struct{}

func (serverFilter) TypeURLs() []string { return []string{serverFilterURL} }
func (serverFilter) IsTerminal() bool   { return false }
func (serverFilter) RunsOnServers()     {}
func (serverFilter) ParseConfig(config *anypb.Any) (httpfilter.Config, error) {
	return config.GetTypeUrl(), nil
}
func (serverFilter) ParseOverride(config *anypb.Any) (httpfilter.Config, error) {
	return config.GetTypeUrl(), nil
}

// overridableFilter has a type of its own for overrides. A configuration is
// the bytes it was parsed from.
type overridableFilter struct{ plainFilter }

func (overridableFilter) TypeURLs() []string { return []string{overridableURL, overrideURL} }
func (overridableFilter) ParseConfig(config *anypb.Any) (httpfilter.Config, error) {
	if config.GetTypeUrl() == overrideURL {
		return nil, errors.New("overridable: this is an override")
	}
	return string(config.GetValue()), nil
}
func (overridableFilter) ParseOverride(config *anypb.Any) (httpfilter.Config, error) {
	switch {
	case config.GetTypeUrl() == overridableURL:
		return nil, errors.New("overridable: this is no override")
	case string(config.GetValue()) == "bad":
		return nil, errors.New("overridable: bad configuration")
	default:
		return string(config.GetValue()), nil
	}
}

func (plainFilter) TypeURLs() []string { return []string{plainFilterURL} }
func (plainFilter) IsTerminal() bool   { return false }
func (plainFilter) ParseConfig(config *anypb.Any) (httpfilter.Config, error) {
	if string(config.GetValue()) == "bad" {
		return nil, errors.New("plain: bad configuration")
	}
	return config.GetTypeUrl(), nil
}

func httpFilter(name string, config *anypb.Any) *hcmpb.HttpFilter {
	return &hcmpb.HttpFilter{Name: name, ConfigType: &hcmpb.HttpFilter_TypedConfig{TypedConfig: config}}
}

func plain(name string) *hcmpb.HttpFilter {
	return httpFilter(name, &anypb.Any{TypeUrl: plainFilterURL})
}

func optional(f *hcmpb.HttpFilter) *hcmpb.HttpFilter {
	f.IsOptional = true
	return f
}

func disabled(f *hcmpb.HttpFilter) *hcmpb.HttpFilter {
	f.Disabled = true
	return f
}

func rds(source *corepb.ConfigSource, name string) *hcmpb.HttpConnectionManager_Rds {
	return &hcmpb.HttpConnectionManager_Rds{Rds: &hcmpb.Rds{ConfigSource: source, RouteConfigName: name}}
}

func validManager() *hcmpb.HttpConnectionManager {
	return &hcmpb.HttpConnectionManager{
		RouteSpecifier: rds(xdsmsg.ADS(), "routes"),
		HttpFilters:    []*hcmpb.HttpFilter{xdsmsg.Router()},
	}
}

func apiListener(hcm proto.Message) *listenerpb.Listener {
	return &listenerpb.Listener{
		Name:        "echo.example.com",
		ApiListener: &listenerpb.ApiListener{ApiListener: xdsmsg.Any(hcm)},
	}
}

func TestListenerByRDS(t *testing.T) {
	t.Parallel()
	for what, source := range map[string]*corepb.ConfigSource{"ads": xdsmsg.ADS(), "self": self()} {
		xdstest.Parallel(t, what, func(t *testing.T) {
			hcm := validManager()
			hcm.RouteSpecifier = rds(source, "routes")
			hcm.CommonHttpProtocolOptions = &corepb.HttpProtocolOptions{MaxStreamDuration: durationpb.New(3 * time.Second)}
			l := mustDecode[Listener](t, ListenerType, apiListener(hcm))
			if l.Name != "echo.example.com" || l.RouteConfigName != "routes" || l.RouteConfig != nil {
				t.Errorf("Name, RouteConfigName, RouteConfig = %q, %q, %v", l.Name, l.RouteConfigName, l.RouteConfig)
			}
			xdstest.Equal(t, "MaxStreamDuration", 3*time.Second, l.MaxStreamDuration)
			if len(l.Filters) != 1 || l.Filters[0].Name != "router" || !l.Filters[0].Filter.IsTerminal() {
				t.Errorf("Filters = %v, want the router", l.Filters)
			}
		})
	}
}

func TestListenerWithInlineRoutes(t *testing.T) {
	t.Parallel()
	hcm := validManager()
	hcm.RouteSpecifier = &hcmpb.HttpConnectionManager_RouteConfig{RouteConfig: &routepb.RouteConfiguration{
		VirtualHosts: []*routepb.VirtualHost{{Domains: []string{"*"}, Routes: []*routepb.Route{xdsmsg.PrefixRoute("/", "blue")}}},
	}}
	l := mustDecode[Listener](t, ListenerType, apiListener(hcm))
	if l.RouteConfigName != "" || l.RouteConfig == nil {
		t.Fatalf("RouteConfigName, RouteConfig = %q, %v, want inline routes (which need no name)", l.RouteConfigName, l.RouteConfig)
	}
	if got := l.RouteConfig.VirtualHost("any").Route(matching.RPC{Method: "/s/m"}); got == nil {
		t.Error("no route for /s/m")
	}
}

func TestListenerFaults(t *testing.T) {
	t.Parallel()
	manager := func(edit func(*hcmpb.HttpConnectionManager)) *listenerpb.Listener {
		hcm := validManager()
		edit(hcm)
		return apiListener(hcm)
	}
	checkAllFaults(t, ListenerType, []faultTest{
		{
			"a listener for servers",
			&listenerpb.Listener{Name: "l", FilterChains: []*listenerpb.FilterChain{{}}},
			[]fault{{"api_listener", "must be set: a client needs an API listener; a Listener with an address and filter_chains is for servers"}},
		}, {
			"an empty api_listener",
			&listenerpb.Listener{Name: "l", ApiListener: &listenerpb.ApiListener{}},
			[]fault{{hcmPath, `has type "", want "` + httpConnectionManagerTypeURL + `"`}},
		}, {
			"an API listener of another type",
			apiListener(&routerpb.Router{}),
			[]fault{{hcmPath, `has type "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router", want "` + httpConnectionManagerTypeURL + `"`}},
		}, {
			"trusted hops (gRFC A41)",
			manager(func(m *hcmpb.HttpConnectionManager) { m.XffNumTrustedHops = 2 }),
			[]fault{{hcmPath + ".xff_num_trusted_hops", "must be 0, is 2"}},
		}, {
			"original IP detection (gRFC A41)",
			manager(func(m *hcmpb.HttpConnectionManager) {
				m.OriginalIpDetectionExtensions = []*corepb.TypedExtensionConfig{{}}
			}),
			[]fault{{hcmPath + ".original_ip_detection_extensions", "must be empty, has 1 entries"}},
		}, {
			"no route specifier",
			manager(func(m *hcmpb.HttpConnectionManager) { m.RouteSpecifier = nil }),
			[]fault{{hcmPath, "route_specifier must be rds or route_config, is not set"}},
		}, {
			"scoped routes",
			manager(func(m *hcmpb.HttpConnectionManager) {
				m.RouteSpecifier = &hcmpb.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &hcmpb.ScopedRoutes{}}
			}),
			[]fault{{hcmPath, "route_specifier must be rds or route_config, is scoped_routes"}},
		}, {
			"RDS from a file, without a name",
			manager(func(m *hcmpb.HttpConnectionManager) { m.RouteSpecifier = rds(filePath(), "") }),
			[]fault{
				{hcmPath + ".rds.config_source", "must be ads or self, is path"},
				{hcmPath + ".rds.route_config_name", "must not be empty"},
			},
		}, {
			"RDS from nowhere",
			manager(func(m *hcmpb.HttpConnectionManager) { m.RouteSpecifier = rds(nil, "r") }),
			[]fault{{hcmPath + ".rds.config_source", "must be ads or self, is not set"}},
		}, {
			"a fault in inline routes",
			manager(func(m *hcmpb.HttpConnectionManager) {
				m.RouteSpecifier = &hcmpb.HttpConnectionManager_RouteConfig{RouteConfig: &routepb.RouteConfiguration{VirtualHosts: []*routepb.VirtualHost{{}}}}
			}),
			[]fault{{hcmPath + ".route_config.virtual_hosts[0].domains", "must have at least one domain"}},
		}, {
			"a filter override at fault in inline routes (gRFC A39: the RouteConfiguration of an LDS response is validated alike)",
			manager(func(m *hcmpb.HttpConnectionManager) {
				routes := configWithOverrides("Route", "f", &anypb.Any{TypeUrl: unknownURL})
				m.RouteSpecifier = &hcmpb.HttpConnectionManager_RouteConfig{RouteConfig: routes}
			}),
			[]fault{{
				hcmPath + `.route_config.virtual_hosts[0].routes[0].typed_per_filter_config["f"]`,
				`filter "f": there is no filter for type "` + unknownURL + `", and is_optional is not set`,
			}},
		}, {
			"a negative max_stream_duration",
			manager(func(m *hcmpb.HttpConnectionManager) {
				m.CommonHttpProtocolOptions = &corepb.HttpProtocolOptions{MaxStreamDuration: durationpb.New(-time.Second)}
			}),
			[]fault{{hcmPath + ".common_http_protocol_options.max_stream_duration", "is negative: -1s"}},
		}, {
			"faults all over",
			&listenerpb.Listener{ApiListener: &listenerpb.ApiListener{ApiListener: xdsmsg.Any(&hcmpb.HttpConnectionManager{XffNumTrustedHops: 1})}},
			[]fault{
				{"name", "must not be empty"},
				{hcmPath + ".xff_num_trusted_hops", "must be 0, is 1"},
				{hcmPath, "route_specifier must be rds or route_config, is not set"},
				{hcmPath + ".http_filters", "must have at least one filter"},
			},
		},
	})
}

// gRFC A39, "Top-Level Filter Configs": in a TCP Listener, the filters that
// the registry has for servers count.
func TestHTTPFiltersOfAListenerForServers(t *testing.T) {
	t.Parallel()
	chain := func(filters ...*hcmpb.HttpFilter) *listenerpb.FilterChain {
		return &listenerpb.FilterChain{Filters: []*listenerpb.Filter{
			{ConfigType: &listenerpb.Filter_TypedConfig{TypedConfig: &anypb.Any{TypeUrl: unknownURL}}},
			{ConfigType: &listenerpb.Filter_TypedConfig{TypedConfig: xdsmsg.Any(&hcmpb.HttpConnectionManager{HttpFilters: filters})}},
		}}
	}
	server := httpFilter("server", &anypb.Any{TypeUrl: serverFilterURL})
	checkFaults(t, ListenerType, &listenerpb.Listener{
		Name:               "l",
		FilterChains:       []*listenerpb.FilterChain{chain(server, xdsmsg.Router()), chain(plain("plain"), xdsmsg.Router())},
		DefaultFilterChain: chain(server),
	}, []fault{
		{"api_listener", "must be set: a client needs an API listener; a Listener with an address and filter_chains is for servers"},
		{"filter_chains[1].filters[1].typed_config.http_filters[0].typed_config", `filter "plain": this server has no filter for type "` + plainFilterURL + `", and is_optional is not set`},
		{"default_filter_chain.filters[1].typed_config.http_filters[0]", `filter "server" is not terminal; the last filter must be a terminal one, such as the router`},
	})
}

func TestListenerWithUnreadableManager(t *testing.T) {
	t.Parallel()
	faults := decodeFaults(t, ListenerType, &listenerpb.Listener{
		Name:        "l",
		ApiListener: &listenerpb.ApiListener{ApiListener: &anypb.Any{TypeUrl: httpConnectionManagerTypeURL, Value: []byte{0xff}}},
	})
	want := "cannot be read as envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager: "
	if len(faults) != 1 || faults[0].Path != hcmPath || !strings.HasPrefix(faults[0].Problem, want) {
		t.Errorf("faults = %v, want one at %s that starts with %q", faults, hcmPath, want)
	}
}

// gRFC A39, "Top-Level Filter Configs": each sentence of the list of rules.
func TestHTTPFilterFaults(t *testing.T) {
	t.Parallel()
	config := func(i string) string { return hcmPath + ".http_filters[" + i + "].typed_config" }
	noFilter := `: this client has no filter for type "` + unknownURL + `", and is_optional is not set`
	unknown := func(name string) *hcmpb.HttpFilter { return httpFilter(name, &anypb.Any{TypeUrl: unknownURL}) }
	router := xdsmsg.Router()
	checkEach(t, "faults", func(t *testing.T, filters []*hcmpb.HttpFilter) []fault {
		hcm := validManager()
		hcm.HttpFilters = filters
		return decodeFaults(t, ListenerType, apiListener(hcm))
	}, rows[[]*hcmpb.HttpFilter, []fault]{
		{"no filter", nil, []fault{{hcmPath + ".http_filters", "must have at least one filter"}}},
		{
			"two filters of one name",
			[]*hcmpb.HttpFilter{plain("a"), plain("b"), plain("a"), router},
			[]fault{{hcmPath + ".http_filters[2].name", `"a" is already the name of http_filters[0]`}},
		},
		{"a filter without a name", []*hcmpb.HttpFilter{plain(""), router}, []fault{{hcmPath + ".http_filters[0].name", "must not be empty"}}},
		{"an unknown type", []*hcmpb.HttpFilter{unknown("a"), router}, []fault{{config("0"), `filter "a"` + noFilter}}},
		{"an unknown type that is optional", []*hcmpb.HttpFilter{optional(unknown("a")), router}, nil},
		{"an unknown type that is disabled", []*hcmpb.HttpFilter{disabled(unknown("a")), router, disabled(unknown("b"))}, nil},
		{"an unknown type that is optional behind the router", []*hcmpb.HttpFilter{router, optional(unknown("a"))}, nil},
		{
			"only unknown types that are optional",
			[]*hcmpb.HttpFilter{optional(unknown("a"))},
			[]fault{{hcmPath + ".http_filters", "has only optional and disabled filters that this client does not know; the last filter must be a terminal one, such as the router"}},
		},
		{
			"a configuration that the filter rejects",
			[]*hcmpb.HttpFilter{httpFilter("a", &anypb.Any{TypeUrl: plainFilterURL, Value: []byte("bad")}), router},
			[]fault{{config("0"), `filter "a": plain: bad configuration`}},
		},
		{
			"a configuration that the filter rejects, although it is optional",
			[]*hcmpb.HttpFilter{optional(httpFilter("a", &anypb.Any{TypeUrl: plainFilterURL, Value: []byte("bad")})), router},
			[]fault{{config("0"), `filter "a": plain: bad configuration`}},
		},
		{
			"a terminal filter that is not the last",
			[]*hcmpb.HttpFilter{router, plain("a"), httpFilter("router2", router.GetTypedConfig())},
			[]fault{{hcmPath + ".http_filters[0]", `filter "router" is terminal and must be the last of the chain`}},
		},
		{
			"a last filter that is not terminal",
			[]*hcmpb.HttpFilter{plain("a"), plain("b")},
			[]fault{{hcmPath + ".http_filters[1]", `filter "b" is not terminal; the last filter must be a terminal one, such as the router`}},
		},
		{
			"an unknown type behind the router",
			[]*hcmpb.HttpFilter{router, unknown("a")},
			[]fault{
				{hcmPath + ".http_filters[0]", `filter "router" is terminal and must be the last of the chain`},
				{config("1"), `filter "a"` + noFilter},
			},
		},
		{
			"no typed_config",
			[]*hcmpb.HttpFilter{
				{Name: "a"},
				{Name: "b", ConfigType: &hcmpb.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corepb.ExtensionConfigSource{}}},
				{Name: "c", IsOptional: true},
				router,
			},
			[]fault{
				{hcmPath + ".http_filters[0]", `filter "a": config_type must be typed_config, is not set`},
				{hcmPath + ".http_filters[1]", `filter "b": config_type must be typed_config, is config_discovery`},
			},
		},
		{
			"TypedStructs of an unknown type",
			[]*hcmpb.HttpFilter{
				httpFilter("a", xdsmsg.Any(&xdspb.TypedStruct{TypeUrl: unknownURL})),
				httpFilter("b", xdsmsg.Any(&udpapb.TypedStruct{TypeUrl: unknownURL})),
				optional(httpFilter("c", xdsmsg.Any(&xdspb.TypedStruct{TypeUrl: unknownURL}))),
				router,
			},
			[]fault{{config("0"), `filter "a"` + noFilter}, {config("1"), `filter "b"` + noFilter}},
		},
		{
			"several faults",
			[]*hcmpb.HttpFilter{unknown(""), router, plain("router")},
			[]fault{
				{hcmPath + ".http_filters[0].name", "must not be empty"},
				{config("0"), `filter ""` + noFilter},
				{hcmPath + ".http_filters[2].name", `"router" is already the name of http_filters[1]`},
				{hcmPath + ".http_filters[1]", `filter "router" is terminal and must be the last of the chain`},
				{hcmPath + ".http_filters[2]", `filter "router" is not terminal; the last filter must be a terminal one, such as the router`},
			},
		},
	})
}

func TestHTTPFilterOfATypedStruct(t *testing.T) {
	t.Parallel()
	fields := &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewBoolValue(true)}}
	hcm := validManager()
	hcm.HttpFilters = []*hcmpb.HttpFilter{
		httpFilter("new", xdsmsg.Any(&xdspb.TypedStruct{TypeUrl: plainFilterURL, Value: fields})),
		httpFilter("old", xdsmsg.Any(&udpapb.TypedStruct{TypeUrl: plainFilterURL, Value: fields})),
		xdsmsg.Router(),
	}
	l := mustDecode[Listener](t, ListenerType, apiListener(hcm))
	if len(l.Filters) != 3 {
		t.Fatalf("%d filters, want 3", len(l.Filters))
	}
	for i, want := range []string{xdsStructTypeURL, udpaStructTypeURL} {
		if l.Filters[i].Filter != (plainFilter{}) || l.Filters[i].Config != want {
			t.Errorf("filter %d was given %v, want the whole %s", i, l.Filters[i].Config, want)
		}
	}
}

func TestHTTPFilterOfAMalformedTypedStruct(t *testing.T) {
	t.Parallel()
	for _, url := range []string{xdsStructTypeURL, udpaStructTypeURL} {
		hcm := validManager()
		hcm.HttpFilters = []*hcmpb.HttpFilter{
			optional(httpFilter("a", &anypb.Any{TypeUrl: url, Value: []byte{0xff}})),
			xdsmsg.Router(),
		}
		faults := decodeFaults(t, ListenerType, apiListener(hcm))
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Problem, `filter "a": cannot be read as `) {
			t.Errorf("faults = %v, want one: it cannot be read as a TypedStruct", faults)
		}
	}
}
