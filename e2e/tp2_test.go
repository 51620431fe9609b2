package e2e_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/dpdswrapper"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// A worked example of xRFC TP2 that needs DPDS has its resources in an authority; the others have
// old-style names, as "the mechanism described in this doc is completely independent of the new xDS
// naming scheme" (TP2, "Rationale").
const (
	tp2       = "tp2.example.com"
	tp2Target = "xds://" + tp2 + "/" + service
)

// The names of the resources in the authority.
var (
	dpdsName    = in(tp2, dynparam.MapTypeURL, "map")
	tp2Listener = in(tp2, xdsmsg.ListenerType, service)
	tp2Routes   = in(tp2, xdsmsg.RouteType, "routes")
)

// newVariantMesh is a mesh whose control plane is asked for variants.
func newVariantMesh(t testing.TB) *mesh {
	t.Helper()
	return newMesh(t, "dynamic_parameter_constraints", "fail_on_data_errors")
}

// clustersFor starts a backend for each of the ids, and serves it as a cluster of that name.
func (m *mesh) clustersFor(ids ...string) []*testutils.Backend {
	m.t.Helper()
	all := backends(m.t, ids...)
	for _, b := range all {
		m.set(clusterOf(b.ID(), b))
	}
	return all
}

// checkNoAmbiguousChoice checks that the constraints left the server no choice between variants.
func (m *mesh) checkNoAmbiguousChoice() {
	m.t.Helper()
	if got := m.AmbiguousChoices(); got != 0 {
		m.t.Errorf("%d ambiguous choices", got)
	}
}

// withDPDS is the authority, served by the top-level servers, with its DPDS resource.
func withDPDS() testutils.BootstrapOption {
	return testutils.Authority(tp2, "", map[string]any{"dynamic_parameter_constraints_resource": dpdsName})
}

// routesTo are routes of a name that lead to one cluster.
func routesTo(name, cluster string) *routepb.RouteConfiguration {
	return xdsmsg.RouteConfig(name, service, toCluster(cluster))
}

// constrain makes constraints, for one type of resource.
func constrain(t testing.TB, typeURL string, keys ...dynparam.KeyConstraints) dynparam.ByType {
	t.Helper()
	c, err := dynparam.New(keys...)
	xdstest.NoError(t, err)
	byType, err := dynparam.NewByType(map[string]dynparam.Constraints{typeurl.Name(typeURL): c})
	xdstest.NoError(t, err)
	return byType
}

// is constrains a key to one value.
func is(key, value string) dynparam.KeyConstraints {
	return dynparam.Require(key, dynparam.Value(value))
}

// constrainChannels sets the constraints of the program for channels with a bootstrap,
// until the test ends.
func constrainChannels(t testing.TB, bootstrap []byte, c dynparam.ByType) {
	t.Helper()
	set := func(c dynparam.ByType) {
		if err := dynxds.SetConstraints(c, dynxds.WithBootstrap(bootstrap)); err != nil {
			t.Error(err)
		}
	}
	set(c)
	t.Cleanup(func() { set(dynparam.ByType{}) })
}

// awaitLocator waits for a request for the resource with the constraints.
func (m *mesh) awaitLocator(typeURL, name string, c dynparam.ByType) {
	m.t.Helper()
	m.MustWait(testutils.Context(m.t), m.t, xdstest.SubscribingTo(typeURL, testutils.Locator{Name: name, Constraints: c.For(typeURL)}))
}

// members is a watcher that keeps what a collection has.
type members struct {
	xdstest.State
	have map[string]bool
}

func (w *members) MemberChanged(m xdsclient.Member, _ any, err error, done func()) {
	defer done()
	name := m.Name[strings.LastIndexByte(m.Name, '/')+1:] + m.Parameters.String()
	w.Change(func() {
		if delete(w.have, name); err == nil {
			w.have[name] = true
		}
	})
}

func (w *members) CollectionChanged(_ error, done func()) { done() }

func (w *members) AmbientError(_ xdsclient.Member, _ error, done func()) { done() }

// await waits until the collection has exactly these members.
func (w *members) await(t *testing.T, names ...string) {
	t.Helper()
	slices.Sort(names)
	w.Await(t, fmt.Sprintf("the collection to have %q", names), func() bool {
		return slices.Equal(slices.Sorted(maps.Keys(w.have)), names)
	})
}

// TP2, "Sharding Clusters", the glob collection: all matching variants are used, and
// the program changes its shards. A channel watches the clusters that its routes name
// and no collection, and SotW has none, so this is with the client's own API, over delta.
func TestTP2ShardingClustersByGlob(t *testing.T) {
	everyWay(t)
	t.Parallel()
	if protocol != "delta" || downstream != nil && *downstream != "delta" {
		t.Skip("SotW has no glob collections")
	}
	m := newVariantMesh(t)
	for _, shard := range []string{"3", "4", "6", "7", "15", "16", "60", "90", "91"} {
		m.SetVariant(t, map[string]string{"shards": shard}, xdsmsg.EDSCluster(in(tp2, xdsmsg.ClusterType, "shards/c"+shard), "e"))
	}
	cfg, err := bootstrap.Parse("the test", m.bootstrap(testutils.Authority(tp2, "", nil)))
	xdstest.NoError(t, err)
	client, release, err := dpdswrapper.Acquire(cfg, "", nil)
	xdstest.NoError(t, err)
	defer release()
	defer dpdswrapper.SetConstraints(cfg, dynparam.ByType{})
	shards := func(ranges ...dynparam.Range) dynparam.ByType {
		return constrain(t, xdsmsg.ClusterType, dynparam.Require("shards", dynparam.InRanges(ranges...)))
	}
	dpdswrapper.SetConstraints(cfg, shards(dynparam.Range{Min: 4, Max: 6}, dynparam.Range{Min: 11, Max: 15}, dynparam.Range{Min: 46, Max: 90}))
	seen := &members{have: map[string]bool{}}
	defer client.WatchCollection(xdsresource.ClusterType, in(tp2, xdsmsg.ClusterType, "shards/*"), seen)()
	seen.await(t, "c15{shards=15}", "c4{shards=4}", "c6{shards=6}", "c60{shards=60}", "c90{shards=90}")

	// The program has other shards, and a cluster moves into one of them.
	dpdswrapper.SetConstraints(cfg, shards(dynparam.Range{Min: 4, Max: 6}, dynparam.AtLeast(90)))
	seen.await(t, "c4{shards=4}", "c6{shards=6}", "c90{shards=90}", "c91{shards=91}")
	m.SetVariant(t, map[string]string{"shards": "5"}, xdsmsg.EDSCluster(in(tp2, xdsmsg.ClusterType, "shards/c3"), "e"))
	seen.await(t, "c3{shards=5}", "c4{shards=4}", "c6{shards=6}", "c90{shards=90}", "c91{shards=91}")
	m.Delete(t, xdsmsg.ClusterType, in(tp2, xdsmsg.ClusterType, "shards/c4"))
	seen.await(t, "c3{shards=5}", "c6{shards=6}", "c90{shards=90}", "c91{shards=91}")
}
