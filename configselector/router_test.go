package configselector_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func edits(name string, replace bool, values ...string) xdsresource.HeaderEdits {
	return xdsresource.HeaderEdits{{{Name: name, Replace: replace, Present: values, Absent: values}}}
}

// TestHashIsComputedWhenAsked: gRFC A42: from the metadata that the
// application gave, the same for every pick of the RPC, random without policy.
func TestHashIsComputedWhenAsked(t *testing.T) {
	t.Parallel()
	route := toC()
	route.HashPolicies = []xdsresource.HashPolicy{{Header: "user"}}
	hash := func(w *world, md ...string) uint64 {
		given := mustUnary(t, metadata.AppendToOutgoingContext(t.Context(), md...), w.s, "/s/m")
		d := decision.FromContext(given)
		first := d.Hash()
		if again := d.Hash(); again != first {
			t.Errorf("the hash was %d and is %d", first, again)
		}
		return first
	}
	by := newWorld(t, worldConfig{routes: []*xdsresource.Route{route}})
	if a, b := hash(by, "user", "u1"), hash(by, "user", "u1"); a != b {
		t.Errorf("one user has hashes %d and %d", a, b)
	}
	if a, b := hash(by, "user", "u1"), hash(by, "user", "u2"); a == b {
		t.Errorf("two users have hash %d", a)
	}
	// Headers that the application gives by call options count, also behind a filter.
	bySubtype := toC()
	bySubtype.HashPolicies = []xdsresource.HashPolicy{{Header: "content-type"}}
	w := newWorld(t, worldConfig{routes: []*xdsresource.Route{bySubtype}, listener: chainOf(marking("f"))})
	subtypes := map[uint64]bool{}
	for _, subtype := range []string{"", "proto", "json", "json"} {
		given := mustUnary(t, t.Context(), w.s, "/s/m", grpc.CallContentSubtype(subtype))
		subtypes[decision.FromContext(given).Hash()] = true
	}
	xdstest.Equal(t, "hashes of three content types", 3, len(subtypes))
	for name, w := range map[string]*world{"no header": by, "no policy": newWorld(t, worldConfig{})} {
		seen := map[uint64]bool{}
		for range 16 {
			seen[hash(w)] = true
		}
		if len(seen) < 8 {
			t.Errorf("%s: 16 RPCs have %d hashes", name, len(seen))
		}
	}
}
