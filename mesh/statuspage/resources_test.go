package statuspage

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/testutils"
)

// A version that is rejected is shown with its errors beside the one that stays in use, on the page and
// among the changes.
func TestRejectedVersion(t *testing.T) {
	backend := testutils.StartBackend(t, "b")
	plane, conn := startChannel(t, "rejected", oneCluster("c", backend)...)
	xdstest.NoError(t, call(t, conn))
	bad := xdsmsg.EDSCluster("c", "")
	bad.LbPolicy = clusterpb.Cluster_CLUSTER_PROVIDED
	plane.Set(t, bad)

	h := quick(WithControlPlane(plane.Control(), plane.Store()))
	got := await(t, h, "resources", func(r resourcesView) bool { return len(r.Items) == 1 }, "resources.state", "trouble")
	c := got.Items[0]
	if c.Type != "Cluster" || c.Name != "c" || c.State != "NACKED" || !c.Cached || c.Version == "" || c.ErrorVersion == "" || c.ErrorVersion == c.Version ||
		!strings.Contains(c.Error, "lb_policy") || c.Updated.IsZero() || c.ErrorTime.IsZero() {
		t.Errorf("resource %+v, want both versions and the fault of lb_policy", c)
	}
	o := await(t, h, "overview", func(o overview) bool { return len(o.Problems) == 2 })
	if o.Clients != 1 || o.Channels != 1 || o.Plane == nil || o.Plane.State != livestate.Failing || o.Verdict.State != livestate.Degraded ||
		o.Problems[0].Kind != "client" || o.Problems[0].Severity != livestate.Failing || !strings.Contains(o.Problems[0].Text, "lb_policy") ||
		o.Problems[1].Kind != "resource" || !strings.Contains(o.Problems[1].Text, "the version before it stays in use") {
		t.Errorf("overview %+v, want a problem of the client and one of the control plane", o)
	}
	await(t, h, "changes", func(l changesView) bool {
		return len(l.Items) > 0 && l.Items[0].Kind == changes.Rejected && strings.Contains(l.Items[0].Detail, "lb_policy")
	}, "changes.q", "nacked")

	peers := await(t, h, "peers", func(p peersView) bool { return p.Refusing == 1 }, "peers.state", "refusing")
	for _, typ := range peers.Items[0].Types {
		if nacked := typ.Type == "Cluster"; nacked != typ.Refuses() || nacked != strings.Contains(typ.Error, "lb_policy") {
			t.Errorf("control plane: %+v", typ)
		}
	}
}

// A resource from disk is shown as one.
func TestResourceFromDisk(t *testing.T) {
	backend, dir := testutils.StartBackend(t, "b"), filepath.Join(os.TempDir(), "statuspage-"+rand.Text())
	t.Cleanup(func() {
		for os.RemoveAll(dir) != nil { // a client that was closed may still write in it
		}
	})
	plane := meshtest.StartServer(t)
	plane.Set(t, oneCluster("c", backend)...)
	open := func() *grpc.ClientConn {
		conn := dial(t, plane, "disk", testutils.TopLevel("resource_cache", map[string]any{"directory": dir}))
		xdstest.NoError(t, call(t, conn))
		return conn
	}
	open().Close()
	for ctx := testutils.Context(t); ; {
		names, _ := filepath.Glob(filepath.Join(dir, "*.resources"))
		content, _ := os.ReadFile(strings.Join(names, ""))
		if strings.Contains(string(content), typeurl.Endpoints) {
			break
		}
		xdstest.NoError(t, ctx.Err())
	}
	plane.Stop()
	open()
	got := section[resourcesView](t, quick(), "resources", "resources.state", "REQUESTED")
	if len(got.Items) != 4 {
		t.Fatalf("got %d resources, want 4", len(got.Items))
	}
	for _, r := range got.Items {
		if r.FromDisk == "" || !r.Cached || r.Updated.IsZero() {
			t.Errorf("resource %+v, want one from disk", r)
		}
	}
	if l := section[changesView](t, quick(), "changes", "changes.q", "from disk"); len(l.Items) < 4 || l.Items[0].Detail != "from disk, 0 minutes old" {
		t.Errorf("changes %+v, want those of four resources", l.Items)
	}
}

// The ignored fields of a resource are listed.
func TestIgnoredFields(t *testing.T) {
	backend := testutils.StartBackend(t, "b")
	c := xdsmsg.EDSCluster("c", "")
	c.ConnectTimeout = durationpb.New(1)
	c.LbSubsetConfig = &clusterpb.Cluster_LbSubsetConfig{}
	_, conn := startChannel(t, "ignored",
		xdsmsg.DefaultListener("service", "routes"), xdsmsg.RouteConfig("routes", "service", xdsmsg.PrefixRoute("", "c")),
		c, xdsmsg.SimpleEndpoints("c", backend.Addr()))
	xdstest.NoError(t, call(t, conn))

	h := quick()
	got := section[resourcesView](t, h, "resources", "resources.state", "ignored")
	if len(got.Items) != 1 || got.Items[0].Name != "c" {
		t.Fatalf("with ignored fields: %+v, want the Cluster alone", got.Items)
	}
	if f := got.Items[0].Ignored; len(f) != 2 || f[0].Path != "lb_subset_config" || f[0].Severity != "warning" || f[1].Path != "connect_timeout" || f[1].Severity == "warning" {
		t.Errorf("fields %+v, want lb_subset_config, which matters, and connect_timeout", f)
	}
}

// hostile are names that a page could stumble over.
var hostile = []string{
	`<script>document.body.dataset.owned="1"</script>`,
	`"><img src=x onerror="document.body.dataset.owned=1">`,
	`' onmouseover='document.body.dataset.owned=1`,
	"javascript:document.body.dataset.owned=1",
	"</script></style></textarea><svg onload=document.body.dataset.owned=1>",
	"right\u202eto-left\u2066 and \u200bnothing\x00 and \x1b[31m",
	"{{constructor.constructor('document.body.dataset.owned=1')()}}${document.body.dataset.owned=1}",
	"line\ndata: {}\n\nevent: overview",
	"\u2028\u2029\ufeff",
	strings.Repeat("long", 16<<10),
}

// hostileMesh has the names wherever a name can be.
func hostileMesh(backend string) []proto.Message {
	var resources []proto.Message
	config := xdsmsg.RouteConfig(hostile[0], "service")
	for i, n := range hostile {
		route := xdsmsg.PrefixRoute("/"+n, n)
		route.Name = n
		config.VirtualHosts[0].Routes = append(config.VirtualHosts[0].Routes, route)
		assignment := xdsmsg.SimpleEndpoints(n, backend)
		assignment.Endpoints[0].Locality.Zone = n
		resources = append(resources, xdsmsg.EDSCluster(n, ""), assignment)
		if i == 1 {
			config.VirtualHosts[0].Name = n
		}
	}
	return append(resources, xdsmsg.DefaultListener("service", hostile[0]), config)
}

// everything asks for all sections.
const everything = "/data?show=overview&show=channels&show=clients&show=graph&show=resources&show=clusters&show=changes&show=peers&show=served"

func TestHostileNamesAreBoundedText(t *testing.T) {
	backend := testutils.StartBackend(t, "b")
	plane, conn := startChannel(t, hostile[1], hostileMesh(backend.Addr())...)
	_ = call // The RPC would find no route.
	conn.Connect()
	h := quick(WithControlPlane(plane.Control(), plane.Store()))
	await(t, h, "graph", func(g graphView) bool { return len(g.Clusters) == len(hostile) })
	w := get(t, h, everything)
	if w.Code != 200 || !json.Valid(w.Body.Bytes()) || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("data: %d %s", w.Code, w.Header().Get("Content-Type"))
	}
	if body := w.Body.String(); strings.ContainsAny(body, "<>\n\x00\u2028\u2029") {
		t.Error("the answer has characters that could end a script")
	}
	if n := w.Body.Len(); n > 200<<10 {
		t.Errorf("the answer has %d bytes: long names are not cut", n)
	}
}

// Of a large mesh only what is shown is sent, and what is searched for is found.
func TestLargeMesh(t *testing.T) {
	const clusters = 10_000
	backend := testutils.StartBackend(t, "b")
	plane, conn := startChannel(t, "large", largeMesh(clusters, backend.Addr())...)
	xdstest.NoError(t, call(t, conn))
	h := quick(WithControlPlane(plane.Control(), plane.Store()))
	await(t, h, "resources", func(r resourcesView) bool { return r.Total == 2*clusters+2 })
	for _, name := range []string{"overview", "channels", "clients", "graph", "resources", "clusters", "changes", "peers", "served"} {
		w := get(t, h, "/data?show="+name)
		if n := w.Body.Len(); w.Code != 200 || n > 100<<10 {
			t.Errorf("%s: %d with %d bytes, want at most 100 kB", name, w.Code, n)
		}
	}
	g := section[graphView](t, h, "graph", "graph.q", "CLUSTER-7777")
	if g.Routes.Total != clusters+1 || g.Routes.Found != 1 || len(g.Clusters) != 1 || g.Clusters[0].Name != "cluster-7777" {
		t.Errorf("graph: %d of %d routes, clusters %+v", g.Routes.Found, g.Routes.Total, g.Clusters)
	}
	r := section[resourcesView](t, h, "resources", "resources.q", "cluster-777", "resources.type", "Cluster")
	if r.Total != 2*clusters+2 || r.Found != 11 || len(r.Items) != 11 {
		t.Errorf("resources: %d of %d", r.Found, r.Total)
	}
	last := section[resourcesView](t, h, "resources", "resources.from", "1000000")
	if last.From >= last.Found || last.From+len(last.Items) != last.Found {
		t.Errorf("last page from %d with %d of %d", last.From, len(last.Items), last.Found)
	}
	s := section[servedView](t, h, "served", "served.q", "cluster-9999")
	if s.Total != 2*clusters+2 || s.Found != 2 {
		t.Errorf("served: %d of %d", s.Found, s.Total)
	}
}

// largeMesh has a route to each of many clusters, and one to the first for all methods.
func largeMesh(clusters int, backend string) []proto.Message {
	config := xdsmsg.RouteConfig("routes", "service")
	resources := []proto.Message{xdsmsg.DefaultListener("service", "routes"), config}
	for i := range clusters {
		n := fmt.Sprintf("cluster-%d", i)
		config.VirtualHosts[0].Routes = append(config.VirtualHosts[0].Routes, xdsmsg.PathRoute("/service/"+n, n))
		resources = append(resources, xdsmsg.EDSCluster(n, ""), xdsmsg.SimpleEndpoints(n, backend))
	}
	config.VirtualHosts[0].Routes = append(config.VirtualHosts[0].Routes, xdsmsg.PrefixRoute("", "cluster-0"))
	return resources
}

// withoutTraffic leaves out the shares of RPCs, which depend on the draws.
func withoutTraffic(routes []routeView) []routeView {
	for i := range routes {
		for j := range routes[i].To {
			routes[i].To[j].Traffic = 0
		}
	}
	return routes
}

func TestText(t *testing.T) {
	if got := clip(strings.Repeat("é", 32<<10), maxName); len(got) > maxName+20 || !strings.HasSuffix(got, "… (65536 bytes)") {
		t.Errorf("name of 64 KiB: %q", got)
	}
	for _, tc := range []struct {
		find, text string
		want       bool
	}{
		{"", "x", true}, {"ABC", "xabcx", true}, {"abc", "xABC", true}, {" abc ", "abc", true}, {"abc", "ab", false}, {"c", "", false}, {"é", "É", true}, {"É", "É", true},
	} {
		if got := wantedOf("s", url.Values{"s.q": {tc.find}}).finds(tc.text); got != tc.want {
			t.Errorf("%q in %q: %v", tc.find, tc.text, got)
		}
	}
}

// What a viewer of 10,000 clusters costs: a new snapshot, and each section.
func BenchmarkLargeMesh(b *testing.B) {
	const clusters = 10_000
	plane, conn := startChannel(b, "bench", largeMesh(clusters, "127.0.0.1:1")...)
	conn.Connect()
	h := newHandler(WithControlPlane(plane.Control(), plane.Store()))
	snap, _ := h.take()
	for len(snap.entries) < 2*clusters+2 {
		if b.Context().Err() != nil {
			b.Fatal("the resources never arrived")
		}
		snap, _ = h.take()
	}
	b.Run("snapshot", func(b *testing.B) {
		for b.Loop() {
			h.take()
		}
	})
	b.Run("pulse", func(b *testing.B) {
		for b.Loop() {
			snap.takePulse()
		}
	})
	for name := range sections {
		b.Run(name, func(b *testing.B) {
			v := &view{ctx: b.Context(), handler: h, snap: snap}
			for b.Loop() {
				v.section(name)
			}
		})
	}
}

func TestGraphLeadsFromTheListenerToTheEndpoints(t *testing.T) {
	backend := testutils.StartBackend(t, "b")
	_, conn := startChannel(t, "graph",
		xdsmsg.DefaultListener("service", "routes"),
		xdsmsg.RouteConfig("routes", "service",
			xdsmsg.WeightedRoute("/grpc.testing", xdsmsg.Weighted{Cluster: "a", Weight: 3}, xdsmsg.Weighted{Cluster: "b", Weight: 1}),
			xdsmsg.PrefixRoute("", "b")),
		xdsmsg.EDSCluster("a", ""), xdsmsg.EDSCluster("b", ""),
		xdsmsg.SimpleEndpoints("a", backend.Addr()), xdsmsg.SimpleEndpoints("b", backend.Addr()),
	)
	xdstest.NoError(t, call(t, conn))

	h := quick()
	g := await(t, h, "graph", func(g graphView) bool {
		xdstest.NoError(t, call(t, conn)) // until one has gone to each cluster
		return len(g.Clusters) == 2 && len(g.Clusters[0].Priorities) == 1 && g.Clusters[0].Priorities[0].State == "READY"
	})
	if g.Listener.Name != "service" || g.Listener.State != "ACKED" || g.RouteConfig.Name != "routes" || g.Host.Domains[0] != "service" {
		t.Errorf("Listener %+v, RouteConfiguration %+v, host %+v", g.Listener, g.RouteConfig, g.Host)
	}
	xdstest.Equal(t, "routes", []routeView{
		{Index: 0, Match: `prefix "/grpc.testing"`, To: []destinationView{{Cluster: "a", ID: clusterID("a"), Percent: 75}, {Cluster: "b", ID: clusterID("b"), Percent: 25}}},
		{Index: 1, Match: `prefix ""`, To: []destinationView{{Cluster: "b", ID: clusterID("b"), Percent: 100}}},
	}, withoutTraffic(g.Routes.Items))
	endpoint := g.Clusters[0].Priorities[0].Localities[0].Endpoints[0]
	if endpoint.Addresses[0] != backend.Addr() || endpoint.State != "READY" {
		t.Errorf("endpoint %+v, want %s, READY", endpoint, backend.Addr())
	}
}
