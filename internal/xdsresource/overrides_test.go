package xdsresource

import (
	"fmt"
	"testing"

	udpapb "github.com/cncf/xds/go/udpa/type/v1"
	xdspb "github.com/cncf/xds/go/xds/type/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func override(value string) *anypb.Any {
	return &anypb.Any{TypeUrl: overrideURL, Value: []byte(value)}
}

// configWithOverrides has one entry at one level of a RouteConfiguration.
func configWithOverrides(level, name string, value *anypb.Any) *routepb.RouteConfiguration {
	configs := map[string]*anypb.Any{name: value}
	route := xdsmsg.Route(xdsmsg.Prefix("/"), weightedAction(weighted{"a", 1}))
	config := routeConfig(route)
	switch level {
	case "VirtualHost":
		config.VirtualHosts[0].TypedPerFilterConfig = configs
	case "Route":
		route.TypedPerFilterConfig = configs
	case "ClusterWeight":
		route.GetRoute().GetWeightedClusters().Clusters[0].TypedPerFilterConfig = configs
	}
	return config
}

func overridesAt(rc *RouteConfiguration, level string) FilterOverrides {
	vh := rc.VirtualHosts[0]
	switch level {
	case "VirtualHost":
		return vh.Overrides
	case "Route":
		return vh.Routes[0].Overrides
	default:
		return vh.Routes[0].Action.(*Forward).Clusters[0].Overrides
	}
}

var overrideLevels = map[string]string{
	"VirtualHost":   "virtual_hosts[0]",
	"Route":         "virtual_hosts[0].routes[0]",
	"ClusterWeight": "virtual_hosts[0].routes[0].route.weighted_clusters.clusters[0]",
}

// gRFC A39, "Filter Config Overrides": each sentence of the two lists.
func TestFilterOverrides(t *testing.T) {
	t.Parallel()
	unknown := &anypb.Any{TypeUrl: unknownURL}
	parsed := func(f httpfilter.Filter, c httpfilter.Config) FilterOverrides {
		return FilterOverrides{"f": {Filter: f, Config: c}}
	}
	noFilter := `filter "f": there is no filter for type "` + unknownURL + `"`
	for _, tc := range []struct {
		given string
		value *anypb.Any
		want  FilterOverrides
		// field and fault, or ignored, say what else there is at the entry.
		field, fault, ignored string
	}{
		{given: "a config; whether any chain has the name does not matter", value: override("x"), want: parsed(overridableFilter{}, "x")},
		{given: "in a FilterConfig", value: xdsmsg.Any(&routepb.FilterConfig{Config: override("x")}), want: parsed(overridableFilter{}, "x")},
		{given: "a filter that only servers have", value: &anypb.Any{TypeUrl: serverFilterURL}, want: parsed(serverFilter{}, serverFilterURL)},
		{given: "an xds.type.v3.TypedStruct", value: xdsmsg.Any(&xdspb.TypedStruct{TypeUrl: serverFilterURL}), want: parsed(serverFilter{}, xdsStructTypeURL)},
		{given: "a udpa.type.v1.TypedStruct", value: xdsmsg.Any(&udpapb.TypedStruct{TypeUrl: serverFilterURL}), want: parsed(serverFilter{}, udpaStructTypeURL)},
		{
			given: "a TypedStruct in a FilterConfig",
			value: xdsmsg.Any(&routepb.FilterConfig{Config: xdsmsg.Any(&xdspb.TypedStruct{TypeUrl: serverFilterURL})}),
			want:  parsed(serverFilter{}, xdsStructTypeURL),
		},
		{given: "disabled", value: xdsmsg.Any(&routepb.FilterConfig{Disabled: true, Config: unknown}), want: FilterOverrides{"f": {Disabled: true}}},
		{given: "an unknown type", value: unknown, fault: noFilter + ", and is_optional is not set"},
		{given: "an unknown type in a FilterConfig", value: xdsmsg.Any(&routepb.FilterConfig{Config: unknown}), field: ".config", fault: noFilter + ", and is_optional is not set"},
		{
			given: "an unknown type that is optional", value: xdsmsg.Any(&routepb.FilterConfig{Config: unknown, IsOptional: true}),
			field: ".config", ignored: noFilter + "; is_optional is set",
		},
		{
			given: "a TypedStruct of an unknown type that is optional",
			value: xdsmsg.Any(&routepb.FilterConfig{Config: xdsmsg.Any(&udpapb.TypedStruct{TypeUrl: unknownURL}), IsOptional: true}),
			field: ".config", ignored: noFilter + "; is_optional is set",
		},
		{
			given: "a TypedStruct of an unknown type", value: xdsmsg.Any(&xdspb.TypedStruct{TypeUrl: unknownURL}),
			fault: noFilter + ", and is_optional is not set",
		},
		{
			given: "a FilterConfig without config", value: xdsmsg.Any(&routepb.FilterConfig{}), field: ".config",
			fault: `filter "f": there is no filter for type "", and is_optional is not set`,
		},
		{given: "a FilterConfig with an empty config", value: xdsmsg.Any(&routepb.FilterConfig{Config: &anypb.Any{}}), want: FilterOverrides{"f": {}}},
		{
			given: "a FilterConfig in a FilterConfig", value: xdsmsg.Any(&routepb.FilterConfig{Config: xdsmsg.Any(&routepb.FilterConfig{})}), field: ".config",
			fault: `filter "f": there is no filter for type "` + filterConfigTypeURL + `", and is_optional is not set`,
		},
		{given: "fields at fault", value: override("bad"), fault: `filter "f": overridable: bad configuration`},
		{
			given: "fields at fault, although it is optional", value: xdsmsg.Any(&routepb.FilterConfig{Config: override("bad"), IsOptional: true}),
			field: ".config", fault: `filter "f": overridable: bad configuration`,
		},
		{given: "the top-level type of a filter with another one for overrides", value: &anypb.Any{TypeUrl: overridableURL}, fault: `filter "f": overridable: this is no override`},
		{
			given: "the type of a filter that takes no override", value: &anypb.Any{TypeUrl: plainFilterURL},
			fault: `filter "f": the filter for type "` + plainFilterURL + `" takes no override configuration`,
		},
	} {
		for level, at := range overrideLevels {
			xdstest.Parallel(t, level+"/"+tc.given, func(t *testing.T) {
				config := configWithOverrides(level, "f", tc.value)
				at += `.typed_per_filter_config["f"]` + tc.field
				if tc.fault != "" {
					checkFaults(t, RouteConfigurationType, config, []fault{{at, tc.fault}})
					return
				}
				rc := mustDecodeRoutes(t, config)
				if tc.ignored != "" {
					checkIgnored(t, rc.Ignored, note{at, tc.ignored})
				}
				if got := overridesAt(rc, level); len(got) != len(tc.want) || len(got) == 1 && got["f"] != tc.want["f"] {
					t.Errorf("overrides = %v, want %v", got, tc.want)
				}
			})
		}
	}
}

// gRFC A39, "Filter Config Overrides": gRPC "will validate the contents of each
// typed_per_filter_config map", so also those of clusters that get no RPC.
func TestOverridesOfClustersOfWeight0(t *testing.T) {
	t.Parallel()
	of := func(value *anypb.Any) *routepb.RouteConfiguration {
		route := xdsmsg.Route(xdsmsg.Prefix("/"), weightedAction(weighted{"a", 1}, weighted{"idle", 0}))
		route.GetRoute().GetWeightedClusters().Clusters[1].TypedPerFilterConfig = map[string]*anypb.Any{"f": value}
		return routeConfig(route)
	}
	at := `virtual_hosts[0].routes[0].route.weighted_clusters.clusters[1].typed_per_filter_config["f"]`
	checkFaults(t, RouteConfigurationType, of(override("bad")), []fault{{at, `filter "f": overridable: bad configuration`}})
	checkFaults(t, RouteConfigurationType, of(&anypb.Any{TypeUrl: unknownURL}), []fault{
		{at, `filter "f": there is no filter for type "` + unknownURL + `", and is_optional is not set`},
	})
	rc := mustDecodeRoutes(t, of(override("good")))
	if got := rc.VirtualHosts[0].Routes[0].Action.(*Forward).Clusters; len(got) != 1 || got[0].Name != "a" {
		t.Errorf("clusters %+v, want a alone", got)
	}
}

func TestFaultsOfOverridesComeInOrder(t *testing.T) {
	t.Parallel()
	config := routeConfig()
	config.VirtualHosts[0].TypedPerFilterConfig = map[string]*anypb.Any{
		"c": override("bad"), "a": override("bad"), "b": override("good"), "d": {TypeUrl: filterConfigTypeURL, Value: []byte{0xff}},
	}
	faults := decodeFaults(t, RouteConfigurationType, config)
	var paths []string
	for _, f := range faults {
		paths = append(paths, f.Path)
	}
	const at = "virtual_hosts[0].typed_per_filter_config"
	xdstest.Equal(t, "paths", []string{at + `["a"]`, at + `["c"]`, at + `["d"]`}, paths)
}

// HttpFilter.disabled; Envoy's documentation has it that terminal filters cannot
// be disabled.
func TestHTTPFilterThatIsDisabled(t *testing.T) {
	t.Parallel()
	off, router := plain("off"), xdsmsg.Router()
	off.Disabled, router.Disabled = true, true
	hcm := validManager()
	hcm.HttpFilters = []*hcmpb.HttpFilter{plain("on"), off, router}
	l := mustDecode[Listener](t, ListenerType, apiListener(hcm))
	for i, want := range []bool{false, true, false} {
		xdstest.Equal(t, fmt.Sprintf("filter %q: Disabled", l.Filters[i].Name),
			want, l.Filters[i].Disabled)
	}
	checkIgnored(t, l.Ignored, note{hcmPath + ".http_filters[2].disabled", `filter "router": a terminal filter cannot be disabled`})
}

// gRFC A39, "Top-Level Filter Configs": a type that is only for overrides, and
// filters that the other side has.
func TestHTTPFilterOfTheWrongKind(t *testing.T) {
	t.Parallel()
	hcm := validManager()
	hcm.HttpFilters = append([]*hcmpb.HttpFilter{
		httpFilter("override", override("x")),
		httpFilter("server", &anypb.Any{TypeUrl: serverFilterURL}),
		optional(httpFilter("optional", &anypb.Any{TypeUrl: serverFilterURL})),
	}, hcm.HttpFilters...)
	checkFaults(t, ListenerType, apiListener(hcm), []fault{
		{hcmPath + ".http_filters[0].typed_config", `filter "override": overridable: this is an override`},
		{hcmPath + ".http_filters[1].typed_config", `filter "server": this client has no filter for type "` + serverFilterURL + `", and is_optional is not set`},
	})
	hcm.HttpFilters = hcm.HttpFilters[2:]
	l := mustDecode[Listener](t, ListenerType, apiListener(hcm))
	checkIgnored(t, l.Ignored, note{
		hcmPath + ".http_filters[0]", `filter "optional": this client has no filter for type "` + serverFilterURL + `"; is_optional is set`,
	})
	xdstest.Equal(t, "filters (the router alone)", 1, len(l.Filters))
}
