package rbac

import (
	"testing"

	xdspb "github.com/cncf/xds/go/xds/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/xdsmsg"
)

var (
	_ httpfilter.ServerFilter   = filter{}
	_ httpfilter.OverrideParser = filter{}
)

func TestTypesOfConfigurations(t *testing.T) {
	t.Parallel()
	if _, ok := any(filter{}).(httpfilter.ClientFilter); ok {
		t.Error("RBAC is for servers")
	}
	typedStruct := func(typeURL string) *anypb.Any {
		return xdsmsg.Any(&xdspb.TypedStruct{TypeUrl: typeURL, Value: new(structpb.Struct)})
	}
	for _, test := range []struct {
		name               string
		config             *anypb.Any
		topLevel, override bool // whether it is accepted as one
	}{
		{"a configuration", &anypb.Any{TypeUrl: typeURL}, true, false},
		{"an override", &anypb.Any{TypeUrl: overrideTypeURL}, false, true},
		{"a configuration as TypedStruct", typedStruct(typeURL), true, false},
		{"an override as TypedStruct", typedStruct(overrideTypeURL), false, true},
		{"another type", &anypb.Any{TypeUrl: "type.googleapis.com/x"}, false, false},
		{"a TypedStruct that does not decode", &anypb.Any{TypeUrl: "type.googleapis.com/xds.type.v3.TypedStruct", Value: []byte{0xff}}, false, false},
	} {
		if _, err := (filter{}).ParseConfig(test.config); (err == nil) != test.topLevel {
			t.Errorf("%s: ParseConfig: %v", test.name, err)
		}
		if _, err := (filter{}).ParseOverride(test.config); (err == nil) != test.override {
			t.Errorf("%s: ParseOverride: %v", test.name, err)
		}
	}
}
