package leaf_test

import (
	"fmt"
	"slices"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/experimental/balancer/weight"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// versioned are endpoints with their versions as metadata, those without a version having none.
func versioned(t *testing.T, versions ...string) []xdsresource.Endpoint {
	var all []xdsresource.Endpoint
	for i, v := range versions {
		e := endpoint(fmt.Sprintf("1.1.1.1:%d", i), 1, xdsresource.HealthHealthy)
		if v != "" {
			wire, err := proto.Marshal(&corepb.Metadata{FilterMetadata: map[string]*structpb.Struct{
				"envoy.lb": {Fields: map[string]*structpb.Value{"version": structpb.NewStringValue(v)}},
			}})
			xdstest.NoError(t, err)
			e.Metadata = string(wire)
		}
		all = append(all, e)
	}
	return all
}

// A policy of the program's own gets the metadata of its endpoints, and its changes.
func TestPolicyGetsMetadata(t *testing.T) {
	f := newSpied(t)
	for i, want := range [][]string{{"v1", "v2", "", "v1"}, {"v1", "v3", "", "v1"}} {
		for range 2 { // The second time without a change.
			f.Loop.Do(func() { f.leaf.Update(versioned(t, want...), "") })
		}
		if len(f.spy.updates) != i+1 {
			t.Fatalf("the policy got %d updates, want %d", len(f.spy.updates), i+1)
		}
		list := f.spy.updates[i].ResolverState.Endpoints
		var got []string
		for _, e := range list {
			got = append(got, xdsresource.MetadataOf(e).GetFilterMetadata()["envoy.lb"].GetFields()["version"].GetStringValue())
		}
		if !slices.Equal(got, want) || xdsresource.MetadataOf(list[2]) != nil {
			t.Errorf("the versions of the endpoints are %q, want %q", got, want)
		}
		if list[0].Attributes != list[3].Attributes {
			t.Error("endpoints with equal metadata have attributes of their own")
		}
	}
}

// A policy that does not know endpoints, such as one that is made with gRPC's package base, gets the
// addresses of them all, with the attributes of the endpoints.
func TestPolicyGetsAddresses(t *testing.T) {
	f := newSpied(t)
	endpoints := versioned(t, "v1", "v2")
	endpoints[0].Weight, endpoints[1].Additional = 3, []string{"2.2.2.2:2"}
	f.Loop.Do(func() { f.leaf.Update(endpoints, "") })
	type seen struct {
		Addr, Version string
		Weight        uint32
	}
	var got []seen
	for _, a := range f.spy.updates[0].ResolverState.Addresses {
		//lint:ignore SA1019 It is where policies look that do not know endpoints.
		e := resolver.Endpoint{Attributes: a.BalancerAttributes}
		version := xdsresource.MetadataOf(e).GetFilterMetadata()["envoy.lb"].GetFields()["version"].GetStringValue()
		got = append(got, seen{a.Addr, version, weight.FromEndpoint(e).Weight})
	}
	xdstest.Equal(t, "addresses that the policy got",
		[]seen{{"1.1.1.1:0", "v1", 3}, {"1.1.1.1:1", "v2", 1}, {"2.2.2.2:2", "v2", 1}}, got)
}
