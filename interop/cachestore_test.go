package interop_test

import (
	"maps"
	"slices"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/cachestore"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/mesh/meshtest/load"
	"github.com/dynxds/dynxds/testutils"
)

// setSnapshot makes the resources what the cache has for the clients of the tests.
func setSnapshot(t *testing.T, cache cachev3.SnapshotCache, version string, resources ...proto.Message) {
	t.Helper()
	byType := map[resource.Type][]types.Resource{}
	for _, r := range resources {
		typeURL := resource.APITypePrefix + string(r.ProtoReflect().Descriptor().FullName())
		byType[typeURL] = append(byType[typeURL], r)
	}
	snapshot, err := cachev3.NewSnapshot(version, byType)
	xdstest.NoError(t, err)
	xdstest.NoError(t, cache.SetSnapshot(t.Context(), "node", snapshot))
}

// A cache of go-control-plane is served by our control plane: to dynxds, over both variants of the
// protocol, and to gRPC-Go. A change of the cache reaches the RPCs, and fails none.
func TestCacheOfGoControlPlane(t *testing.T) {
	t.Parallel()
	for _, peer := range []string{grpcGo, ours, oursOnDelta} {
		xdstest.Parallel(t, peer, func(t *testing.T) {
			cache := cachev3.NewSnapshotCache(false, cachev3.IDHash{}, nil)
			stores := cachestore.New(cache)
			t.Cleanup(stores.Close)
			w := &world{blue: testutils.StartBackend(t, "blue"), green: testutils.StartBackend(t, "green")}
			setSnapshot(t, cache, "1", w.initial()...)
			s := meshtest.Start(t, meshtest.Options{Control: controlplane.Options{StoreFor: stores.For}})
			t.Cleanup(func() {
				for _, c := range s.Control().Clients() {
					for _, typ := range c.Types {
						if typ.NACK != nil {
							t.Errorf("%s was rejected: %v", typ.TypeURL, typ.NACK.Err)
						}
					}
				}
			})
			cc := dial(t, builderOf(t, peer, bootstrapOf(peer, s)), "xds:///"+service)
			l := load.Start(t, cc)
			l.WaitForBackends(t, "blue")

			setSnapshot(t, cache, "2", listener("routes"), routes("routes", "blue"), cluster("blue", "blue"), w.endpoints("blue", w.green))
			l.WaitForBackends(t, "green")
			if peer == grpcGo {
				return // It fails RPCs when a route moves to another cluster.
			}
			setSnapshot(t, cache, "3", listener("routes"), routes("routes", "other"),
				cluster("blue", "blue"), w.endpoints("blue", w.green), cluster("other", "other"), w.endpoints("other", w.blue))
			l.WaitForBackends(t, "blue")
		})
	}
}

// The wildcard has what the cache has; a name that the cache lacks is answered, as missing.
func TestWildcardOverACacheOfGoControlPlane(t *testing.T) {
	t.Parallel()
	cache := cachev3.NewSnapshotCache(false, cachev3.IDHash{}, nil)
	stores := cachestore.New(cache)
	t.Cleanup(stores.Close)
	setSnapshot(t, cache, "1", cluster("a", "a"), cluster("b", "b"))
	s := meshtest.Start(t, meshtest.Options{Control: controlplane.Options{StoreFor: stores.For, RemovalDelay: -1}})
	stream, err := discoverypb.NewAggregatedDiscoveryServiceClient(dial(t, nil, "passthrough:///"+s.Addr())).DeltaAggregatedResources(testutils.Context(t))
	xdstest.NoError(t, err)
	names := map[string]bool{}
	next := &discoverypb.DeltaDiscoveryRequest{Node: &corepb.Node{Id: "node"}, TypeUrl: xdsmsg.ClusterType, ResourceNamesSubscribe: []string{"*"}}
	exchange := func() *discoverypb.DeltaDiscoveryResponse {
		t.Helper()
		xdstest.NoError(t, stream.Send(next))
		response, err := stream.Recv()
		xdstest.NoError(t, err)
		next = &discoverypb.DeltaDiscoveryRequest{TypeUrl: xdsmsg.ClusterType, ResponseNonce: response.GetNonce()}
		return response
	}
	has := func(want ...string) {
		t.Helper()
		for !slices.Equal(slices.Sorted(maps.Keys(names)), want) {
			response := exchange()
			for _, r := range response.GetResources() {
				names[r.GetName()] = true
			}
			for _, name := range response.GetRemovedResources() {
				delete(names, name)
			}
		}
	}
	has("a", "b")
	setSnapshot(t, cache, "2", cluster("b", "b"), cluster("c", "c"))
	has("b", "c")
	next.ResourceNamesSubscribe = []string{"no-such-cluster"}
	xdstest.Equal(t, "what the cache lacks", []string{"no-such-cluster"}, exchange().GetRemovedResources())
}
