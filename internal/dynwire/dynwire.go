// Package dynwire reads and writes what xdsclient/dynparam describes, as bytes: the
// constraints of locators, the parameters of resources and whole DPDS resources. It is for
// clients and servers that handle messages as bytes; what the values mean, and whether they
// are right, is for dynparam to say.
package dynwire

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/faults"
	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	dynamicparametersv3 "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

const (
	whatConstraints = "dynamic parameter constraints"
	whatParameters  = "dynamic parameters"
	whatMap         = "dynamic parameter constraints map"
)

// UnmarshalConstraints returns the constraints in a serialized DynamicParameterConstraints
// message. The error is that of dynparam.FromProto, or says that the bytes are no such
// message.
func UnmarshalConstraints(b []byte) (dynparam.Constraints, error) {
	var m discoveryv3.DynamicParameterConstraints
	if err := proto.Unmarshal(b, &m); err != nil {
		return dynparam.Constraints{}, fmt.Errorf("%s: %w", whatConstraints, err)
	}
	return dynparam.FromProto(&m)
}

// UnmarshalParameters returns the parameters in serialized form: the occurrences of the
// field Resource.dynamic_parameters, as Parameters.Key has them, in any order. The error is
// that of dynparam.NewParameters, or says that the bytes are no such fields.
func UnmarshalParameters(b []byte) (dynparam.Parameters, error) {
	if len(b) == 0 {
		return dynparam.Parameters{}, nil
	}
	var m discoveryv3.Resource
	if err := proto.Unmarshal(b, &m); err != nil {
		return dynparam.Parameters{}, fmt.Errorf("%s: %w", whatParameters, err)
	}
	return dynparam.NewParameters(m.GetDynamicParameters())
}

// MarshalMap packs a DPDS resource into an Any, always in the same way. It fails if text
// in the message is not UTF-8.
func MarshalMap(m *dynamicparametersv3.DynamicParameterConstraintsMap) (*anypb.Any, error) {
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", whatMap, err)
	}
	return &anypb.Any{TypeUrl: dynparam.MapTypeURL, Value: value}, nil
}

// UnmarshalMap unpacks a DPDS resource. It fails if there is another message in the Any,
// or none; what the message says is for dynparam.ByTypeFromProto to judge.
func UnmarshalMap(a *anypb.Any) (*dynamicparametersv3.DynamicParameterConstraintsMap, error) {
	if a.GetTypeUrl() != dynparam.MapTypeURL {
		return nil, fmt.Errorf("%s: expected the type %q, found %s", whatMap, dynparam.MapTypeURL, faults.Quote(a.GetTypeUrl()))
	}
	m := new(dynamicparametersv3.DynamicParameterConstraintsMap)
	if err := proto.Unmarshal(a.GetValue(), m); err != nil {
		return nil, fmt.Errorf("%s: %w", whatMap, err)
	}
	return m, nil
}
