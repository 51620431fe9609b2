package controlplane_test

import (
	"testing"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	ctx := testContext(t)
	select {
	case v := <-from:
		return v
	case <-ctx.Done():
		t.Fatal("no demand")
		panic("unreachable")
	}
}

func assignment(name string) *endpointpb.ClusterLoadAssignment {
	return &endpointpb.ClusterLoadAssignment{ClusterName: name}
}

// given is a resource with a version of its own.
func given(t testing.TB, version, name string, m proto.Message, pairs ...string) *controlplane.Resource {
	t.Helper()
	packed, ok := m.(*anypb.Any)
	if !ok {
		packed = new(anypb.Any)
		xdstest.NoError(t, packed.MarshalFrom(m))
	}
	r, err := controlplane.NewResource(&discoverypb.Resource{
		Name: name, Version: version, Resource: packed, DynamicParameters: parameters(pairs...),
	})
	xdstest.NoError(t, err)
	return r
}
