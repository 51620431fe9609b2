package dynparam

import "testing"

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
