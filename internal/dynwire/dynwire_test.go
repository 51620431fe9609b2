package dynwire

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"

	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func exact(key, value string) dynparam.Constraints {
	return must(dynparam.Exact(map[string]string{key: value}))
}

func byType() dynparam.ByType {
	return must(dynparam.NewByType(map[string]dynparam.Constraints{"T": exact("env", "prod"), "U": exact("v", "1")}))
}

// "DPDS Example": the resource's type is
// envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap, the package that
// "Server-Specified Constraints" gives it.
func TestMapInAny(t *testing.T) {
	t.Parallel()
	b := byType()
	a, err := MarshalMap(b.ToProto())
	if err != nil || a.GetTypeUrl() != "type.googleapis.com/envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap" {
		t.Fatalf("got %v, %v", a, err)
	}
	for range 20 {
		if again := must(MarshalMap(b.ToProto())); !bytes.Equal(again.GetValue(), a.GetValue()) {
			t.Fatal("the same map gives other bytes")
		}
	}
	m := must(UnmarshalMap(a))
	if diff := cmp.Diff(b.ToProto(), m, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for given, wrong := range map[string]*anypb.Any{
		"nothing":          nil,
		"our own name":     {TypeUrl: "type.googleapis.com/" + string(proto.MessageName(m))},
		"no such message":  {TypeUrl: dynparam.MapTypeURL, Value: []byte{0x0a}},
		"something longer": {TypeUrl: strings.Repeat("x", 10_000)},
	} {
		if m, err := UnmarshalMap(wrong); err == nil || m != nil || len(err.Error()) > 500 {
			t.Errorf("given %s: got %v, %v", given, m, err)
		}
	}
	m.ResourceTypeConstraints["\xff"] = nil
	if a, err := MarshalMap(m); err == nil {
		t.Errorf("text that is not UTF-8 is marshalled: %v", a)
	}
}

// What Key gives is read back, and anything else is an error.
func TestUnmarshalConstraints(t *testing.T) {
	t.Parallel()
	large := must(proto.Marshal(&discoveryv3.DynamicParameterConstraints{
		KeyConstraints: map[string]*discoveryv3.DynamicParameterConstraints_KeyConstraints{strings.Repeat("x", 1<<16): nil}}))
	want := exact("env", "prod")
	for _, tt := range []struct{ wire, fault string }{
		{want.Key(), ""},
		{"\x0a", "dynamic parameter constraints: "},
		{string(large), "expected at most 65536 bytes, found 65546"},
	} {
		c, err := UnmarshalConstraints([]byte(tt.wire))
		if tt.fault == "" && (err != nil || !c.Equal(want)) || tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault) || !c.IsZero()) {
			t.Errorf("got %v, %v, want %v or an error with %q", c, err, want, tt.fault)
		}
	}
}

// What Parameters.Key gives is read back, in any order of the keys.
func TestUnmarshalParameters(t *testing.T) {
	t.Parallel()
	entry := func(key, value string) string {
		return string(must(proto.MarshalOptions{AllowPartial: true}.Marshal(&discoveryv3.Resource{DynamicParameters: map[string]string{key: value}})))
	}
	for _, tt := range []struct {
		name, wire, want string
		fault            string
	}{
		{"nothing", "", "{}", ""},
		{"in order", entry("a", "1") + entry("b", "2"), "{a=1,b=2}", ""},
		{"out of order", entry("b", "2") + entry("a", "1"), "{a=1,b=2}", ""},
		{"the last value of a key counts", entry("a", "1") + entry("a", "2"), "{a=2}", ""},
		{"cut off", entry("a", "1")[:4], "", "dynamic parameters: "},
		{"not UTF-8", strings.Replace(entry("a", "?"), "?", "\xff", 1), "", "UTF-8"},
		{"too large", entry("a", strings.Repeat("x", 1<<16)), "", "expected at most"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p, err := UnmarshalParameters([]byte(tt.wire))
			if tt.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fault) || !p.IsZero() {
					t.Errorf("got %v, %v, want an error with %q", p, err, tt.fault)
				}
				return
			}
			if err != nil || p.String() != tt.want {
				t.Fatalf("got %v, %v, want %s", p, err, tt.want)
			}
			if again, err := UnmarshalParameters([]byte(p.Key())); err != nil || !again.Equal(p) {
				t.Errorf("%v is read back as %v, %v", p, again, err)
			}
		})
	}
}

// What is read has the form of what is made, so that equal parameters are equal.
func FuzzParameters(f *testing.F) {
	f.Add([]byte(must(dynparam.NewParameters(map[string]string{"a": "1"})).Key()))
	f.Add(protowire.AppendTag(nil, 8, protowire.VarintType))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := UnmarshalParameters(b)
		if err != nil {
			if !p.IsZero() {
				t.Fatalf("got %v beside error %v", p, err)
			}
			return
		}
		again, err := dynparam.NewParameters(p.Map())
		if err != nil || !again.Equal(p) {
			t.Fatalf("%v became %v, %v", p, again, err)
		}
	})
}

// FuzzUnmarshalMap checks that no DPDS resource does harm, and that what is accepted reads
// back as it is.
func FuzzUnmarshalMap(f *testing.F) {
	f.Add(must(MarshalMap(byType().ToProto())).GetValue())
	f.Add([]byte{0x0a, 0x00})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := UnmarshalMap(&anypb.Any{TypeUrl: dynparam.MapTypeURL, Value: data})
		if err != nil {
			return
		}
		b, err := dynparam.ByTypeFromProto(m)
		if err != nil {
			if !b.Equal(dynparam.ByType{}) || len(err.Error()) > 1<<17 {
				t.Errorf("got %v beside the error %q", b, err)
			}
			return
		}
		if again, err := dynparam.ByTypeFromProto(b.ToProto()); err != nil || !again.Equal(b) {
			t.Errorf("it reads back as %v, %v", again, err)
		}
		for name := range m.GetResourceTypeConstraints() {
			if c := b.For(name); !must(dynparam.FromProto(c.ToProto())).Equal(c) {
				t.Errorf("the constraints for %q read back as others than %v", name, c)
			}
		}
	})
}
