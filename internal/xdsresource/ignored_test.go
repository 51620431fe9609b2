//lint:file-ignore SA1019 Control planes still send deprecated fields.

package xdsresource

import (
	"fmt"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	_ "github.com/dynxds/dynxds/httpfilter/inert"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

// ignoredOf decodes a resource and returns what its type says is ignored of it.
func ignoredOf(t *testing.T, typ *xdsclient.ResourceType, m proto.Message) []xdsclient.Ignored {
	t.Helper()
	resource := xdsmsg.Any(m)
	value, err := typ.Decode(resource, xdsclient.DecodeOptions{})
	xdstest.NoError(t, err)
	return typ.Ignored(value)
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

func TestIgnoredFieldsOfAnUnknownType(t *testing.T) {
	t.Parallel()
	if _, err := IgnoredFields(&anypb.Any{TypeUrl: unknownURL}); err == nil || err.Error() != `no resource type with type URL "`+unknownURL+`"` {
		t.Errorf("error = %v", err)
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
