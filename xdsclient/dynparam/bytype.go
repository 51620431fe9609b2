package dynparam

import (
	"maps"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	dynamicparametersv3 "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
)

const (
	// MapTypeURL is the type URL of DPDS resources (DynamicParameterConstraintsMap).
	// Their Go message is registered under a name of our own, so anypb has no use.
	MapTypeURL = typeurl.Prefix + xdsname.ConstraintsMap

	// AnyType stands for every resource type, in the client's own constraints.
	AnyType = "*"

	whatMap = "dynamic parameter constraints map"
)

// ByType are constraints by the type of resource to subscribe to. The zero value
// constrains none.
type ByType struct {
	types map[string]Constraints // not to be changed; no empty constraints in it
}

// NewByType returns constraints by the name of the resource type, for example
// "envoy.config.cluster.v3.Cluster". Those for [AnyType] hold for every type; where a type
// has its own on the same key, these win. The error is a *[Faults]: more than 128 types, a
// name that cannot be that of a type, and one that resembles an xDS type but is not one,
// with a suggestion. Other names are accepted, as programs may have resource types of their
// own.
func NewByType(constraints map[string]Constraints) (ByType, error) {
	faults := Faults{Source: whatMap}
	if len(constraints) > maxTypes {
		faults.Addf(nil, tooManyTypes, maxTypes, len(constraints))
	}
	types := make(map[string]Constraints, len(constraints))
	for _, name := range slices.Sorted(maps.Keys(constraints)) {
		at := (*path)(nil).Key(name)
		if _, err := xdsname.CheckType(name); err != nil {
			faults.Addf(at, expectedType+orAnyType+"%v", err)
		} else {
			checkTypeName(name, true, at, &faults)
		}
		if c := constraints[AnyType].Merge(constraints[name]); !c.IsZero() {
			types[name] = c
		}
	}
	if err := faults.Err(); err != nil {
		return ByType{}, err
	}
	return ByType{types}, nil
}

const (
	tooManyTypes = "expected at most %d types, found %d"
	expectedType = `expected the name of a resource type such as "envoy.config.cluster.v3.Cluster", `
	orAnyType    = `or "*", `
)

// checkTypeName reports what cannot be the name of a resource type.
func checkTypeName(name string, wildcard bool, at *path, to *Faults) {
	checkText(name, at, to)
	expected := expectedType
	if wildcard {
		expected += orAnyType
	}
	if name == AnyType && !wildcard || name == "" || strings.Contains(name, "/") {
		to.Addf(at, expected+"found %s", faults.Quote(name))
	}
}

// ByTypeFromProto returns the constraints in a DPDS resource, which it does not keep. The
// error is a *[Faults] with paths such as
// `resource_type_constraints["envoy.config.cluster.v3.Cluster"].key_constraints["env"]`:
// what FromProto refuses, too many types, names that cannot be those of types, and
// [AnyType]. Types that no resource has are accepted: they constrain nothing.
func ByTypeFromProto(m *dynamicparametersv3.DynamicParameterConstraintsMap) (ByType, error) {
	faults := Faults{Source: whatMap}
	root := (*path)(nil).Field("resource_type_constraints")
	if n := len(m.GetResourceTypeConstraints()); n > maxTypes {
		faults.Addf(root, tooManyTypes, maxTypes, n)
		return ByType{}, faults.Err()
	}
	types := make(map[string]Constraints, len(m.GetResourceTypeConstraints()))
	for _, name := range slices.Sorted(maps.Keys(m.GetResourceTypeConstraints())) {
		at := root.Key(name)
		checkTypeName(name, false, at, &faults)
		if c := read(m.GetResourceTypeConstraints()[name], at, &faults); !c.IsZero() {
			types[name] = c
		}
	}
	if err := faults.Err(); err != nil {
		return ByType{}, err
	}
	return ByType{types}, nil
}

// For returns the constraints for a resource type, given by its name or its URL. It does
// not allocate.
func (b ByType) For(resourceType string) Constraints {
	if c, ok := b.types[resourceType[strings.LastIndexByte(resourceType, '/')+1:]]; ok {
		return c
	}
	return b.types[AnyType]
}

// Types returns the sorted names of the types that have constraints of their own,
// including [AnyType].
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
	types := maps.Clone(b.types)
	maps.Copy(types, over.types)
	for name := range types {
		types[name] = b.For(name).Merge(over.For(name))
	}
	return ByType{types}
}

// ToProto returns the constraints as a new DPDS resource. Those of [AnyType] are in it only
// as part of the constraints of other types.
func (b ByType) ToProto() *dynamicparametersv3.DynamicParameterConstraintsMap {
	m := &dynamicparametersv3.DynamicParameterConstraintsMap{
		ResourceTypeConstraints: make(map[string]*discoveryv3.DynamicParameterConstraints, len(b.types)),
	}
	for name, c := range b.types {
		if name != AnyType {
			m.ResourceTypeConstraints[name] = c.ToProto()
		}
	}
	return m
}
