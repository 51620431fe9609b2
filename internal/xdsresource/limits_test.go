package xdsresource

import (
	"fmt"
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

// repeated is n entries of a field in prototext.
func repeated(n int, entry string) string { return strings.Repeat(entry+"\n", n) }

func filtersOf(n int) proto.Message {
	var filters []*hcmpb.HttpFilter
	for i := range n - 1 {
		filters = append(filters, &hcmpb.HttpFilter{Name: fmt.Sprint(i),
			ConfigType: &hcmpb.HttpFilter_TypedConfig{TypedConfig: &anypb.Any{TypeUrl: plainFilterURL}}})
	}
	return xdsmsg.DefaultListener("l", "r", filters...)
}

// Each RPC goes through these lists: what it costs must not grow with the size of a resource.
func TestListsThatEachRPCGoesThroughAreLimited(t *testing.T) {
	t.Parallel()
	const route = "virtual_hosts[0].routes[0]."
	edits := func(field string) (string, int, func(int) proto.Message) {
		entry := field + `{header{key:"a" value:"b"}}`
		if strings.HasSuffix(field, "remove") {
			entry = field + `:"a"`
		}
		return "virtual_hosts[0].routes[0]." + field, bounds.HeaderEdits, func(n int) proto.Message {
			return routeConfig(withText(t, xdsmsg.PrefixRoute("/", "a"), repeated(n, entry)))
		}
	}
	action := func(entry string) func(int) proto.Message {
		return func(n int) proto.Message { return acting(t, repeated(n, entry)) }
	}
	match := func(entry string) func(int) proto.Message {
		return func(n int) proto.Message { return routeConfig(matchedBy(t, repeated(n, entry))) }
	}
	type list struct {
		path  string
		limit int
		with  func(n int) proto.Message
	}
	routes := []list{
		{route + "route.request_mirror_policies", bounds.Mirrors, action(`request_mirror_policies{cluster:"b"}`)},
		{route + "route.request_mirror_policies[0].request_headers_mutations", bounds.HeaderEdits, func(n int) proto.Message {
			return acting(t, `request_mirror_policies{cluster:"b" `+repeated(n, `request_headers_mutations{remove:"a"}`)+`}`)
		}},
		{route + "route.hash_policy", bounds.Conditions, action(`hash_policy{header{header_name:"a"}}`)},
		{route + "route.retry_policy.retriable_headers", bounds.Conditions, func(n int) proto.Message {
			return acting(t, `retry_policy{retry_on:"retriable-headers" `+repeated(n, `retriable_headers{name:"a" exact_match:"b"}`)+`}`)
		}},
		{route + "route.retry_policy.rate_limited_retry_back_off.reset_headers", bounds.Conditions, func(n int) proto.Message {
			return acting(t, `retry_policy{retry_on:"internal" rate_limited_retry_back_off{`+repeated(n, `reset_headers{name:"a"}`)+`}}`)
		}},
		{route + "match.headers", bounds.Conditions, match(`headers{name:"a" present_match:true invert_match:true}`)},
		{route + "match.query_parameters", bounds.Conditions, match(`query_parameters{name:"a"}`)},
	}
	for _, field := range headerEditFields {
		path, limit, with := edits(field)
		routes = append(routes, list{path, limit, with})
	}
	check := func(t *testing.T, typ *xdsclient.ResourceType, l list) {
		if _, err := typ.Decode(xdsmsg.Any(l.with(l.limit)), xdsclient.DecodeOptions{}); err != nil {
			t.Errorf("%d entries of %s are rejected: %v", l.limit, l.path, err)
		}
		_, err := typ.Decode(xdsmsg.Any(l.with(l.limit+1)), xdsclient.DecodeOptions{})
		if want := fmt.Sprintf("%s: has %d entries, more than the %d", l.path, l.limit+1, l.limit); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%d entries: got error %v, want %q", l.limit+1, err, want)
		}
	}
	for _, l := range routes {
		check(t, RouteConfigurationType, l)
	}
	check(t, ListenerType, list{hcmPath + ".http_filters", bounds.HTTPFilters, filtersOf})
	check(t, EndpointsType, list{"policy.drop_overloads", bounds.Conditions, func(n int) proto.Message {
		return withText(t, xdsmsg.SimpleEndpoints("e", "1.2.3.4:5"),
			`policy{`+repeated(n, `drop_overloads{category:"a" drop_percentage{numerator:1}}`)+`}`)
	}})
}

// RouteConfiguration.max_direct_response_body_size_bytes is 4,096 by default, and a long body is cut.
func TestBodiesOfDirectResponsesAreLimited(t *testing.T) {
	t.Parallel()
	answer := func(size int, limit string) *routepb.RouteConfiguration {
		route := withText(t, &routepb.Route{Match: xdsmsg.Prefix("/")}, `direct_response{status:503 body{inline_string:"`+strings.Repeat("x", size)+`"}}`)
		return withText(t, routeConfig(route), limit)
	}
	xdstest.Equal(t, "faults", firstRoute+".direct_response.body: has 4097 bytes, more than max_direct_response_body_size_bytes, 4096",
		faultText(t, RouteConfigurationType, answer(4097, "")))
	for size, limit := range map[int]string{bounds.ErrorText: "", 4096: "", 4097: `max_direct_response_body_size_bytes{value:5000}`} {
		body := mustDecodeRoutes(t, answer(size, limit)).VirtualHosts[0].Routes[0].Action.(*DirectResponse).Body
		xdstest.Equal(t, "the body", bounds.Text(strings.Repeat("x", size), bounds.ErrorText), body)
	}
}
