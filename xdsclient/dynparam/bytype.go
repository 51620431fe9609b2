package dynparam

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/jsonpath"
	"github.com/dynxds/dynxds/internal/xdsname"
	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	dynamicparametersv3 "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
)

const (
	// MapTypeURL is the type URL of DynamicParameterConstraintsMap resources, whose
	// Go message is registered under a name of our own. Hence MarshalMap and
	// UnmarshalMap: anypb would use the wrong name, and find no message for this one.
	MapTypeURL = "type.googleapis.com/" + MapTypeName
	// MapTypeName is the name of that resource type.
	MapTypeName = xdsname.ConstraintsMap

	// AnyType stands, in the constraints of a client's own, for every resource type.
	AnyType = "*"

	whatMap = "dynamic parameter constraints map"
)

// ByType are constraints by the type of resource to subscribe to. The zero value
// constrains none.
type ByType struct {
	types map[string]Constraints // not to be changed; no empty constraints in it
}

// NewByType returns constraints by the name of the resource type, for example
// "envoy.config.cluster.v3.Cluster". Those for [AnyType] hold for every type; where a
// type has its own on the same key, these win. The error is a *[Faults]: more than
// [MaxTypes], a name that is none, and one that is the type of no resource, with a
// suggestion. A name that is not like any of xDS is no fault, as programs may have
// resource types of their own.
func NewByType(constraints map[string]Constraints) (ByType, error) {
	var faults collector
	if len(constraints) > MaxTypes {
		faults.add(nil, tooManyTypes, MaxTypes, len(constraints))
	}
	types := make(map[string]Constraints, len(constraints))
	for _, name := range slices.Sorted(maps.Keys(constraints)) {
		at := (*path)(nil).entry(name)
		if _, err := xdsname.CheckType(name); err != nil {
			faults.add(at, expectedType+"%v", err)
		} else {
			checkTypeName(name, true, at, &faults)
		}
		if c := constraints[AnyType].Merge(constraints[name]); !c.IsZero() {
			types[name] = c
		}
	}
	if err := faults.err(whatMap); err != nil {
		return ByType{}, err
	}
	return ByType{types}, nil
}

const (
	tooManyTypes = "expected at most %d types, found %d"
	expectedType = `expected the name of a resource type such as "envoy.config.cluster.v3.Cluster", `
)

// checkTypeName reports what cannot be the name of a resource type.
func checkTypeName(name string, wildcard bool, at *path, faults *collector) {
	checkText(name, at, faults)
	switch {
	case name == AnyType && wildcard:
	case name == AnyType, name == "", strings.Contains(name, "/"):
		faults.add(at, expectedType+"found %s", jsonpath.Quote(name))
	}
}

// ByTypeFromProto returns the constraints in a DPDS resource, which it does not
// keep. The error is a *[Faults] with paths such as
// `resource_type_constraints["envoy.config.cluster.v3.Cluster"].key_constraints["env"]`:
// what FromProto refuses, what NewByType refuses but for types of no resource, which
// choose nothing, and [AnyType], which the resource does not have.
func ByTypeFromProto(m *dynamicparametersv3.DynamicParameterConstraintsMap) (ByType, error) {
	var faults collector
	root := (*path)(nil).field("resource_type_constraints")
	if n := len(m.GetResourceTypeConstraints()); n > MaxTypes {
		faults.add(root, tooManyTypes, MaxTypes, n)
		return ByType{}, faults.err(whatMap)
	}
	types := make(map[string]Constraints, len(m.GetResourceTypeConstraints()))
	for _, name := range slices.Sorted(maps.Keys(m.GetResourceTypeConstraints())) {
		at := root.entry(name)
		checkTypeName(name, false, at, &faults)
		drafts := readConstraints(m.GetResourceTypeConstraints()[name], at, &faults)
		if c := finish(drafts, at, &faults); !c.IsZero() {
			types[name] = c
		}
	}
	if err := faults.err(whatMap); err != nil {
		return ByType{}, err
	}
	return ByType{types}, nil
}

// For returns the constraints for a resource type, given by its name or its URL. It
// does not allocate.
func (b ByType) For(resourceType string) Constraints {
	if c, ok := b.types[resourceType[strings.LastIndexByte(resourceType, '/')+1:]]; ok {
		return c
	}
	return b.types[AnyType]
}

// Types returns the names of the types that have constraints of their own, in order,
// [AnyType] included.
func (b ByType) Types() []string { return slices.Sorted(maps.Keys(b.types)) }

// Equal reports whether both have the same constraints for every type.
func (b ByType) Equal(other ByType) bool {
	return maps.EqualFunc(b.types, other.types, Constraints.Equal)
}

// Merge returns the constraints of both, merged for each type. Where both constrain a
// key, over wins.
func (b ByType) Merge(over ByType) ByType {
	if len(over.types) == 0 {
		return b
	}
	if len(b.types) == 0 {
		return over
	}
	types := make(map[string]Constraints, len(b.types)+len(over.types))
	for name := range b.types {
		types[name] = b.For(name).Merge(over.For(name))
	}
	for name := range over.types {
		types[name] = b.For(name).Merge(over.For(name))
	}
	return ByType{types}
}

// ToProto returns the constraints as a new DPDS resource. It has nothing for
// [AnyType] but what each type got of it.
func (b ByType) ToProto() *dynamicparametersv3.DynamicParameterConstraintsMap {
	m := new(dynamicparametersv3.DynamicParameterConstraintsMap)
	for name, c := range b.types {
		if name == AnyType {
			continue
		}
		if m.ResourceTypeConstraints == nil {
			m.ResourceTypeConstraints = make(map[string]*discoveryv3.DynamicParameterConstraints, len(b.types))
		}
		m.ResourceTypeConstraints[name] = c.ToProto()
	}
	return m
}

// MarshalMap puts a DPDS resource into an Any, always in the same way. It fails if
// text in the message is not UTF-8.
func MarshalMap(m *dynamicparametersv3.DynamicParameterConstraintsMap) (*anypb.Any, error) {
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", whatMap, err)
	}
	return &anypb.Any{TypeUrl: MapTypeURL, Value: value}, nil
}

// UnmarshalMap takes a DPDS resource out of an Any. It fails if there is another
// message in it, or none; what the message says is for ByTypeFromProto to judge.
func UnmarshalMap(a *anypb.Any) (*dynamicparametersv3.DynamicParameterConstraintsMap, error) {
	if a.GetTypeUrl() != MapTypeURL {
		return nil, fmt.Errorf("%s: expected the type %q, found %s", whatMap, MapTypeURL, jsonpath.Quote(a.GetTypeUrl()))
	}
	m := new(dynamicparametersv3.DynamicParameterConstraintsMap)
	if err := proto.Unmarshal(a.GetValue(), m); err != nil {
		return nil, fmt.Errorf("%s: %w", whatMap, err)
	}
	return m, nil
}
