//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"fmt"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

const (
	appendOrAdd    = corepb.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
	addIfAbsent    = corepb.HeaderValueOption_ADD_IF_ABSENT
	overwriteOrAdd = corepb.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
	overwrite      = corepb.HeaderValueOption_OVERWRITE_IF_EXISTS
)

func option(key, value string, action corepb.HeaderValueOption_HeaderAppendAction) *corepb.HeaderValueOption {
	return &corepb.HeaderValueOption{Header: &corepb.HeaderValue{Key: key, Value: value}, AppendAction: action}
}

func keepingEmpty(o *corepb.HeaderValueOption) *corepb.HeaderValueOption {
	o.KeepEmptyValue = true
	return o
}

type options = []*corepb.HeaderValueOption

// HeaderValueOption.append_action, and what Envoy makes of several edits of
// one header.
func TestHeaderEdits(t *testing.T) {
	t.Parallel()
	raw := &corepb.HeaderValueOption{Header: &corepb.HeaderValue{Key: "h", RawValue: []byte("raw")}}
	appended := option("h", "v", appendOrAdd)
	appended.Append = wrapperspb.Bool(true)
	replaced := option("h", "v", appendOrAdd)
	replaced.Append = wrapperspb.Bool(false)
	type values = []string
	for _, tc := range []struct {
		given  string
		remove []string
		add    options
		// ifAbsent and ifPresent are h after the edits if it was not there, or
		// was "x", "y".
		ifAbsent, ifPresent values
	}{
		{"nothing", nil, nil, nil, values{"x", "y"}},
		{"append", nil, options{option("h", "v", appendOrAdd)}, values{"v"}, values{"x", "y", "v"}},
		{"add if absent", nil, options{option("h", "v", addIfAbsent)}, values{"v"}, values{"x", "y"}},
		{"overwrite or add", nil, options{option("h", "v", overwriteOrAdd)}, values{"v"}, values{"v"}},
		{"overwrite", nil, options{option("h", "v", overwrite)}, nil, values{"v"}},
		{"remove", []string{"h"}, nil, nil, nil},
		{"names in upper case", []string{"H"}, options{option("H", "v", appendOrAdd)}, values{"v"}, values{"v"}},
		{"deprecated append: true", nil, options{appended}, values{"v"}, values{"x", "y", "v"}},
		{"deprecated append: false", nil, options{replaced}, values{"v"}, values{"v"}},
		{"raw_value", nil, options{raw}, values{"raw"}, values{"x", "y", "raw"}},
		{"an empty value is dropped", nil, options{option("h", "", overwriteOrAdd)}, nil, values{"x", "y"}},
		{"an empty value is kept", nil, options{keepingEmpty(option("h", "", overwriteOrAdd))}, values{""}, values{""}},
		{"a percent sign", nil, options{option("h", "100%% a%%b", overwriteOrAdd)}, values{"100% a%b"}, values{"100% a%b"}},
		{"removed first", []string{"h"}, options{option("h", "v", appendOrAdd)}, values{"v"}, values{"v"}},
		{"removed, then not there to overwrite", []string{"h"}, options{option("h", "v", overwrite)}, nil, nil},
		{"removed, then absent", []string{"h"}, options{option("h", "v", addIfAbsent)}, values{"v"}, values{"v"}},
		{"appended twice", nil, options{option("h", "1", appendOrAdd), option("h", "2", appendOrAdd)}, values{"1", "2"}, values{"x", "y", "1", "2"}},
		{"overwritten twice", nil, options{option("h", "1", overwriteOrAdd), option("h", "2", overwriteOrAdd)}, values{"2"}, values{"2"}},
		{"overwritten before it is appended", nil, options{option("h", "1", appendOrAdd), option("h", "2", overwriteOrAdd)}, values{"2", "1"}, values{"2", "1"}},
		{"absent is asked once", nil, options{option("h", "1", appendOrAdd), option("h", "2", addIfAbsent)}, values{"1", "2"}, values{"x", "y", "1"}},
		{"present is asked once", nil, options{option("h", "1", overwriteOrAdd), option("h", "2", overwrite)}, values{"1"}, values{"2"}},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			route := xdsmsg.PrefixRoute("/", "a")
			route.RequestHeadersToAdd, route.RequestHeadersToRemove = tc.add, tc.remove
			route.ResponseHeadersToAdd, route.ResponseHeadersToRemove = tc.add, tc.remove
			rc := mustDecode[RouteConfiguration](t, RouteConfigurationType, routeConfig(route))
			checkIgnored(t, rc.Ignored)
			m := rc.VirtualHosts[0].Routes[0].HeadersFor(nil)
			if m == nil {
				m = &HeaderMutations{}
			}
			for _, edits := range []HeaderEdits{m.Request, m.Response} {
				for _, there := range []bool{false, true} {
					md, want := metadata.MD{"other": {"o"}}, metadata.MD{"other": {"o"}}
					after := tc.ifAbsent
					if there {
						md["h"], after = []string{"x", "y"}, tc.ifPresent
					}
					if after != nil {
						want["h"] = after
					}
					edits.Apply(md)
					xdstest.Equal(t, fmt.Sprintf("header there: %v; metadata", there), want, md)
				}
			}
		})
	}
}

func TestHeaderEditsDoNotShareValues(t *testing.T) {
	t.Parallel()
	route := xdsmsg.PrefixRoute("/", "a")
	route.RequestHeadersToAdd = options{option("h", "v", appendOrAdd)}
	edits := decodeRoutes(t, route).Routes[0].Headers.Request
	first, second := metadata.MD{}, metadata.MD{}
	edits.Apply(first)
	first["h"][0] = "changed"
	edits.Apply(second)
	if second["h"][0] != "v" {
		t.Error("whoever got a value has changed it for all")
	}
}

// Envoy, "Custom request/response headers": weighted cluster, route, virtual
// host, RouteConfiguration; the other way round if
// most_specific_header_mutations_wins is set.
func TestOrderOfHeaderLevels(t *testing.T) {
	t.Parallel()
	edit := func(value string) options { return options{option("h", value, appendOrAdd)} }
	for wins, want := range map[bool][2][]string{
		false: {{"weight", "route", "host", "config"}, {"route", "host", "config"}},
		true:  {{"config", "host", "route", "weight"}, {"config", "host", "route"}},
	} {
		action := weightedAction(weighted{"a", 1}, weighted{"b", 1})
		weights := action.GetWeightedClusters().GetClusters()
		weights[0].RequestHeadersToAdd, weights[0].ResponseHeadersToAdd = edit("weight"), edit("weight")
		route := xdsmsg.Route(xdsmsg.Prefix("/"), action)
		route.RequestHeadersToAdd, route.ResponseHeadersToAdd = edit("route"), edit("route")
		config := routeConfig(route, xdsmsg.PrefixRoute("/", "plain"))
		config.MostSpecificHeaderMutationsWins = wins
		config.RequestHeadersToAdd, config.ResponseHeadersToAdd = edit("config"), edit("config")
		host := config.VirtualHosts[0]
		host.RequestHeadersToAdd, host.ResponseHeadersToAdd = edit("host"), edit("host")

		routes := mustDecodeRoutes(t, config).VirtualHosts[0].Routes
		clusters := routes[0].Action.(*Forward).Clusters
		for i := range clusters {
			m := routes[0].HeadersFor(&clusters[i])
			for _, edits := range []HeaderEdits{m.Request, m.Response} {
				md := metadata.MD{}
				edits.Apply(md)
				xdstest.Equal(t, fmt.Sprintf("most specific wins: %v, cluster %s", wins, clusters[i].Name), want[i], md["h"])
			}
		}
	}
}

func TestLevelsWithoutEditsShareThoseAbove(t *testing.T) {
	t.Parallel()
	config := routeConfig(xdsmsg.PrefixRoute("/a", "a"), xdsmsg.PrefixRoute("/b", "b"))
	config.ResponseHeadersToRemove = []string{"h"}
	config.VirtualHosts = append(config.VirtualHosts, &routepb.VirtualHost{Domains: []string{"x"}, Routes: []*routepb.Route{xdsmsg.PrefixRoute("/", "c")}})
	hosts := mustDecodeRoutes(t, config).VirtualHosts
	if m := hosts[0].Routes[0].Headers; m == nil || m != hosts[0].Routes[1].Headers || m != hosts[1].Routes[0].Headers {
		t.Error("routes without edits of their own do not share one value")
	}
	if m := decodeRoutes(t, xdsmsg.PrefixRoute("/", "a")).Routes[0].HeadersFor(nil); m != nil {
		t.Errorf("HeadersFor = %v without any edits, want nil", m)
	}
}

func TestHeaderEditsThatAreLeftOut(t *testing.T) {
	t.Parallel()
	const route0 = "virtual_hosts[0].routes[0]"
	both := option("h", "v", overwrite)
	both.Append = wrapperspb.Bool(true)
	for _, tc := range []struct {
		given   string
		option  *corepb.HeaderValueOption
		path    string
		reason  string
		request bool // only requests
	}{
		{"a pseudo header", option(":path", "v", appendOrAdd), ".header.key", `header ":path": pseudo headers cannot be edited; routes have rewrites for path and host`, false},
		{"host", option("Host", "v", appendOrAdd), ".header.key", `header "Host": pseudo headers cannot be edited; routes have rewrites for path and host`, false},
		{"grpc-", option("grpc-timeout", "v", appendOrAdd), ".header.key", `header "grpc-timeout": headers of the gRPC protocol cannot be edited`, false},
		{"no name", option("", "v", appendOrAdd), ".header.key", `header "": a header needs a name`, false},
		{"no header", &corepb.HeaderValueOption{KeepEmptyValue: true}, ".header.key", `header "": a header needs a name`, false},
		{"an invalid name", option("a b", "v", appendOrAdd), ".header.key", `header "a b": gRPC does not allow a character in the name`, false},
		{"a header of HTTP/1", option("connection", "v", appendOrAdd), ".header.key", `header "connection": HTTP/2 does not have this header`, false},
		{"what gRPC fills in", option("user-agent", "v", appendOrAdd), ".header.key", `header "user-agent": gRPC fills this header in`, true},
		{"an operator", option("h", "a %REQ(x)% b", appendOrAdd), ".header", `header "h": command operators such as %REQ(name)% are not known in values; write a percent sign as %%`, false},
		{"two operators", option("h", "%A%%B%", appendOrAdd), ".header", `header "h": command operators such as %REQ(name)% are not known in values; write a percent sign as %%`, false},
		{"half an operator", option("h", "100%", appendOrAdd), ".header", `header "h": command operators such as %REQ(name)% are not known in values; write a percent sign as %%`, false},
		{"an invalid value", option("h", "a\nb", appendOrAdd), ".header", `header "h": gRPC does not allow a character in the value`, false},
		{"not base64", option("h-bin", "!", appendOrAdd), ".header", `header "h-bin": the value of a -bin header must be in base64`, false},
		{"an unknown action", option("h", "v", 9), ".append_action", "the action 9 is unknown", false},
		{"append and append_action", both, "", "append and append_action are both set", false},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			route := xdsmsg.PrefixRoute("/", "a")
			route.RequestHeadersToAdd = options{tc.option, option("good", "v", appendOrAdd)}
			route.ResponseHeadersToAdd = route.RequestHeadersToAdd
			rc := mustDecode[RouteConfiguration](t, RouteConfigurationType, routeConfig(route))
			want := []note{{route0 + ".request_headers_to_add[0]" + tc.path, tc.reason}}
			if !tc.request {
				want = append(want, note{route0 + ".response_headers_to_add[0]" + tc.path, tc.reason})
			}
			checkIgnored(t, rc.Ignored, want...)
			md := metadata.MD{}
			rc.VirtualHosts[0].Routes[0].Headers.Request.Apply(md)
			xdstest.Equal(t, "after the edits that are left", metadata.MD{"good": {"v"}}, md)
		})
	}
	t.Run("removals", func(t *testing.T) {
		t.Parallel()
		config := routeConfig(xdsmsg.PrefixRoute("/", "a"))
		config.VirtualHosts[0].RequestHeadersToRemove = []string{":path", "te"}
		config.ResponseHeadersToRemove = []string{"grpc-status"}
		checkIgnored(t, mustDecodeRoutes(t, config).Ignored,
			note{"response_headers_to_remove[0]", `header "grpc-status": headers of the gRPC protocol cannot be edited`},
			note{"virtual_hosts[0].request_headers_to_remove[0]", `header ":path": pseudo headers cannot be edited; routes have rewrites for path and host`},
			note{"virtual_hosts[0].request_headers_to_remove[1]", `header "te": gRPC fills this header in`},
		)
	})
}

func TestBinaryHeaderEditsAreDecoded(t *testing.T) {
	t.Parallel()
	route := xdsmsg.PrefixRoute("/", "a")
	route.RequestHeadersToAdd = options{option("a-bin", "AP8=", appendOrAdd), option("b-bin", "AP8", appendOrAdd)}
	md := metadata.MD{}
	decodeRoutes(t, route).Routes[0].Headers.Request.Apply(md)
	xdstest.Equal(t, "metadata", metadata.MD{"a-bin": {"\x00\xff"}, "b-bin": {"\x00\xff"}}, md)
}

func TestIgnoredIsBounded(t *testing.T) {
	t.Parallel()
	route := xdsmsg.PrefixRoute("/", "a")
	for i := range 200 {
		route.RequestHeadersToAdd = append(route.RequestHeadersToAdd, option(fmt.Sprint(":", i), "v", appendOrAdd))
	}
	if rc := mustDecodeRoutes(t, routeConfig(route)); len(rc.Ignored) != 100 {
		t.Errorf("%d entries, want 100", len(rc.Ignored))
	}
}
