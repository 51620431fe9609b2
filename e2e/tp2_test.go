package e2e_test

import (
	"slices"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
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
	if got := m.Control().AmbiguousChoices(); got != 0 {
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
	m.MustWait(testutils.Context(m.t), m.t, func(r xdstest.Request) bool {
		return r.TypeURL == typeURL && slices.ContainsFunc(r.Locators, func(l testutils.Locator) bool {
			return l.Name == name && l.Constraints.Equal(c.For(typeURL))
		})
	})
}
