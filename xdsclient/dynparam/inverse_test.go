package dynparam

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// What Parameters.Key gives is read back, in any order of the keys.
func TestUnmarshalParameters(t *testing.T) {
	t.Parallel()
	entry := func(key, value string) string {
		return string(appendBytes(nil, 8, appendText(appendText(nil, 1, key), 2, value)))
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
		{"not UTF-8", entry("a", "\xff"), "", "UTF-8"},
		{"too large", entry("a", strings.Repeat("x", MaxSize)), "", "expected at most"},
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

// Constraints name a variant if they have one exact value for each key.
func TestParametersOfConstraints(t *testing.T) {
	t.Parallel()
	exact := func(key, value string) KeyConstraints { return Require(key, Value(value)) }
	for _, tt := range []struct {
		name string
		keys []KeyConstraints
		want string
	}{
		{"none", nil, "{}"},
		{"exact values", []KeyConstraints{exact("b", "x"), exact("a", "7")}, "{a=7,b=x}"},
		{"a range", []KeyConstraints{Require("a", InRanges(Range{7, 7}))}, ""},
		{"two values", []KeyConstraints{Require("a", Value("1"), Value("2"))}, ""},
		{"anything but a value", []KeyConstraints{Exclude("a", Value("1"))}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := New(tt.keys...)
			if err != nil {
				t.Fatal(err)
			}
			p, ok := c.Parameters()
			if ok != (tt.want != "") || ok && p.String() != tt.want {
				t.Fatalf("%v has the parameters %v, %v, want %q", c, p, ok, tt.want)
			}
			if ok {
				if !c.Match(p) {
					t.Errorf("%v does not match %v", c, p)
				}
				if again, err := Exact(p.Map()); err != nil || !again.Equal(c) {
					t.Errorf("Exact of %v is %v, %v, want %v", p, again, err, c)
				}
			}
		})
	}
}

// What is read has the form of what is made, so that equal parameters are equal.
func FuzzParameters(f *testing.F) {
	f.Add([]byte(appendBytes(nil, 8, appendText(appendText(nil, 1, "a"), 2, "1"))))
	f.Add(protowire.AppendTag(nil, 8, protowire.VarintType))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := UnmarshalParameters(b)
		if err != nil {
			if !p.IsZero() {
				t.Fatalf("got %v beside error %v", p, err)
			}
			return
		}
		again, err := NewParameters(p.Map())
		if err != nil || !again.Equal(p) {
			t.Fatalf("%v became %v, %v", p, again, err)
		}
	})
}
