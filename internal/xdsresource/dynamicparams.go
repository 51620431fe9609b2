package xdsresource

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdsname"
	dynamicparametersv3 "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// DynamicParameterConstraintsTypeURL is the type URL of DPDS resources (xRFC TP2,
// "Server-Specified Constraints").
const DynamicParameterConstraintsTypeURL = dynparam.MapTypeURL

// DynamicParameterConstraintsType decodes to *DynamicParameterConstraintsMap. A server gives the name in the
// envoy.service.discovery.v3.Resource around the message, which it needs for do_not_cache anyway (TP2,
// "Non-Cacheability of DPDS").
var DynamicParameterConstraintsType = &xdsclient.ResourceType{
	TypeURL:  DynamicParameterConstraintsTypeURL,
	Name:     "DynamicParameterConstraintsMap",
	Nameless: true,
	Decode:   decodeDynamicParameterConstraints,
	Ignored:  func(value any) []xdsclient.Ignored { return value.(*DynamicParameterConstraintsMap).Ignored },
}

// DynamicParameterConstraintsMap is a DPDS resource: the constraints that the
// control plane wants this client to subscribe with.
type DynamicParameterConstraintsMap struct {
	// Constraints are by the type of resource to subscribe to.
	Constraints dynparam.ByType
	// Ignored lists the constraints that choose nothing, since their type is not a resource type, and, with
	// SeverityInfo, those for a type that the program may have defined; see xdsname.CheckType.
	Ignored []xdsclient.Ignored
}

func ignoredConstraints(m *dynamicparametersv3.DynamicParameterConstraintsMap) []xdsclient.Ignored {
	var ignored ignoredList
	for _, name := range slices.Sorted(maps.Keys(m.GetResourceTypeConstraints())) {
		known, err := xdsname.CheckType(name)
		at := faults.Field("resource_type_constraints").Key(name)
		switch {
		case err != nil:
			ignored.add(at, xdsclient.SeverityWarning, err.Error(), err.Error())
		case !known:
			ignored.add(at, xdsclient.SeverityInfo, name, xdsname.OfProgram(name))
		}
	}
	return ignored.list()
}

func decodeDynamicParameterConstraints(resource *anypb.Any, _ xdsclient.DecodeOptions) (any, error) {
	m, err := dynwire.UnmarshalMap(resource)
	if err != nil {
		return nil, err
	}
	constraints, err := dynparam.ByTypeFromProto(m)
	if err != nil {
		return nil, err
	}
	return &DynamicParameterConstraintsMap{constraints, ignoredConstraints(m)}, nil
}
