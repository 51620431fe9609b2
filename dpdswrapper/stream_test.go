package dpdswrapper_test

import (
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/dpdswrapper"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Over a real stream, the DPDS resource is requested first, then all that waited for it, with its
// constraints and one request per type. When it changes, the type whose constraints changed moves
// with one request.
func TestDPDSOverAStream(t *testing.T) {
	t.Parallel()
	server := xdstest.StartServer(t)
	setDPDS := func(v string) {
		server.SetDPDS(t, dpdsA, func(*corev3.Node) (dynparam.ByType, error) { return only(clusterType, "v", v), nil })
	}
	setDPDS("1")
	resume := server.StallSends()
	cfg := must(bootstrap.Parse("test", server.Bootstrap(t.Name(),
		testutils.ServerFeatures(string(bootstrap.FeatureDynamicParameterConstraints)), testutils.Authority("x", "", nil),
		testutils.Authority("a", "", map[string]any{"dynamic_parameter_constraints_resource": dpdsA}))))
	client, err := xdsclient.New(cfg)
	xdstest.NoError(t, err)
	defer client.Close()
	w := dpdswrapper.New(client).ForTarget("")
	const clusters = 1000
	for i := range clusters {
		w.Watch(xdsresource.ClusterType, name("a", clusterType, fmt.Sprint(i)), quiet{})
	}
	w.Watch(xdsresource.EndpointsType, name("a", "envoy.config.endpoint.v3.ClusterLoadAssignment", "e"), quiet{})
	ctx := testutils.Context(t)
	first := server.MustWait(ctx, t, xdstest.AnyRequest())
	xdstest.Equal(t, "type of the first request", dynparam.MapTypeURL, first.TypeURL)
	xdstest.Equal(t, "names in the first request", []string{dpdsA}, first.Names)
	resume()

	expect := func(typeURL string, names int, constraints dynparam.Constraints) {
		t.Helper()
		r := server.MustWait(ctx, t, func(r xdstest.Request) bool {
			return r.TypeURL == typeURL && len(r.Locators) > 0 && r.Locators[0].Constraints.Equal(constraints)
		})
		if len(r.Names) != names || len(r.Locators) != names {
			t.Errorf("request for %d names and %d locators of %s, want %d", len(r.Names), len(r.Locators), typeURL, names)
		}
		for _, l := range r.Locators {
			if !l.Constraints.Equal(constraints) {
				t.Fatalf("%s is requested with %v, want %v", l.Name, l.Constraints, constraints)
			}
		}
	}
	expect(typeurl.Cluster, clusters, exact("v", "1"))
	expect(typeurl.Endpoints, 1, dynparam.Constraints{})
	setDPDS("2")
	expect(typeurl.Cluster, clusters, exact("v", "2"))
}
