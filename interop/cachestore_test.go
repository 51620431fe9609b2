package interop_test

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/cachestore"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/mesh/meshtest/load"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
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
	for name, builder := range map[string]func(s *meshtest.Server) (grpcresolver.Builder, error){
		"dynxds": func(s *meshtest.Server) (grpcresolver.Builder, error) {
			return resolver.NewBuilder(s.Bootstrap("node"))
		},
		"dynxds over delta": func(s *meshtest.Server) (grpcresolver.Builder, error) {
			return resolver.NewBuilder(s.Bootstrap("node", testutils.ServerFeatures("delta")))
		},
		"gRPC-Go": func(s *meshtest.Server) (grpcresolver.Builder, error) {
			return xds.NewXDSResolverWithConfigForTesting(s.Bootstrap("node"))
		},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			cache := cachev3.NewSnapshotCache(false, cachev3.IDHash{}, nil)
			stores := cachestore.New(cache)
			t.Cleanup(stores.Close)
			w := &world{blue: testutils.StartBackend(t, "blue"), green: testutils.StartBackend(t, "green")}
			setSnapshot(t, cache, "1", w.initial()...)
			s := meshtest.StartServer(t, meshtest.ControlPlaneOptions(controlplane.Options{StoreFor: stores.For}))
			b, err := builder(s)
			xdstest.NoError(t, err)
			t.Cleanup(func() {
				for _, c := range s.Control().Clients() {
					for _, typ := range c.Types {
						if typ.NACK != nil {
							t.Errorf("%s was rejected: %v", typ.TypeURL, typ.NACK.Err)
						}
					}
				}
			})
			cc := dial(t, b, "xds:///"+service)
			l := load.Start(t, cc)
			l.WaitForBackends(t, "blue")

			setSnapshot(t, cache, "2", listener("routes"), routes("routes", "blue"), cluster("blue", "blue"), w.endpoints("blue", w.green))
			l.WaitForBackends(t, "green")
			if name == "gRPC-Go" {
				return // It fails RPCs when a route moves to another cluster.
			}
			setSnapshot(t, cache, "3", listener("routes"), routes("routes", "other"),
				cluster("blue", "blue"), w.endpoints("blue", w.green), cluster("other", "other"), w.endpoints("other", w.blue))
			l.WaitForBackends(t, "blue")
		})
	}
}

// members records the names of a collection and signals each change.
type members struct {
	mu      sync.Mutex
	names   map[string]bool
	changed chan struct{}
}

func (m *members) MemberChanged(member xdsclient.Member, _ any, err error, done func()) {
	m.mu.Lock()
	if err != nil {
		delete(m.names, member.Name)
	} else {
		m.names[member.Name] = true
	}
	m.mu.Unlock()
	m.CollectionChanged(nil, done)
}

func (m *members) CollectionChanged(_ error, done func()) {
	select {
	case m.changed <- struct{}{}:
	default: // There is a signal already.
	}
	done()
}

func (m *members) AmbientError(_ xdsclient.Member, _ error, done func()) { done() }

// wait returns when the members have these names.
func (m *members) wait(t *testing.T, names ...string) {
	t.Helper()
	ctx := testutils.Context(t)
	for {
		m.mu.Lock()
		got := slices.Sorted(maps.Keys(m.names))
		m.mu.Unlock()
		if slices.Equal(got, names) {
			return
		}
		select {
		case <-m.changed:
		case <-ctx.Done():
			t.Fatalf("the members are %v, want %v", got, names)
		}
	}
}

// The wildcard has what the cache has; a name that the cache lacks is answered, as missing.
func TestWildcardOverACacheOfGoControlPlane(t *testing.T) {
	t.Parallel()
	cache := cachev3.NewSnapshotCache(false, cachev3.IDHash{}, nil)
	stores := cachestore.New(cache)
	t.Cleanup(stores.Close)
	setSnapshot(t, cache, "1", cluster("a", "a"), cluster("b", "b"))
	s := meshtest.StartServer(t, meshtest.ControlPlaneOptions(controlplane.Options{StoreFor: stores.For, RemovalDelay: -1}))
	config, err := bootstrap.Parse("test", s.Bootstrap("node", testutils.ServerFeatures("delta")))
	xdstest.NoError(t, err)
	client, err := xdsclient.New(config, xdsclient.Options{})
	xdstest.NoError(t, err)
	t.Cleanup(client.Close)
	all := &members{names: make(map[string]bool), changed: make(chan struct{}, 1)}
	t.Cleanup(client.WatchCollection(xdsresource.ClusterType, "*", all))
	all.wait(t, "a", "b")
	setSnapshot(t, cache, "2", cluster("b", "b"), cluster("c", "c"))
	all.wait(t, "b", "c")

	missing := make(chan error, 1)
	t.Cleanup(client.Watch(xdsresource.ClusterType, "no-such-cluster", watcherFunc(func(err error) {
		select {
		case missing <- err:
		default:
		}
	})))
	var wrong *xdsclient.Error
	if err := <-missing; !errors.As(err, &wrong) || wrong.Kind != xdsclient.KindDoesNotExist {
		t.Errorf("a cluster that the cache lacks: %v", err)
	}
}

// watcherFunc gets the errors of a resource, nil if it is there.
type watcherFunc func(error)

func (f watcherFunc) ResourceChanged(_ any, err error, done func()) { f(err); done() }
func (f watcherFunc) AmbientError(_ error, done func())             { done() }
