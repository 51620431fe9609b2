package discoveryv3_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	dynamicparametersv3 "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
)

// message writes a message by hand: pairs of a field number and a value, which is a
// string, an int or a message.
func message(pairs ...any) []byte {
	b := []byte{}
	for i := 0; i < len(pairs); i += 2 {
		number := protowire.Number(pairs[i].(int))
		switch v := pairs[i+1].(type) {
		case string:
			b = protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), v)
		case []byte:
			b = protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), v)
		case int:
			b = protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), uint64(v))
		}
	}
	return b
}

// TP2, "API Changes" and "Server-Specified Constraints": the field numbers that the
// text gives its messages. invert is 3, which is ours.
func TestTP2FieldNumbers(t *testing.T) {
	t.Parallel()
	type (
		key        = discoveryv3.DynamicParameterConstraints_KeyConstraints
		constraint = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint
		value      = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_Value
		inRanges   = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_IntegerRangeList_
		rangeList  = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_IntegerRangeList
		bounds     = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_IntegerRangeList_Range
	)
	constraints := &discoveryv3.DynamicParameterConstraints{KeyConstraints: map[string]*key{
		"shard": {Invert: true, Constraints: []*constraint{
			{Constraint: &value{Value: "a"}},
			{Constraint: &inRanges{IntegerRangeList: &rangeList{Range: []*bounds{
				{MinValue: proto.Uint64(0), MaxValue: proto.Uint64(5)},
				{MaxValue: proto.Uint64(7)},
			}}}},
		}},
	}}
	locator := &discoveryv3.ResourceLocator{Name: "n", DynamicParameterConstraints: constraints}

	constraintsWire := message(1, message(1, "shard", 2, message(
		2, message(1, "a"),
		2, message(2, message(1, message(1, 0, 2, 5), 1, message(2, 7))),
		3, 1,
	)))
	locatorWire := message(1, "n", 2, constraintsWire)

	tests := []struct {
		given proto.Message
		then  []byte
	}{
		{constraints, constraintsWire},
		{locator, locatorWire},
		{&discoveryv3.DiscoveryRequest{ResourceLocators: []*discoveryv3.ResourceLocator{locator}}, message(7, locatorWire)},
		{&discoveryv3.DeltaDiscoveryRequest{
			ResourceLocatorsSubscribe:   []*discoveryv3.ResourceLocator{locator},
			ResourceLocatorsUnsubscribe: []*discoveryv3.ResourceLocator{{Name: "u"}},
		}, message(8, locatorWire, 9, message(1, "u"))},
		{&discoveryv3.Resource{DynamicParameters: map[string]string{"env": "prod"}}, message(8, message(1, "env", 2, "prod"))},
		{&discoveryv3.ResourceError{ResourceName: &discoveryv3.ResourceName{Name: "n", DynamicParameterConstraints: constraints}}, message(1, locatorWire)},
		{&dynamicparametersv3.DynamicParameterConstraintsMap{
			ResourceTypeConstraints: map[string]*discoveryv3.DynamicParameterConstraints{"T": constraints},
		}, message(1, message(1, "T", 2, constraintsWire))},
	}
	for _, test := range tests {
		name := test.given.ProtoReflect().Descriptor().Name()
		got, err := proto.MarshalOptions{Deterministic: true}.Marshal(test.given)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.then, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TP2, "API Changes": "At least one of min_value or max_value must be set." That can
// be checked only if a bound of 0 is not the same as none.
func TestRangeBoundsHavePresence(t *testing.T) {
	t.Parallel()
	fields := new(discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_IntegerRangeList_Range).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if !fields.Get(i).HasPresence() {
			t.Errorf("%s has no presence", fields.Get(i).FullName())
		}
	}
}
