package dynparam

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"

	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// message reads a DynamicParameterConstraints as TP2 writes it, in braces.
func message(t testing.TB, text string) *discoveryv3.DynamicParameterConstraints {
	t.Helper()
	inner, ok := strings.CutPrefix(strings.TrimSpace(text), "{")
	inner, closed := strings.CutSuffix(inner, "}")
	m := new(discoveryv3.DynamicParameterConstraints)
	if err := prototext.Unmarshal([]byte(inner), m); err != nil || !ok || !closed {
		t.Fatalf("not a message in braces: %v\n%s", err, text)
	}
	return m
}

// constraints is message for constraints that are right.
func constraints(t testing.TB, text string) Constraints {
	t.Helper()
	return must(FromProto(message(t, text)))
}

// parameters reads parameters as TP2 writes them, for example
// "{env=prod,version=v1}".
func parameters(t testing.TB, text string) Parameters {
	t.Helper()
	values := make(map[string]string)
	for pair := range strings.SplitSeq(strings.Trim(text, "{}"), ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok && pair != "" {
			t.Fatalf("%q is not a key and a value", pair)
		}
		if ok {
			values[key] = value
		}
	}
	return must(NewParameters(values))
}

// fromJSON returns what UnmarshalJSON makes of no constraints.
func fromJSON(data []byte) (c Constraints, err error) {
	err = c.UnmarshalJSON(data)
	return c, err
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// problems returns what an error lists, with the paths.
func problems(t testing.TB, err error) []string {
	t.Helper()
	list := []string{}
	if err == nil {
		return list
	}
	var faults *Faults
	if !errors.As(err, &faults) {
		t.Fatalf("the error is no *Faults: %v", err)
	}
	for _, fault := range faults.List {
		list = append(list, fault.String())
	}
	return list
}

// equal compares what a test got with what it wants.
func equal[T any](t testing.TB, what string, want, got T, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }
