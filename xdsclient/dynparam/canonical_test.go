package dynparam

import (
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// disguise returns a message of the same meaning in another form.
func disguise(r *rand.Rand, m *discoveryv3.DynamicParameterConstraints) *discoveryv3.DynamicParameterConstraints {
	m = proto.CloneOf(m)
	for _, key := range m.GetKeyConstraints() {
		key.Constraints = append(key.Constraints, proto.CloneOf(pick(r, key.Constraints)))
		r.Shuffle(len(key.Constraints), func(i, j int) {
			key.Constraints[i], key.Constraints[j] = key.Constraints[j], key.Constraints[i]
		})
		for _, c := range key.Constraints {
			list := c.GetIntegerRangeList()
			if list == nil {
				continue
			}
			for _, bounds := range list.GetRange() {
				low, high := bounds.GetMinValue(), uint64(math.MaxUint64)
				if bounds.MaxValue != nil {
					high = *bounds.MaxValue
				}
				if middle := low + (high-low)/2; middle < high {
					list.Range = append(list.Range, &protoRange{MinValue: proto.Uint64(middle + 1), MaxValue: &high})
					bounds.MinValue, bounds.MaxValue = &low, &middle
				}
			}
			r.Shuffle(len(list.Range), func(i, j int) { list.Range[i], list.Range[j] = list.Range[j], list.Range[i] })
		}
	}
	return m
}

// Equal sets have equal keys, whatever the order; sets that accept different
// variants have different ones; and every form that constraints are written in reads
// back as the same constraints.
func TestCanonicalFormOfRandomConstraints(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 1_000 {
		m := randomMessage(r)
		c := must(FromProto(m))
		if other := must(FromProto(disguise(r, m))); other.Key() != c.Key() {
			t.Fatalf("equal sets have different keys:\n%v\n%v", c, other)
		}
		checkForms(t, c)
		different := randomMessage(r)
		for range 20 {
			params := randomParameters(r)
			if oracle(m, params) != oracle(different, params) && must(FromProto(different)).Key() == c.Key() {
				t.Fatalf("%v and %v have one key", m, different)
			}
		}
	}
}

// checkForms checks the forms of constraints against one another and against
// protobuf's own.
func checkForms(t testing.TB, c Constraints) {
	t.Helper()
	m := c.ToProto()
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if string(wire) != c.Key() {
		t.Errorf("%v: Key is not the message on the wire:\n%x\n%x", c, c.Key(), wire)
	}
	if again, err := FromProto(m); err != nil || again.Key() != c.Key() {
		t.Errorf("%v: as a message it is %v, %v", c, again, err)
	}
	read := new(discoveryv3.DynamicParameterConstraints)
	if err := proto.Unmarshal([]byte(c.Key()), read); err != nil || must(FromProto(read)).Key() != c.Key() {
		t.Errorf("%v: on the wire it is %v, %v", c, read, err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := fromJSON(text); err != nil || again.Key() != c.Key() {
		t.Errorf("%v: as JSON it is %v, %v", c, again, err)
	}
	standard := new(discoveryv3.DynamicParameterConstraints)
	if err := protojson.Unmarshal(text, standard); err != nil {
		t.Errorf("%s is not proto JSON: %v", text, err)
	}
	if !proto.Equal(m, standard) {
		t.Errorf("the JSON is another message (-want +got):\n%s", cmp.Diff(m, standard, protocmp.Transform()))
	}
	fromStandard, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := fromJSON(fromStandard); err != nil || again.Key() != c.Key() {
		t.Errorf("%s reads as %v, %v", fromStandard, again, err)
	}
}

// Constraints go on the wire as TP2 writes them.
func TestToProtoKeepsWhatWasSaid(t *testing.T) {
	t.Parallel()
	for _, given := range []string{
		`key_constraints:{key:"env" value:{constraints:{value:"prod"} invert:true}}`,
		`key_constraints:{key:"shard" value:{constraints:{integer_range_list:{range:{min_value:0 max_value:5}}}}}`,
		`key_constraints:{key:"shard" value:{constraints:{integer_range_list:{range:{min_value:0 max_value:0} range:{min_value:46}}}}}`,
	} {
		m := new(discoveryv3.DynamicParameterConstraints)
		if err := prototext.Unmarshal([]byte(given), m); err != nil || !proto.Equal(m, must(FromProto(m)).ToProto()) {
			t.Errorf("%s is not kept, or is no message: %v", given, err)
		}
	}
}

// A merge decides as if the two were looked up one after the other.
func TestMergeOfRandomConstraints(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 5_000 {
		under, over := randomMessage(r), randomMessage(r)
		want := &discoveryv3.DynamicParameterConstraints{KeyConstraints: maps.Clone(under.GetKeyConstraints())}
		maps.Copy(want.KeyConstraints, over.GetKeyConstraints())
		if got := must(FromProto(under)).Merge(must(FromProto(over))); got.Key() != must(FromProto(want)).Key() {
			t.Fatalf("%v over %v is %v", over, under, got)
		}
	}
}
