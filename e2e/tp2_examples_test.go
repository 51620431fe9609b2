package e2e_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// The worked examples of xRFC TP2 (2021-08), by heading, from the control plane's
// variants to the backend that answers an RPC.

// TP2, "xDS Minor/Patch Version Negotiation": of the variants that a client supports it
// gets the newest.
func TestTP2VersionNegotiation(t *testing.T) {
	everyWay(t)
	t.Parallel()
	m := newVariantMesh(t)
	all := m.clustersFor("without", "with")
	m.set(xdsmsg.DefaultListener(service, "routes"))
	for patch := range 6 {
		content := map[bool]string{false: "without", true: "with"}[patch == 5]
		m.SetVariant(t, map[string]string{"xds.version.patch": fmt.Sprint(patch)}, routesTo("routes", content))
	}
	for newest, want := range map[int]*testutils.Backend{0: all[0], 3: all[0], 4: all[0], 5: all[1], 9: all[1]} {
		versions := map[string]any{"constraints": []any{
			map[string]any{"integer_range_list": map[string]any{"range": []any{map[string]any{"min_value": 0, "max_value": newest}}}},
		}}
		cc := dialWith(t, "xds:///"+service, m.as(fmt.Sprint(t.Name(), newest), testutils.TopLevel("dynamic_parameter_constraints", map[string]any{
			"envoy.config.route.v3.RouteConfiguration": map[string]any{"key_constraints": map[string]any{"xds.version.patch": versions}},
		})))
		mustReach(t, cc, unary, want)
	}
	m.checkNoAmbiguousChoice()
}

// TP2, "Sharding Clusters": the program says which shards it was assigned, and changes
// them while RPCs go on. Channels watch the clusters that their routes name; for the
// glob collection of the example see TestTP2ShardingClustersByGlob.
func TestTP2ShardingClusters(t *testing.T) {
	everyWay(t)
	t.Parallel()
	m := newVariantMesh(t)
	mine, other := testutils.StartBackend(t, "shard 60"), testutils.StartBackend(t, "shard 30")
	m.set(chain(service, xdsmsg.PathRoute(emptyMethod, "other"), toCluster("mine")))
	m.set(endpointsOf("mine", mine), endpointsOf("other", other))
	m.SetVariant(t, map[string]string{"shards": "60"}, xdsmsg.EDSCluster("mine", ""))
	m.Update(t, func(tx *controlplane.Tx) {
		// An error in place of a missing resource, as SotW does not report those.
		tx.SetVariantError(xdsmsg.ClusterType, "other", map[string]string{"shards": "0"}, status.New(codes.NotFound, "in none of your shards"))
		tx.SetVariant(map[string]string{"shards": "30"}, xdsmsg.EDSCluster("other", ""))
	})
	ranges := func(more ...dynparam.Range) dynparam.ByType {
		return constrain(t, xdsmsg.ClusterType, dynparam.Require("shards", dynparam.InRanges(append(more,
			dynparam.Range{Min: 4, Max: 6}, dynparam.Range{Min: 11, Max: 15}, dynparam.Range{Min: 46, Max: 90})...)))
	}
	none, all := dynparam.AtMost(0), dynparam.Range{Min: 30, Max: 30}
	constrainChannels(t, m.bootstrap(), ranges(none))
	cc := dialWith(t, "xds:///"+service, m.bootstrap())
	mustReach(t, cc, unary, mine)
	err := cc.Invoke(testutils.Context(t), emptyMethod, empty, new(testgrpc.Empty))
	checkStatus(t, err, codes.Unavailable, `"other"`, "in none of your shards")

	before := mine.Count()
	constrainChannels(t, m.bootstrap(), ranges(all))
	m.awaitLocator(xdsmsg.ClusterType, "other", ranges(all))
	for {
		// Until the move has reached the channel the RPC fails as it did.
		err := cc.Invoke(testutils.Context(t), emptyMethod, empty, new(testgrpc.Empty))
		mustReach(t, cc, unary, mine)
		if err == nil {
			break
		}
		checkStatus(t, err, codes.Unavailable, "in none of your shards")
	}
	if other.Count() == 0 || mine.Count() == before {
		t.Errorf("%d RPCs reached the new shard, and %d the old one", other.Count(), mine.Count()-before)
	}
}

// tp2Endpoints serves the authority's listener, routes and cluster, and returns the
// name of its endpoints.
func (m *mesh) tp2Endpoints() string {
	m.t.Helper()
	cluster, endpoints := in(tp2, xdsmsg.ClusterType, "c"), in(tp2, xdsmsg.EndpointType, "e")
	m.set(xdsmsg.DefaultListener(tp2Listener, tp2Routes), routesTo(tp2Routes, cluster), xdsmsg.EDSCluster(cluster, endpoints))
	return endpoints
}

// TP2, "Sharding Endpoints": each client has its own subset, and the control plane
// gives one of them another one without failing an RPC.
func TestTP2ShardingEndpoints(t *testing.T) {
	everyWay(t)
	overLinks(t, func(t *testing.T) {
		m := newVariantMesh(t)
		endpoints := m.tp2Endpoints()
		subsets := backends(t, "123", "456", "789")
		for _, b := range subsets {
			m.SetVariant(t, map[string]string{"subset_id": b.ID()}, endpointsOf(endpoints, b))
		}
		var assigned atomic.Pointer[map[string]string]
		assigned.Store(&map[string]string{"one": "123", "two": "456"})
		m.SetDPDS(t, dpdsName, func(node *corepb.Node) (dynparam.ByType, error) {
			return constrain(t, xdsmsg.EndpointType, is("subset_id", (*assigned.Load())[node.GetId()])), nil
		})
		one, two := dialWith(t, tp2Target, m.as("one", withDPDS())), dialWith(t, tp2Target, m.as("two", withDPDS()))
		mustReach(t, one, unary, subsets[0])
		mustReach(t, two, unary, subsets[1])

		load1, load2 := startLoad(t, one), startLoad(t, two)
		assigned.Store(&map[string]string{"one": "789", "two": "456"})
		m.Store().RefreshDPDS(dpdsName, nil)
		load1.await(t, subsets[2])
		load2.await(t, subsets[1])
		load1.Stop(t)
		load2.Stop(t)
		m.checkNoAmbiguousChoice()
	})
}

// TP2, "Selecting Cluster Based on ACL": one client may go to the endpoints directly,
// the other one goes through the proxy. A client that is removed from the list moves, and
// resources for others are denied.
func TestTP2SelectingClusterBasedOnACL(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		m := newVariantMesh(t)
		all := m.clustersFor("direct", "proxy")
		direct, proxy := all[0], all[1]
		secret, secretRoutes := in(tp2, xdsmsg.ListenerType, "secret"), in(tp2, xdsmsg.RouteType, "secret")
		m.set(xdsmsg.DefaultListener(tp2Listener, tp2Routes), xdsmsg.DefaultListener(secret, secretRoutes))
		m.SetVariant(t, map[string]string{"use_proxy": "false"}, routesTo(tp2Routes, "direct"))
		m.SetVariant(t, map[string]string{"use_proxy": "true"}, routesTo(tp2Routes, "proxy"))
		m.SetVariant(t, map[string]string{"use_proxy": "false"}, xdsmsg.RouteConfig(secretRoutes, "secret", toCluster("direct")))
		m.Update(t, func(tx *controlplane.Tx) {
			tx.SetVariantError(xdsmsg.RouteType, secretRoutes, map[string]string{"use_proxy": "true"}, status.New(codes.PermissionDenied, "not for guests"))
		})
		var revoked atomic.Bool
		m.SetDPDS(t, dpdsName, func(node *corepb.Node) (dynparam.ByType, error) {
			return constrain(t, xdsmsg.RouteType, is("use_proxy", fmt.Sprint(revoked.Load() || node.GetId() != "friend"))), nil
		})

		friend, guest := m.as("friend", withDPDS()), m.as("guest", withDPDS())
		toDirect, toProxy := dialWith(t, tp2Target, friend), dialWith(t, tp2Target, guest)
		mustReach(t, toDirect, unary, direct)
		mustReach(t, toProxy, unary, proxy)
		mustReach(t, dialWith(t, "xds://"+tp2+"/secret", friend), unary, direct)
		mustFail(t, dialWith(t, "xds://"+tp2+"/secret", guest), secretRoutes, "not for guests", "PermissionDenied")

		l, other := startLoad(t, toDirect), startLoad(t, toProxy)
		revoked.Store(true)
		m.Store().RefreshDPDS(dpdsName, func(node *corepb.Node) bool { return node.GetId() == "friend" })
		l.await(t, proxy)
		l.Stop(t)
		other.Stop(t)
	})
}

// eachSelection calls f for each client of TP2, "Dynamic Route Selection", with the
// backends that answer the two kinds of its RPCs: by the route for env=prod, by that for
// version=v1, or by neither.
func eachSelection(f func(env, version, emptyCall, unaryCall string)) {
	for _, env := range []string{"prod", "canary", "test"} {
		for _, version := range []string{"v1", "v2", "v3"} {
			emptyCall, unaryCall := "rest", "rest"
			if env == "prod" {
				emptyCall = "prod"
			}
			if version == "v1" {
				unaryCall = "v1"
			}
			f(env, version, emptyCall, unaryCall)
		}
	}
}

// selectedRoutes puts a variant of the routes into the store that has the given ones.
func (m *mesh) selectedRoutes(name string, parameters map[string]string, emptyCall, unaryCall string) {
	m.t.Helper()
	m.SetVariant(m.t, parameters, xdsmsg.RouteConfig(name, service,
		xdsmsg.PathRoute(emptyMethod, emptyCall), xdsmsg.PathRoute(unaryMethod, unaryCall), toCluster("rest")))
}

// checkSelection makes an RPC for each of the two routes.
func checkSelection(t *testing.T, target string, bootstrap []byte, emptyCall, unaryCall string) {
	t.Helper()
	cc := dialWith(t, target, bootstrap)
	got := [2]string{answerer(t, cc, emptyMethod), answerer(t, cc, unaryMethod)}
	if want := [2]string{emptyCall, unaryCall}; got != want {
		t.Errorf("the RPCs were answered by %q, want %q", got, want)
	}
}

// nodeMetadata is that of a client of "Dynamic Route Selection".
func nodeMetadata(env, version string) testutils.BootstrapOption {
	return testutils.NodeField("metadata", map[string]any{"env": env, "version": version})
}

// TP2, "Dynamic Route Selection", the first table: nine variants of four contents, and
// clients whose node metadata are their constraints ("Migrating From Node Metadata").
func TestTP2DynamicRouteSelectionWithNineVariants(t *testing.T) {
	t.Parallel()
	m := newVariantMesh(t)
	m.set(xdsmsg.DefaultListener(service, "routes"))
	m.clustersFor("prod", "v1", "rest")
	eachSelection(func(env, version, emptyCall, unaryCall string) {
		m.selectedRoutes("routes", map[string]string{"env": env, "version": version}, emptyCall, unaryCall)
	})
	eachSelection(func(env, version, emptyCall, unaryCall string) {
		checkSelection(t, "xds:///"+service, m.as(env+version, nodeMetadata(env, version),
			testutils.TopLevel("node_metadata_constraints", []string{"env", "version"})), emptyCall, unaryCall)
	})
	m.checkNoAmbiguousChoice()
}

// TP2, "Dynamic Route Selection", the second table: the DPDS resource, which depends on
// the node's metadata, makes four variants of the nine, with invert.
func TestTP2DynamicRouteSelectionWithFourVariants(t *testing.T) {
	everyWay(t)
	t.Parallel()
	m := newVariantMesh(t)
	m.set(xdsmsg.DefaultListener(tp2Listener, tp2Routes))
	m.clustersFor("prod", "v1", "rest")
	eachSelection(func(env, version, emptyCall, unaryCall string) {
		if env != "prod" {
			env = "NOT_prod"
		}
		if version != "v1" {
			version = "NOT_v1"
		}
		m.selectedRoutes(tp2Routes, map[string]string{"env": env, "version": version}, emptyCall, unaryCall)
	})
	if got := len(m.Store().Variants(xdsmsg.RouteType, tp2Routes)); got != 4 {
		t.Errorf("there are %d variants, want 4", got)
	}
	m.SetDPDS(t, dpdsName, func(node *corepb.Node) (dynparam.ByType, error) {
		metadata := node.GetMetadata().GetFields()
		key := func(key, value string) dynparam.KeyConstraints {
			if metadata[key].GetStringValue() == value {
				return is(key, value)
			}
			return dynparam.Exclude(key, dynparam.Value(value))
		}
		if len(metadata) == 0 {
			return dynparam.ByType{}, errors.New("a client without metadata")
		}
		return constrain(t, xdsmsg.RouteType, key("env", "prod"), key("version", "v1")), nil
	})
	eachSelection(func(env, version, emptyCall, unaryCall string) {
		checkSelection(t, tp2Target, m.as(env+version, nodeMetadata(env, version), withDPDS()), emptyCall, unaryCall)
	})
	m.checkNoAmbiguousChoice()
}

// TP2, "Matching Ambiguity", the expected order of changes, under load: no RPC fails in
// any of the four steps.
func TestTP2TransitionInFourSteps(t *testing.T) {
	everyWay(t)
	overLinks(t, func(t *testing.T) {
		m := newVariantMesh(t)
		m.set(xdsmsg.DefaultListener(service, "routes"))
		all := m.clustersFor("prod", "prod v1", "prod v2", "test", "test v1", "test v2")
		for _, env := range []string{"prod", "test"} {
			m.SetVariant(t, map[string]string{"env": env}, routesTo("routes", env))
		}
		bootstrap := m.bootstrap()
		constrainChannels(t, bootstrap, constrain(t, xdsmsg.RouteType, is("env", "prod")))
		cc := dialWith(t, "xds:///"+service, bootstrap)
		l := loadOn(t, cc, all[0])

		// 1. Clients send version=v1, which no variant has.
		v1 := constrain(t, xdsmsg.RouteType, is("env", "prod"), is("version", "v1"))
		constrainChannels(t, bootstrap, v1)
		m.awaitLocator(xdsmsg.RouteType, "routes", v1)
		l.await(t, all[0])

		// 2. All existing resources get version=v1.
		for _, env := range []string{"prod", "test"} {
			m.Update(t, func(tx *controlplane.Tx) {
				tx.DeleteVariant(xdsmsg.RouteType, "routes", map[string]string{"env": env})
				tx.SetVariant(map[string]string{"env": env, "version": "v1"}, routesTo("routes", env+" v1"))
			})
		}
		l.await(t, all[1])

		// 3. There are variants with version=v2.
		for _, env := range []string{"prod", "test"} {
			m.SetVariant(t, map[string]string{"env": env, "version": "v2"}, routesTo("routes", env+" v2"))
		}
		l.await(t, all[1])

		// 4. The client sends version=v2.
		constrainChannels(t, bootstrap, constrain(t, xdsmsg.RouteType, is("env", "prod"), is("version", "v2")))
		l.await(t, all[2])
		l.Stop(t)
		m.checkNoAmbiguousChoice()
	})
}
