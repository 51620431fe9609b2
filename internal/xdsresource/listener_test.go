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
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
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

func validManager() *hcmpb.HttpConnectionManager {
	return &hcmpb.HttpConnectionManager{
		RouteSpecifier: &hcmpb.HttpConnectionManager_Rds{Rds: &hcmpb.Rds{ConfigSource: xdsmsg.ADS(), RouteConfigName: "routes"}},
		HttpFilters:    []*hcmpb.HttpFilter{xdsmsg.Router()},
	}
}

// managedBy is a Listener whose manager is valid, with more fields set.
func managedBy(t testing.TB, fields string) *listenerpb.Listener {
	t.Helper()
	return apiListener(withText(t, validManager(), fields))
}

func apiListener(hcm proto.Message) *listenerpb.Listener {
	return &listenerpb.Listener{
		Name:        "echo.example.com",
		ApiListener: &listenerpb.ApiListener{ApiListener: xdsmsg.Any(hcm)},
	}
}

func TestListenerByRDS(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"ads", "self"} {
		xdstest.Parallel(t, source, func(t *testing.T) {
			l := mustDecode[Listener](t, ListenerType, managedBy(t,
				`rds{config_source{`+source+`{}}} common_http_protocol_options{max_stream_duration{seconds:3}}`))
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
	l := mustDecode[Listener](t, ListenerType, managedBy(t,
		`route_config{virtual_hosts{domains:"*" routes{match{prefix:"/"} route{cluster:"blue"}}}}`))
	if l.RouteConfigName != "" || l.RouteConfig == nil {
		t.Fatalf("RouteConfigName, RouteConfig = %q, %v, want inline routes (which need no name)", l.RouteConfigName, l.RouteConfig)
	}
	if got := l.RouteConfig.VirtualHost("any").Route(matching.RPC{Method: "/s/m"}); got == nil {
		t.Error("no route for /s/m")
	}
}

func TestListenerFaults(t *testing.T) {
	t.Parallel()
	const wantManager = `, want "` + httpConnectionManagerTypeURL + `"`
	checkTextFaults(t, ListenerType, hcmPath, managedBy, []textCase{
		{"trusted hops (gRFC A41)", `xff_num_trusted_hops:2`, "@.xff_num_trusted_hops: must be 0, is 2"},
		{"original IP detection (gRFC A41)", `original_ip_detection_extensions{}`,
			"@.original_ip_detection_extensions: must be empty, has 1 entries"},
		{"scoped routes", `scoped_routes{}`, "@: route_specifier must be rds or route_config, is scoped_routes"},
		{"a fault in inline routes", `route_config{virtual_hosts{}}`,
			"@.route_config.virtual_hosts[0].domains: must have at least one domain"},
		{"a filter override at fault in inline routes (gRFC A39: the RouteConfiguration of an LDS response is validated alike)",
			`route_config{virtual_hosts{domains:"*" routes{match{prefix:"/"} route{cluster:"a"}
				typed_per_filter_config{key:"f" value{` + unknownMessage + `}}}}}`,
			`@.route_config.virtual_hosts[0].routes[0].typed_per_filter_config["f"]: ` +
				`filter "f": there is no filter for type "` + unknownURL + `", and is_optional is not set`},
		{"a negative max_stream_duration", `common_http_protocol_options{max_stream_duration{seconds:-1}}`,
			"@.common_http_protocol_options.max_stream_duration: is negative: -1s"},
	})
	routed := func(t testing.TB, fields string) *listenerpb.Listener {
		return apiListener(withText(t, &hcmpb.HttpConnectionManager{HttpFilters: []*hcmpb.HttpFilter{xdsmsg.Router()}}, fields))
	}
	checkTextFaults(t, ListenerType, hcmPath, routed, []textCase{
		{"no route specifier", ``, "@: route_specifier must be rds or route_config, is not set"},
		{"RDS from a file, without a name", `rds{config_source{path:"/etc/x"}}`,
			"@.rds.config_source: must be ads or self, is path; @.rds.route_config_name: must not be empty"},
		{"RDS from nowhere", `rds{route_config_name:"r"}`, "@.rds.config_source: must be ads or self, is not set"},
	})
	whole := func(t testing.TB, fields string) *listenerpb.Listener {
		return withText(t, &listenerpb.Listener{}, fields)
	}
	checkTextFaults(t, ListenerType, hcmPath, whole, []textCase{
		{"a listener for servers", `name:"l" filter_chains{}`, "api_listener: " + forServers},
		{"an empty api_listener", `name:"l" api_listener{}`, `@: has type ""` + wantManager},
		{"an API listener of another type", `name:"l" api_listener{api_listener{[Router]{}}}`,
			`@: has type "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"` + wantManager},
		{"faults all over", `api_listener{api_listener{[HttpConnectionManager]{xff_num_trusted_hops:1}}}`,
			"name: must not be empty; @.xff_num_trusted_hops: must be 0, is 1; " +
				"@: route_specifier must be rds or route_config, is not set; @.http_filters: must have at least one filter"},
	})
}

const forServers = "must be set: a client needs an API listener; a Listener with an address and filter_chains is for servers"

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
		{"api_listener", forServers},
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

// A disabled filter of an unknown type is left out, but not for routes that enable it.
func TestDisabledFilterOfAnUnknownType(t *testing.T) {
	t.Parallel()
	hcm := validManager()
	hcm.HttpFilters = append([]*hcmpb.HttpFilter{plain("a"), disabled(httpFilter("auth", &anypb.Any{TypeUrl: unknownURL}))}, hcm.HttpFilters...)
	l := mustDecode[Listener](t, ListenerType, apiListener(hcm))
	in := l.Filters[0]
	if len(l.Filters) != 3 || in.Name != "auth" || !in.Disabled {
		t.Fatalf("filters = %v, want one named auth that is disabled first", l.Filters)
	}
	if level, _, _ := OverrideOf(&in, []FilterOverrides{{"auth": {}}}); level != 0 {
		t.Errorf("the route does not enable the filter")
	}
	_, err := in.Filter.(httpfilter.ClientFilter).NewClientInstance(httpfilter.ClientInstanceInfo{}).ClientInterceptor(nil, nil)
	if want := `the route enables it, and this client has no filter for type "` + unknownURL + `"`; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %q", err, want)
	}
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
