package xdsresource

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	dynparamspb "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// dpds packs constraints on one key of one type.
func dpds(t testing.TB, typeName string, constraints ...*discoverypb.DynamicParameterConstraints_KeyConstraints_Constraint) *anypb.Any {
	t.Helper()
	a, err := dynwire.MarshalMap(&dynparamspb.DynamicParameterConstraintsMap{
		ResourceTypeConstraints: map[string]*discoverypb.DynamicParameterConstraints{
			typeName: {KeyConstraints: map[string]*discoverypb.DynamicParameterConstraints_KeyConstraints{
				"listener_type": {Constraints: constraints},
			}},
		},
	})
	xdstest.NoError(t, err)
	return a
}

func direct() *discoverypb.DynamicParameterConstraints_KeyConstraints_Constraint {
	return &discoverypb.DynamicParameterConstraints_KeyConstraints_Constraint{
		Constraint: &discoverypb.DynamicParameterConstraints_KeyConstraints_Constraint_Value{Value: "direct"},
	}
}

// TP2, "Server-Specified Constraints" and "DPDS Example".
func TestDynamicParameterConstraintsMap(t *testing.T) {
	t.Parallel()
	resource := dpds(t, "envoy.config.listener.v3.Listener", direct())
	name, value, err := DynamicParameterConstraintsType.Decode(resource, xdsclient.DecodeOptions{})
	xdstest.NoError(t, err)
	if name != "" {
		t.Errorf("name %q, want none: the message has none", name)
	}
	constraints := value.(*DynamicParameterConstraintsMap).Constraints
	if got, want := constraints.For(typeurl.Listener).String(), "{listener_type=direct}"; got != want {
		t.Errorf("constraints for Listener are %s, want %s", got, want)
	}
	if got := constraints.For(typeurl.Cluster); !got.IsZero() {
		t.Errorf("constraints for Cluster are %v, want none", got)
	}
}

func TestDynamicParameterConstraintsMapWithFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		resource *anypb.Any
		want     []faults.Fault
	}{
		{"a type that is none and a key without constraints", dpds(t, "*"), []faults.Fault{
			{Path: `resource_type_constraints["*"]`, Problem: `expected the name of a resource type such as "envoy.config.cluster.v3.Cluster", found "*"`},
			{Path: `resource_type_constraints["*"].key_constraints["listener_type"].constraints`, Problem: "expected a list with at least one constraint, found an empty list"},
		}},
		{"bytes that are no message", &anypb.Any{TypeUrl: DynamicParameterConstraintsTypeURL, Value: []byte{0xff}}, nil},
		{"another type", &anypb.Any{TypeUrl: typeurl.Cluster}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, value, err := DynamicParameterConstraintsType.Decode(tt.resource, xdsclient.DecodeOptions{})
			if err == nil || value != nil {
				t.Fatalf("Decode = %v, %v, want an error and no value", value, err)
			}
			var faults *dynparam.Faults
			if errors.As(err, &faults) != (tt.want != nil) {
				t.Fatalf("error %v has the wrong type %T", err, err)
			}
			if faults != nil {
				xdstest.Equal(t, "faults", tt.want, faults.List)
			}
		})
	}
}

// Constraints for what is the type of no resource choose nothing: they are ignored, and
// shown as such. TP2's own text has two of them ("Sharding Endpoints" and "Selecting
// Cluster Based on ACL").
func TestIgnoredConstraintsOfADynamicParameterConstraintsMap(t *testing.T) {
	t.Parallel()
	for typeName, want := range map[string][]xdsclient.Ignored{
		"envoy.config.route.v3.RouteConfiguration": nil,
		"acme.v1.Thing": nil, // the program may have such a type
		"envoy.config.cluster.v3.RouteConfiguration": {{
			Path:     `resource_type_constraints["envoy.config.cluster.v3.RouteConfiguration"]`,
			Severity: xdsclient.SeverityWarning, Places: 1,
			Reason: `found "envoy.config.cluster.v3.RouteConfiguration", which is the type of no resource; did you mean "envoy.config.route.v3.RouteConfiguration"?`,
		}},
		xdsname.ConstraintsMap: {{
			Path:     `resource_type_constraints["` + xdsname.ConstraintsMap + `"]`,
			Severity: xdsclient.SeverityWarning, Places: 1,
			Reason: `found "` + xdsname.ConstraintsMap + `", which is asked for without constraints (xRFC TP2, "Non-Cacheability of DPDS")`,
		}},
	} {
		resource := dpds(t, typeName, direct())
		got, err := IgnoredFields(resource)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: ignored (-want +got):\n%s, %v", typeName, diff, err)
		}
		_, value, err := DynamicParameterConstraintsType.Decode(resource, xdsclient.DecodeOptions{})
		xdstest.NoError(t, err)
		if said := DynamicParameterConstraintsType.Ignored(resource, value); len(said) != len(want) || len(want) > 0 && said[0] != xdsclient.Ignored(want[0]) {
			t.Errorf("%s: the type says that %v is ignored, want %v", typeName, said, want)
		}
	}
	if _, err := IgnoredFields(&anypb.Any{TypeUrl: DynamicParameterConstraintsTypeURL, Value: []byte{0xff}}); err == nil {
		t.Error("what cannot be read has no error")
	}
}

func FuzzDynamicParameterConstraintsMap(f *testing.F) {
	f.Add(dpds(f, "envoy.config.listener.v3.Listener", direct()).Value)
	f.Fuzz(func(t *testing.T, b []byte) {
		_, value, err := DynamicParameterConstraintsType.Decode(
			&anypb.Any{TypeUrl: DynamicParameterConstraintsTypeURL, Value: b}, xdsclient.DecodeOptions{})
		if (value == nil) != (err != nil) {
			t.Fatalf("Decode = %v, %v: want either", value, err)
		}
		if err != nil {
			return
		}
		// What was accepted is accepted again in canonical form, and means the same.
		constraints := value.(*DynamicParameterConstraintsMap).Constraints
		again, err := dynparam.ByTypeFromProto(constraints.ToProto())
		if err != nil || !again.Equal(constraints) {
			t.Fatalf("%v became %v, %v", constraints.ToProto(), again.ToProto(), err)
		}
	})
}
