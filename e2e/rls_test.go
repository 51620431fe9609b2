package e2e_test

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	_ "github.com/dynxds/dynxds/balancer/rls"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/lookup"
	"github.com/dynxds/dynxds/testutils"
)

// toPlugin is a route with the plugin "p".
func toPlugin() *routepb.Route {
	return xdsmsg.Route(xdsmsg.Prefix(""), &routepb.RouteAction{
		ClusterSpecifier: &routepb.RouteAction_ClusterSpecifierPlugin{ClusterSpecifierPlugin: "p"}})
}

// byPlugin is a chain whose routes may have the plugin.
func byPlugin(plugin *routepb.ClusterSpecifierPlugin, routes ...*routepb.Route) []proto.Message {
	all := chain(service, routes...)
	all[1].(*routepb.RouteConfiguration).ClusterSpecifierPlugins = []*routepb.ClusterSpecifierPlugin{plugin}
	return all
}

// rls_config.proto, NameMatcher: "the first one with a non-empty value is used"; rls.proto: "The targets will be tried in order until
// a healthy one is found", and header_data is "to pass along [...] in the X-Google-RLS-Data header". No route names the targets.
func TestLookupByHeaders(t *testing.T) {
	everyWay(t)
	t.Parallel()
	m, l := newMesh(t), lookup.Start(t)
	l.Send("a", "ca")
	l.Send("b", "dead", "cb")
	a, b, dead := testutils.StartBackend(t, "a"), testutils.StartBackend(t, "b"), testutils.StartBackend(t, "dead")
	dead.Stop()
	a.SetBehaviour(func(_ context.Context, rpc testutils.RPC) error {
		if got := rpc.Metadata.Get("x-google-rls-data"); !slices.Equal(got, []string{"data of a"}) {
			return status.Errorf(codes.Internal, "header data %q", got)
		}
		return nil
	})
	m.set(byPlugin(l.Plugin(""), toPlugin()), clusterOf("ca", a), clusterOf("cb", b), clusterOf("dead", dead))
	cc := m.dial("xds:///" + service)
	eachKind(t, func(t *testing.T, k kind) {
		ctx := testutils.Context(t)
		xdstest.Equal(t, "by x-tenant", "a", backendFor(ctx, t, cc, k, "x-tenant", "a", "x-old-tenant", "b"))
		xdstest.Equal(t, "by x-old-tenant", "b", backendFor(ctx, t, cc, k, "x-old-tenant", "b"))
	})
	xdstest.Equal(t, "the keys", []string{"fixed=1 s=grpc.testing.TestService tenant=a", "fixed=1 s=grpc.testing.TestService tenant=b"}, l.Asked())
}

// gRFC A60, "Include Cluster Name in the Cookie": a session whose cluster is looked up stays with its endpoint, as long as it is
// looked up to the same cluster.
func TestSessionsOfLookups(t *testing.T) {
	t.Parallel()
	m, l := newMesh(t), lookup.Start(t)
	l.Send("a", "ca")
	l.Send("b", "cb")
	in, other := backends(t, "1", "2", "3"), testutils.StartBackend(t, "other")
	all := filtered(byCookie(""), toPlugin())
	all[1].(*routepb.RouteConfiguration).ClusterSpecifierPlugins = []*routepb.ClusterSpecifierPlugin{l.Plugin("")}
	m.set(all, clusterOf("ca", in...), clusterOf("cb", other))
	cc, s := m.dial("xds:///"+service), new(session)
	as := func(tenant string) string {
		return s.call(metadata.AppendToOutgoingContext(testutils.Context(t), "x-tenant", tenant), t, cc, unary)
	}
	id := as("a")
	for range 20 {
		xdstest.Equal(t, "backend of the session", id, as("a"))
	}
	xdstest.Equal(t, "cookies", 1, s.set)
	value, err := base64.StdEncoding.DecodeString(s.cookie.Value)
	if err != nil || !strings.HasSuffix(string(value), ";cluster_specifier_plugin:p") {
		t.Errorf("the cookie is %q (%v)", value, err)
	}
	xdstest.Equal(t, "backend of another tenant", "other", as("b"))
	xdstest.Equal(t, "cookies then", 2, s.set)
}

// What a Cluster says holds for RPCs that are looked up to it: its TLS, its limit, its counters.
func TestLookupKeepsTheSettingsOfClusters(t *testing.T) {
	m, l := newSecureMesh(t), lookup.Start(t)
	for _, name := range []string{"secure", "refusing", "full"} {
		l.Send(name, "looked-up-"+name)
	}
	secure := secureBackend(t, "secure", m.ca, false, forNames("service"))
	full := asking("looked-up-full", overTLS, secure)
	full[0] = with(full[0].(*clusterpb.Cluster), maxRequests, 0)
	m.set(byPlugin(l.Plugin(""), toPlugin()), asking("looked-up-secure", overTLS, secure), full,
		asking("looked-up-refusing", overTLS, testutils.StartBackend(t, "plain")))
	cc := m.dial()
	as := func(tenant string) error {
		_, err := call(metadata.AppendToOutgoingContext(testutils.Context(t), "x-tenant", tenant), cc, unary)
		return err
	}
	xdstest.NoError(t, as("secure"))
	xdstest.Equal(t, "RPCs of the cluster", uint64(1), trafficTo("looked-up-secure").Picked)
	checkStatus(t, as("refusing"), codes.Unavailable, "tls")
	checkStatus(t, as("full"), codes.Unavailable, "max_requests")
}

// Routes move between a plugin and a cluster, the service names other clusters, and the plugin has other configs, while RPCs run; none fails.
func TestLookupsChangeUnderLoad(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		m, l := newMesh(t), lookup.Start(t)
		all := backends(t, "a", "b", "c")
		l.Send("", "ca")
		const shortLived = `max_age { seconds: 1 }`
		m.set(byPlugin(l.Plugin(shortLived), toPlugin()), clusterOf("ca", all[0]), clusterOf("cb", all[1]), clusterOf("cc", all[2]))
		load := loadOn(t, m.dial("xds:///"+service), all[0])
		load.await(t, all[0])
		l.Send("", "cb")
		load.await(t, all[1])
		m.set(byPlugin(l.Plugin(shortLived), toCluster("cc")))
		load.await(t, all[2])
		m.set(byPlugin(l.Plugin(shortLived), toPlugin()))
		load.await(t, all[1])
		l.Send("", "ca")
		m.set(byPlugin(l.Plugin(shortLived+` default_target: "cc"`), toPlugin()))
		load.await(t, all[0])
		m.set(chain(service, toCluster("ca")))
		load.await(t, all[0])
		load.Stop(t)
	})
}
