package dynparam

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/testing/protocmp"

	"github.com/dynxds/dynxds/internal/xdsname"
	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	dynamicparametersv3 "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
)

func exact(pairs ...string) Constraints {
	values := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	return must(Exact(values))
}

func TestByType(t *testing.T) {
	t.Parallel()
	own := must(NewByType(map[string]Constraints{
		AnyType: exact("env", "prod", "v", "1"), "T": exact("v", "2"), "U": {},
	}))
	other := must(NewByType(map[string]Constraints{"T": exact("env", "test"), "V": exact("s", "3")}))
	tests := []struct {
		given   string
		b       ByType
		typeURL string
		then    Constraints
	}{
		{"nothing", ByType{}, "T", Constraints{}},
		{"a type of its own, over those of every type", own, "T", exact("env", "prod", "v", "2")},
		{"its URL", own, "type.googleapis.com/T", exact("env", "prod", "v", "2")},
		{"a type without constraints of its own", own, "U", exact("env", "prod", "v", "1")},
		{"a type that is not named", own, "x/W", exact("env", "prod", "v", "1")},
		{"nothing for every type", other, "U", Constraints{}},
		{"a merge, of a type of both", own.Merge(other), "T", exact("env", "test", "v", "2")},
		{"a merge, of a type of the upper one", own.Merge(other), "V", exact("env", "prod", "v", "1", "s", "3")},
		{"a merge, of another type", own.Merge(other), "W", exact("env", "prod", "v", "1")},
		{"a merge the other way round", other.Merge(own), "T", exact("env", "prod", "v", "2")},
		{"a merge the other way round, of a type of the lower one", other.Merge(own), "V", exact("env", "prod", "v", "1", "s", "3")},
		{"a merge with nothing", own.Merge(ByType{}), "T", exact("env", "prod", "v", "2")},
		{"a merge over nothing", ByType{}.Merge(other), "T", exact("env", "test")},
	}
	for _, test := range tests {
		if got := test.b.For(test.typeURL); !got.Equal(test.then) {
			t.Errorf("given %s: the constraints are %v, want %v", test.given, got, test.then)
		}
	}
	if !own.Equal(own.Merge(own)) || own.Equal(other) || own.Equal(ByType{}) || !other.Equal(must(ByTypeFromProto(other.ToProto()))) {
		t.Error("Equal is wrong")
	}
}

func TestNewByTypeFaults(t *testing.T) {
	t.Parallel()
	_, err := NewByType(map[string]Constraints{"": {}, "type.googleapis.com/T": {}, AnyType: {}, "\xff": {},
		"envoy.config.cluster.v3.RouteConfiguration": exact("use_proxy", "true"), xdsname.ConstraintsMap: {}, "acme.v1.Cluster": {}})
	want := []string{
		`[""]: expected the name of a resource type such as "envoy.config.cluster.v3.Cluster", or "*", found ""`,
		`["envoy.config.cluster.v3.RouteConfiguration"]: expected the name of a resource type such as "envoy.config.cluster.v3.Cluster", or "*", ` +
			`found "envoy.config.cluster.v3.RouteConfiguration", which is the type of no resource; did you mean "envoy.config.route.v3.RouteConfiguration"?`,
		`["` + xdsname.ConstraintsMap + `"]: expected the name of a resource type such as "envoy.config.cluster.v3.Cluster", or "*", ` +
			`found "` + xdsname.ConstraintsMap + `", which is asked for without constraints (xRFC TP2, "Non-Cacheability of DPDS")`,
		`["type.googleapis.com/T"]: expected the name of a resource type such as "envoy.config.cluster.v3.Cluster", or "*", found "type.googleapis.com/T"`,
		`["\xff"]: expected UTF-8, found other bytes`,
	}
	equal(t, "faults", want, problems(t, err))
	many := map[string]Constraints{}
	for i := range maxTypes {
		many[fmt.Sprint(i)] = Constraints{}
	}
	if none, err := NewByType(many); err != nil || len(none.Types()) > 0 {
		t.Errorf("as many types as may be, without constraints, give %v, %v", none, err)
	}
	many["more"] = Constraints{}
	_, err = NewByType(many)
	equal(t, "faults", []string{"expected at most 128 types, found 129"}, problems(t, err))
}

func TestByTypeFromProtoFaults(t *testing.T) {
	t.Parallel()
	tooMany := &discoveryv3.DynamicParameterConstraints{KeyConstraints: map[string]*protoKey{}}
	for i := range maxKeys + 1 {
		tooMany.KeyConstraints[fmt.Sprint(i)] = &protoKey{Constraints: []*protoConstraint{{Constraint: &protoValue{}}}}
	}
	m := &dynamicparametersv3.DynamicParameterConstraintsMap{ResourceTypeConstraints: map[string]*discoveryv3.DynamicParameterConstraints{
		"":    nil,
		"*":   exact("env", "prod").ToProto(),
		"A":   {KeyConstraints: map[string]*protoKey{"k": nil}},
		"B":   exact("env", "prod").ToProto(),
		"C":   tooMany,
		"D":   message(t, `{key_constraints:{key:"k" value:{constraints:{value:"`+strings.Repeat("x", maxSize)+`"}}}}`),
		"u/T": {},
	}}
	b, err := ByTypeFromProto(m)
	want := []string{
		`resource_type_constraints[""]: expected the name of a resource type such as "envoy.config.cluster.v3.Cluster", found ""`,
		`resource_type_constraints["*"]: expected the name of a resource type such as "envoy.config.cluster.v3.Cluster", found "*"`,
		`resource_type_constraints["A"].key_constraints["k"].constraints: expected a list with at least one constraint, found an empty list`,
		`resource_type_constraints["C"].key_constraints: expected at most 128 keys, found 129`,
		`resource_type_constraints["D"]: expected at most 65536 bytes, found 65555`,
		`resource_type_constraints["u/T"]: expected the name of a resource type such as "envoy.config.cluster.v3.Cluster", found "u/T"`,
	}
	equal(t, "faults", want, problems(t, err))
	if !b.Equal(ByType{}) {
		t.Errorf("there are constraints beside the error: %v", b)
	}
	many := &dynamicparametersv3.DynamicParameterConstraintsMap{ResourceTypeConstraints: map[string]*discoveryv3.DynamicParameterConstraints{}}
	for i := range maxTypes {
		many.ResourceTypeConstraints[fmt.Sprint(i)] = nil
	}
	if none, err := ByTypeFromProto(many); err != nil || len(none.Types()) > 0 {
		t.Errorf("as many types as may be, without constraints, give %v, %v", none, err)
	}
	many.ResourceTypeConstraints["more"] = nil
	_, err = ByTypeFromProto(many)
	equal(t, "faults", []string{"resource_type_constraints: expected at most 128 types, found 129"}, problems(t, err))
}

// What constraints for every type gave each type goes into a DPDS resource; there is no
// such type in it.
func TestByTypeToProtoHasNoAnyType(t *testing.T) {
	t.Parallel()
	b := must(NewByType(map[string]Constraints{AnyType: exact("env", "prod"), "T": exact("v", "1")}))
	want := &dynamicparametersv3.DynamicParameterConstraintsMap{ResourceTypeConstraints: map[string]*discoveryv3.DynamicParameterConstraints{
		"T": exact("env", "prod", "v", "1").ToProto(),
	}}
	equal(t, "ToProto", want, b.ToProto(), protocmp.Transform())
}
