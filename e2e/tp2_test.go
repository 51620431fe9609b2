package e2e_test

import (
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// What tests of xRFC TP2 share. A worked example that needs DPDS has its resources in
// an authority; the others have old-style names, as "the mechanism described in this
// doc is completely independent of the new xDS naming scheme" (TP2, "Rationale").

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

// withDPDS is the authority, served by the top-level servers, with its DPDS resource.
func withDPDS() testutils.BootstrapOption {
	return testutils.Authority(tp2, "", map[string]any{"dynamic_parameter_constraints_resource": dpdsName})
}

// as is a bootstrap for the mesh of another node than that of the test.
func (m *mesh) as(id string, opts ...testutils.BootstrapOption) []byte {
	return m.Bootstrap(id, append([]testutils.BootstrapOption{testutils.ServerFeatures(m.features...)}, opts...)...)
}

// routesTo are routes of a name that lead to one cluster.
func routesTo(name, cluster string) *routepb.RouteConfiguration {
	return xdsmsg.RouteConfig(name, service, xdsmsg.PrefixRoute("", cluster))
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

// awaitLocator waits until the control plane was asked for a resource with the
// constraints.
func (m *mesh) awaitLocator(typeURL, name string, c dynparam.ByType) {
	m.t.Helper()
	m.MustWait(testutils.Context(m.t), m.t, xdstest.SubscribingTo(typeURL, controlplane.Locator{Name: name, Constraints: c.For(typeURL)}))
}

// A program asks for the clusters of the shards that it was assigned (xRFC TP2,
// "Sharding Clusters").
func ExampleSetConstraints() {
	shards, err := dynparam.New(dynparam.Require("shards", dynparam.InRanges(
		dynparam.Range{Min: 4, Max: 6}, dynparam.Range{Min: 11, Max: 15}, dynparam.Range{Min: 46, Max: 90})))
	if err != nil {
		panic(err) // a range the wrong way round, for example
	}
	clusters, err := dynparam.NewByType(map[string]dynparam.Constraints{"envoy.config.cluster.v3.Cluster": shards})
	if err != nil {
		panic(err)
	}
	if err := dynxds.SetConstraints(clusters); err != nil {
		panic(err)
	}
	// When the shards are no longer this program's.
	if err := dynxds.SetConstraints(dynparam.ByType{}); err != nil {
		panic(err)
	}
	// Output:
}

func TestSetConstraintsForABootstrap(t *testing.T) {
	t.Parallel()
	var none dynparam.ByType
	err := dynxds.SetConstraints(none, dynxds.WithBootstrap([]byte(`{"xds_servers": []}`)))
	if err == nil || !strings.Contains(err.Error(), "xds_servers") {
		t.Errorf("error %v, want one that names xds_servers", err)
	}
	err = dynxds.SetConstraints(none, dynxds.WithBootstrap(
		[]byte(`{"xds_servers": [{"server_uri": "xds.example.com:443", "channel_creds": [{"type": "insecure"}]}]}`)))
	if err != nil {
		t.Error(err)
	}
}
