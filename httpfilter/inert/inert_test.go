package inert

import (
	"testing"

	xdspb "github.com/cncf/xds/go/xds/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/xdsmsg"
)

// gRFC A39: a filter "will also verify that the config is of the right type", top-level or override.
func TestEachConfigurationHasItsType(t *testing.T) {
	t.Parallel()
	for i := range filters {
		f := &filters[i]
		config, override := &anypb.Any{TypeUrl: f.config}, &anypb.Any{TypeUrl: f.override}
		if _, err := f.ParseConfig(config); err != nil {
			t.Errorf("%s: %v", f.config, err)
		}
		if f.override == "" {
			override = config
		} else {
			if _, err := f.ParseConfig(override); err == nil {
				t.Errorf("%s is accepted as a top-level configuration", f.override)
			}
			if _, err := f.ParseOverride(config); err == nil {
				t.Errorf("%s is accepted as an override", f.config)
			}
		}
		if _, err := f.ParseOverride(override); err != nil {
			t.Errorf("override %s: %v", override.GetTypeUrl(), err)
		}
	}
}

func TestRBACIsForServers(t *testing.T) {
	t.Parallel()
	if _, ok := any(rbac).(httpfilter.ClientFilter); ok {
		t.Error("clients run RBAC")
	}
	typedStruct := func(typeURL string) *anypb.Any {
		return xdsmsg.Any(&xdspb.TypedStruct{TypeUrl: typeURL, Value: new(structpb.Struct)})
	}
	for _, test := range []struct {
		name               string
		config             *anypb.Any
		topLevel, override bool // whether it is accepted as one
	}{
		{"a configuration", &anypb.Any{TypeUrl: rbac.config}, true, false},
		{"an override", &anypb.Any{TypeUrl: rbac.override}, false, true},
		{"a configuration as TypedStruct", typedStruct(rbac.config), true, false},
		{"an override as TypedStruct", typedStruct(rbac.override), false, true},
		{"another type", &anypb.Any{TypeUrl: "type.googleapis.com/x"}, false, false},
		{"a TypedStruct that does not decode", &anypb.Any{TypeUrl: "type.googleapis.com/xds.type.v3.TypedStruct", Value: []byte{0xff}}, false, false},
	} {
		if _, err := rbac.ParseConfig(test.config); (err == nil) != test.topLevel {
			t.Errorf("%s: ParseConfig: %v", test.name, err)
		}
		if _, err := rbac.ParseOverride(test.config); (err == nil) != test.override {
			t.Errorf("%s: ParseOverride: %v", test.name, err)
		}
	}
}
