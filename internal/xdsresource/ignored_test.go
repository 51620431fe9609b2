//lint:file-ignore SA1019 Control planes still send deprecated fields.

package xdsresource

import (
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	_ "github.com/dynxds/dynxds/httpfilter/inert"
	"github.com/dynxds/dynxds/internal/xdsmsg"
)

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
