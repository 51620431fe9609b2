package grpcbridge_test

import (
	"testing"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer/weightedtarget"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// gRFC A78, "Optional xDS Locality Label". Should it fail after an update of gRPC, the metrics of
// weighted_round_robin have no locality with dynxds.
func TestWithLocality(t *testing.T) {
	t.Parallel()
	type key struct{}
	before := attributes.New(key{}, "kept")
	for _, locality := range []string{`{region="r", zone="z\"\\", sub_zone="ü"}`, "x"} {
		got := grpcbridge.WithLocality(before, locality)
		if l := weightedtarget.LocalityFromResolverState(resolver.State{Attributes: got}); l != locality {
			t.Errorf("the locality is %q, want %q", l, locality)
		}
		if v := got.Value(key{}); v != "kept" {
			t.Errorf("another attribute is %v now", v)
		}
	}
	if l := weightedtarget.LocalityFromResolverState(resolver.State{Attributes: grpcbridge.WithLocality(nil, "x")}); l != "x" {
		t.Errorf("without other attributes the locality is %q, want x", l)
	}
}
