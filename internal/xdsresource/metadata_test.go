package xdsresource

import (
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
)

// What a policy reads is what the control plane has sent.
func TestMetadataOfEndpoints(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*corepb.Metadata{
		"untyped": {FilterMetadata: map[string]*structpb.Struct{
			"envoy.lb": {Fields: map[string]*structpb.Value{"version": structpb.NewStringValue("v1")}}, "istio": {},
		}},
		"typed": {TypedFilterMetadata: map[string]*anypb.Any{"k": xdsmsg.Any(wrapperspb.String("v"))}},
		"none":  nil,
		"empty": {},
	} {
		pb := xdsmsg.Endpoints("c", xdsmsg.In("zone", "1.1.1.1:1", "1.1.1.1:2"))
		for _, e := range pb.Endpoints[0].LbEndpoints {
			e.Metadata = proto.CloneOf(m)
		}
		all := mustDecode[Endpoints](t, EndpointsType, pb).Localities[0].Endpoints
		want := m
		if name == "empty" {
			want = nil
		}
		for _, e := range all {
			got := MetadataOf(WithMetadata(resolver.Endpoint{}, e.Metadata))
			if (got == nil) != (want == nil) || !proto.Equal(got, want) {
				t.Errorf("%s: the metadata is %v, want %v", name, got, want)
			}
		}
	}
	if MetadataOf(resolver.Endpoint{}) != nil {
		t.Error("an endpoint without attributes has metadata")
	}
}

// Policies that do not read metadata do not get it.
func TestKnownPolicies(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"round_robin": true, "pick_first": true, "weighted_round_robin": true, "least_request_experimental": true,
		PolicyRingHash: true, PolicyMaglev: true, PolicySlowStart: true, PolicyRandom: true, "my_policy": false,
	} {
		if got := IsKnownPolicy(name); got != want {
			t.Errorf("%s is known: %v, want %v", name, got, want)
		}
	}
}
