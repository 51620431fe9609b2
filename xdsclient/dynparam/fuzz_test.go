package dynparam

import (
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// checkRead checks the limits of constraints that were read, and of the error.
func checkRead(t *testing.T, c Constraints, err error) {
	t.Helper()
	if err == nil {
		checkForms(t, c)
		if text := c.String(); !utf8.ValidString(text) || len(text) > 1100 {
			t.Errorf("String returns %q", text)
		}
		if len(c.Key()) > maxSize || len(c.keys()) > maxKeys {
			t.Errorf("%d keys and %d bytes are beyond the limits", len(c.keys()), len(c.Key()))
		}
		return
	}
	if !c.IsZero() || !utf8.ValidString(err.Error()) || len(err.Error()) > 1<<17 {
		t.Errorf("got %v beside the error %q", c, err)
	}
	if faults := (*Faults)(nil); errors.As(err, &faults) && len(faults.List) == 0 {
		t.Error("the report is empty")
	}
}

// FuzzFromProto checks that any message of a peer is read or rejected within the limits, and
// that accepted constraints match as TP2 has it.
func FuzzFromProto(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 50 {
		f.Add(must(proto.Marshal(randomMessage(r))), "a", "5", "b", "prod")
	}
	f.Add([]byte{0x0a, 0x00}, "", "", "", "")
	f.Fuzz(func(t *testing.T, data []byte, key1, value1, key2, value2 string) {
		m := new(discoveryv3.DynamicParameterConstraints)
		if proto.Unmarshal(data, m) != nil {
			return
		}
		c, err := FromProto(m)
		checkRead(t, c, err)
		values := map[string]string{key1: value1, key2: value2}
		p, paramsErr := NewParameters(values)
		if paramsErr != nil || err != nil {
			return
		}
		if got, want := c.Match(p), oracle(m, values); got != want {
			t.Errorf("%v matches %v: %t, want %t", c, p, got, want)
		}
		if got := c.Choose([]Parameters{p, {}}); got.Index < 0 {
			t.Errorf("%v does not match a resource without parameters", c)
		}
	})
}

// FuzzJSON is FuzzFromProto for JSON in a bootstrap file.
func FuzzJSON(f *testing.F) {
	for line := range strings.Lines(string(must(os.ReadFile("testdata/cases.txt")))) {
		if text, ok := strings.CutPrefix(line, "json "); ok {
			f.Add([]byte(text))
		}
	}
	r := rand.New(rand.NewPCG(11, 12))
	for range 20 {
		f.Add(must(must(FromProto(randomMessage(r))).MarshalJSON()))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := fromJSON(data)
		checkRead(t, c, err)
	})
}
