package statuspage

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/testutils"
)

// shop is a mesh of three services and n more that nobody calls.
func shop(service string, n int, backends map[string]*testutils.Backend) []proto.Message {
	config := xdsmsg.RouteConfig("routes", service)
	resources := []proto.Message{xdsmsg.DefaultListener(service, "routes"), config}
	add := func(path, cluster string, addresses ...string) {
		config.VirtualHosts[0].Routes = append(config.VirtualHosts[0].Routes, xdsmsg.PathRoute(path, cluster))
		resources = append(resources, xdsmsg.EDSCluster(cluster, ""), xdsmsg.SimpleEndpoints(cluster, addresses...))
	}
	add("/grpc.testing.TestService/EmptyCall", "checkout", backends["checkout"].Addr(), backends["spare"].Addr())
	add("/grpc.testing.TestService/UnaryCall", "catalog", backends["catalog"].Addr())
	add("/grpc.testing.TestService/StreamingOutputCall", "payment", backends["payment"].Addr())
	for i := range n {
		add(fmt.Sprintf("/shop.Service%d/Get", i), fmt.Sprintf("service-%d", i), backends["catalog"].Addr())
	}
	return resources
}

// load makes RPCs to the three services for a while.
func load(t *testing.T, conn *grpc.ClientConn, rounds int) {
	t.Helper()
	client, ctx := testgrpc.NewTestServiceClient(conn), testutils.Context(t)
	for range rounds {
		_, _ = client.EmptyCall(ctx, new(testgrpc.Empty))
		_, _ = client.UnaryCall(ctx, new(testgrpc.SimpleRequest))
		if s, err := client.StreamingOutputCall(ctx, new(testgrpc.StreamingOutputCallRequest)); err == nil {
			_, _ = s.Recv() // its end
		}
	}
}

// The first screen answers whether it is healthy, with three and with 1,000 clusters, healthy and failing: by what the
// page must say, and in pictures.
func TestBrowserAnswersWhetherItIsHealthy(t *testing.T) {
	for _, tc := range []struct {
		name     string
		clusters int
		fail     bool
		want     []string
	}{
		{"3-healthy", 0, false, []string{"Healthy: 3 clusters · no errors in ", "control plane connected", "Nothing is known to be wrong."}},
		{"3-failing", 0, true, []string{"Failing: 2 of 3 clusters", "% errors", "connection refused", "INTERNAL: out of stock", "1 of 2 endpoints cannot be reached", "why?"}},
		{"1000-healthy", 997, false, []string{"Healthy: 3 of 1,000 clusters in use"}},
		{"1000-failing", 997, true, []string{"Failing: 2 of 1,000 clusters", "Choose a cluster above"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := startChromium(t, 1280, 900)
			backends := make(map[string]*testutils.Backend)
			for _, name := range []string{"checkout", "spare", "catalog", "payment"} {
				backends[name] = testutils.StartBackend(t, name)
			}
			plane := meshtest.StartServer(t)
			service := "shop-" + strings.ToLower(rand.Text()) // RPCs are counted by the target
			plane.Set(t, shop(service, tc.clusters, backends)...)
			conn := dialTo(t, plane, "shop", service)
			h := quick()
			h.refresh = time.Second / 4
			c.navigate(serve(t, h).URL)
			c.await(`document.querySelector("#live").textContent.includes("live")`)
			_ = call(t, conn)
			load(t, conn, 100)
			if tc.fail {
				backends["payment"].Stop()
				backends["spare"].Stop()
				backends["catalog"].Fail(status.Error(codes.Internal, "out of stock"))
				for range 4 {
					load(t, conn, 100)
				}
			}
			for _, text := range tc.want {
				c.await(`document.body.innerText.includes(` + quote(text) + `)`)
			}
			c.await(`document.querySelectorAll('[data-section="clusters"] rect.all').length > 0`) // a second is over
			c.pictures(tc.name)
			if tc.fail {
				// Why: the explanation of a method that meets the problem.
				c.eval(`document.querySelector('.problem [data-why="/grpc.testing.TestService/StreamingOutputCall"]').click()`, nil)
				c.await(`document.querySelector("#explanation").innerText.includes('payment')`)
				c.await(`document.querySelector('[data-section="graph"]').innerText.includes("Of cluster payment")`)
				c.pictures(tc.name + "-why")
			}
			c.quiet()
			conn.Close()
		})
	}
}

// Two versions that a route splits RPCs between are side by side: the data, and the page.
func TestBrowserComparesTheClustersOfARoute(t *testing.T) {
	stable, canary := testutils.StartBackend(t, "stable"), testutils.StartBackend(t, "canary")
	canary.Fail(status.Error(codes.Internal, "out of stock"))
	service := "split-" + strings.ToLower(rand.Text()) // RPCs are counted by the target
	plane := meshtest.StartServer(t)
	plane.Set(t, xdsmsg.DefaultListener(service, "routes"),
		xdsmsg.RouteConfig("routes", service, xdsmsg.WeightedRoute("/grpc.testing.TestService/", xdsmsg.Weighted{Cluster: "shop;version=v1", Weight: 1}, xdsmsg.Weighted{Cluster: "shop;version=v2", Weight: 1})),
		xdsmsg.EDSCluster("shop;version=v1", ""), xdsmsg.EDSCluster("shop;version=v2", ""),
		xdsmsg.SimpleEndpoints("shop;version=v1", stable.Addr()), xdsmsg.SimpleEndpoints("shop;version=v2", canary.Addr()))
	conn := dialTo(t, plane, "split", service)
	h := quick()
	h.refresh = time.Second / 4
	section[overview](t, h, "overview") // RPCs are counted from now on
	for range 50 {
		_ = call(t, conn)
	}
	got := await(t, h, "clusters", func(c clustersView) bool {
		return len(c.Splits) == 1 && len(c.Splits[0].Clusters) == 2 && c.Splits[0].Clusters[0].Minute.P99 != nil && c.Splits[0].Clusters[0].Minute.Ended+c.Splits[0].Clusters[1].Minute.Ended == 50
	})
	s := got.Splits[0]
	v1, v2 := s.Clusters[0], s.Clusters[1]
	if s.Route != "/grpc.testing.TestService/*" || s.Target != "xds:///"+service || v1.Name != "shop;version=v1" || v1.Minute.Failed != 0 || v2.Name != "shop;version=v2" || v2.Minute.Share() != 1 || v2.Minute.P99 != nil {
		t.Errorf("the route is %+v", s)
	}
	if found := section[clustersView](t, h, "clusters", "clusters.q", "nothing"); len(found.Splits) != 0 {
		t.Errorf("a search for something else finds %+v", found.Splits)
	}
	c := startChromium(t, 1280, 900)
	c.navigate(serve(t, h).URL)
	for _, text := range []string{"Route " + s.Route, "shop;version=v1", "100 %"} {
		c.await(`document.querySelector(".split")?.innerText.includes(` + quote(text) + `)`)
	}
	c.pictures("split")
	c.quiet()
	conn.Close()
}

// A control plane alone has no channels: the page shows its folder, which is faulty, first, its clients, and its resources by pages.
func TestBrowserShowsAControlPlaneAlone(t *testing.T) {
	c := startChromium(t, 1280, 900)
	plane := meshtest.StartServer(t)
	plane.Set(t, largeMesh(20, "10.0.0.1:80")...)
	since := time.Now().Add(-90 * time.Second)
	h := Handler(WithControlPlane(plane.Control(), plane.Store()), WithConfiguration(func() Configuration {
		return Configuration{
			Place: "folder", Name: "examples/mesh/config", FaultySince: &since, Faults: 2,
			First: `examples/mesh/config/checkout.yaml:9: spec.to[0].rules[0]: unknown field "matchs"; did you mean "matches"?`,
			Published: &planestate.Published{At: since.Add(-time.Hour), Version: 7, Changed: 3, Removed: 1, What: []string{"checkout", "catalog"}, Documents: 9, Services: 4, Policies: 3,
				Warnings: 1, Reports: []string{"examples/mesh/config/catalog.yaml:14: warning: policy canary: no endpoint of catalog has the tag version=v9"}},
		}
	}))
	c.navigate(serve(t, h).URL)
	c.await(`!document.body.innerText.includes("Where RPCs go")`)
	for _, text := range []string{"Degraded: the folder has 2 errors; clients keep what was published last", `did you mean "matches"?`, "4 services, 3 policies of 9 documents", "checkout, catalog", "published 1 h ago", "0 errors, 1 warning", "no endpoint of catalog has the tag version=v9"} {
		c.await(`document.body.innerText.includes(` + quote(text) + `)`)
	}
	c.pictures("folder-faulty")
	c.raw()
	const served = `document.querySelector('[data-section="served"]').querySelector`
	c.await(served + `(".body").innerText.includes("cluster-1")`)
	c.await(served + `(".pager").innerText.includes("1–25 of 42")`)
	c.eval(served+`('.pager [data-key="Next"]').click()`, nil)
	c.await(served + `(".pager").innerText.includes("26–42 of 42")`)
	c.eval(`{const e = document.querySelector('[data-param="served.q"]'); e.value = "cluster-17"; e.dispatchEvent(new Event("input", {bubbles: true}))}`, nil)
	c.await(served + `(".body").innerText.includes("cluster-17")`)
	c.await(`!` + served + `(".body").innerText.includes("cluster-1\n")`)
	c.quiet()
}
