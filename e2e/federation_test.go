package e2e_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// gRFC A47: a target with an authority is configured from the authority's servers,
// by names that lead from authority to authority.
func TestFederation(t *testing.T) {
	directly(t, "several management servers, and the relay is one")
	t.Parallel()
	main, own := newMesh(t), newMesh(t)
	forMain, forOwn := testutils.StartBackend(t, "main"), testutils.StartBackend(t, "own")
	bootstrap := main.bootstrap(
		testutils.Authority("own.example.com", own.Addr(), nil),
		testutils.Authority("shared", "", nil),
		testutils.Authority("", "", nil))

	// The path, from authority to authority: the Listener and its routes, whose
	// name is written in two ways, are "own"; one cluster is, and its endpoints
	// are of a third authority with the servers of the old-style names.
	const other = "xdstp:///envoy.config.cluster.v3.Cluster/other"
	cluster := in("own.example.com", xdsmsg.ClusterType, "c/1")
	endpoints := in("shared", xdsmsg.EndpointType, "e")
	own.set(
		xdsmsg.DefaultListener(in("own.example.com", xdsmsg.ListenerType, service), in("own.example.com", xdsmsg.RouteType, "%72?b=/&a=1")),
		xdsmsg.RouteConfig(in("own.example.com", xdsmsg.RouteType, "r?a=1&b=/"), service, xdsmsg.PathRoute(emptyMethod, other), xdsmsg.PrefixRoute("", cluster)),
		xdsmsg.EDSCluster(cluster, endpoints),
	)
	main.set(
		xdsmsg.SimpleEndpoints(endpoints, forOwn.Addr()),
		xdsmsg.EDSCluster(other, "old-style endpoints"),
		xdsmsg.SimpleEndpoints("old-style endpoints", forMain.Addr()),
	)
	main.serve(service, "cluster", forMain)

	federated := dialWith(t, "xds://own.example.com/"+service, bootstrap)
	for _, k := range kinds {
		mustReach(t, federated, k, forOwn)
	}
	mustReach(t, dialWith(t, "xds:///"+service, bootstrap), unary, forMain)
	if err := federated.Invoke(testutils.Context(t), emptyMethod, empty, new(testgrpc.Empty)); err != nil {
		t.Errorf("the RPC to the cluster without an authority: %v", err)
	}
	// One process, one bootstrap: a stream per server.
	if main.Attempts() != 1 || own.Attempts() != 1 {
		t.Errorf("%d and %d streams were opened, want one per server", main.Attempts(), own.Attempts())
	}
}

// A reference to an authority that the bootstrap does not have fails what depends
// on it, and nothing else.
func TestErrorOfAnUnknownAuthority(t *testing.T) {
	t.Parallel()
	m, backend := newMesh(t), testutils.StartBackend(t, "b1")
	nowhere := in("nowhere", xdsmsg.ClusterType, "c")
	m.set(append(chain(service, xdsmsg.PathRoute(emptyMethod, nowhere), xdsmsg.PrefixRoute("", "cluster")), clusterOf("cluster", backend)...)...)
	cc := dialWith(t, "xds:///"+service, m.bootstrap(testutils.Authority("known.example.com", "", nil)))
	mustReach(t, cc, unary, backend)
	err := cc.Invoke(testutils.Context(t), emptyMethod, empty, new(testgrpc.Empty))
	checkStatus(t, err, codes.Unavailable, nowhere, `"nowhere" is unknown`, `"known.example.com"`)
}

// gRFC A71 with A47: an authority falls back by itself.
func TestAuthorityFallsBackByItself(t *testing.T) {
	directly(t, "several management servers, and the relay is one")
	t.Parallel()
	main, own, low := newMesh(t), newMesh(t), newMesh(t)
	forMain, forLow := testutils.StartBackend(t, "main"), testutils.StartBackend(t, "low")
	main.serve(service, "cluster", forMain)
	cluster := in("own", xdsmsg.ClusterType, "c")
	low.set(
		xdsmsg.InlineListener(in("own", xdsmsg.ListenerType, service), xdsmsg.RouteConfig("", service, xdsmsg.PrefixRoute("", cluster))),
		xdsmsg.EDSCluster(cluster, in("own", xdsmsg.EndpointType, "e")),
		xdsmsg.SimpleEndpoints(in("own", xdsmsg.EndpointType, "e"), forLow.Addr()),
	)
	own.Stop()
	var servers []map[string]any
	for _, m := range []*mesh{own, low} {
		servers = append(servers, map[string]any{"server_uri": m.Addr(), "channel_creds": []map[string]any{{"type": "insecure"}}})
	}
	bootstrap := main.bootstrap(testutils.Authority("own", "", map[string]any{"xds_servers": servers}))
	mustReach(t, dialWith(t, "xds://own/"+service, bootstrap), unary, forLow)
	mustReach(t, dialWith(t, "xds:///"+service, bootstrap), unary, forMain)
}

// The routes of an authority are kept while its server is unreachable, however the
// bootstrap's template spells the authority: names are equal in canonical form (xRFC TP1).
func TestRoutesOfAnAuthorityAreKeptThroughAnOutage(t *testing.T) {
	directly(t, "several management servers, and the relay is one")
	overLinks(t, routesOfAnAuthorityAreKeptThroughAnOutage)
}

func routesOfAnAuthorityAreKeptThroughAnOutage(t *testing.T) {
	const authority = "a!b"
	for _, spelling := range []string{"a!b", "a%21b"} {
		xdstest.Parallel(t, spelling, func(t *testing.T) {
			m := newMesh(t)
			m.keepSilent()
			before, after := testutils.StartBackend(t, "before"), testutils.StartBackend(t, "after")
			old, added := in(authority, xdsmsg.ClusterType, "old"), in(authority, xdsmsg.ClusterType, "new")
			listener, routes, endpoints := in(authority, xdsmsg.ListenerType, service), in(authority, xdsmsg.RouteType, "r"), in(authority, xdsmsg.EndpointType, "e")
			m.set(
				xdsmsg.DefaultListener(listener, routes),
				xdsmsg.RouteConfig(routes, service, xdsmsg.PrefixRoute("", old)),
				xdsmsg.EDSCluster(old, endpoints),
				xdsmsg.SimpleEndpoints(endpoints, before.Addr()),
			)
			cc := dialWith(t, "xds://"+authority+"/"+service, m.bootstrap(testutils.Authority(authority, "", map[string]any{
				"client_listener_resource_name_template": in(spelling, xdsmsg.ListenerType, "%s"),
			})))
			l := loadOn(t, cc, before)
			m.set(xdsmsg.RouteConfig(routes, service, xdsmsg.PrefixRoute("", added)))
			m.MustWait(testutils.Context(t), t, asks(xdsmsg.ClusterType, added, old))
			m.cutOff(1)
			l.await(t, before)
			newEndpoints := in(authority, xdsmsg.EndpointType, "e2")
			m.set(xdsmsg.EDSCluster(added, newEndpoints), xdsmsg.SimpleEndpoints(newEndpoints, after.Addr()))
			m.RefuseStreams(nil)
			l.await(t, after)
			l.stop(t)
		})
	}
}
