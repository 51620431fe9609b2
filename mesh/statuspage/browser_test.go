package statuspage

import (
	"strconv"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// pictures takes screenshots in the sizes and colours that the page is made for, and checks that
// it fits everywhere.
func (c *chromium) pictures(name string) {
	c.t.Helper()
	for _, view := range []struct {
		name          string
		width, height int
		scheme        string
	}{{"wide", 1280, 900, "light"}, {"dark", 1280, 900, "dark"}, {"narrow", 400, 800, "light"}} {
		c.resize(view.width, view.height)
		c.scheme(view.scheme)
		c.await("innerWidth === " + strconv.Itoa(view.width))
		c.fits()
		c.screenshot(name + "-" + view.name)
	}
}

// raw and overview show a tab.
func (c *chromium) raw()      { c.tab("raw") }
func (c *chromium) overview() { c.tab("") }

func (c *chromium) tab(name string) {
	c.t.Helper()
	c.eval(`document.querySelector('header [data-set="tab"][data-value="`+name+`"]').click()`, nil)
	c.await(`document.querySelector('[data-section="` + map[string]string{"raw": "resources", "": "clusters"}[name] + `"]').hidden === false || document.querySelector('[data-section="served"]').hidden === ` + strconv.FormatBool(name == ""))
}

// The page shows changes without a reload: a mesh with a rejected version, ignored fields, an
// aggregate cluster and a backend that is down; then a route that moves.
func TestBrowserFollowsTheMesh(t *testing.T) {
	c := startChromium(t, 1400, 900)
	one, two, down := testutils.StartBackend(t, "one"), testutils.StartBackend(t, "two"), testutils.StartBackend(t, "down")
	down.Stop()
	stable := xdsmsg.EDSCluster("stable", "")
	stable.ConnectTimeout = durationpb.New(1)
	stable.LbSubsetConfig = &clusterpb.Cluster_LbSubsetConfig{}
	assigned := xdsmsg.SimpleEndpoints("stable", one.Addr(), two.Addr())
	assigned.Endpoints[0].Proximity = wrapperspb.UInt32(1)
	plane, conn := startChannel(t, "browser",
		xdsmsg.DefaultListener("service", "routes"),
		xdsmsg.RouteConfig("routes", "service",
			xdsmsg.PathRoute("/grpc.testing.TestService/UnaryCall", "all"),
			xdsmsg.WeightedRoute("", xdsmsg.Weighted{Cluster: "stable", Weight: 9}, xdsmsg.Weighted{Cluster: "all", Weight: 1})),
		stable, assigned,
		xdsmsg.AggregateCluster("all", "broken", "stable"),
		xdsmsg.EDSCluster("broken", ""), xdsmsg.SimpleEndpoints("broken", down.Addr()),
	)
	for range 50 {
		xdstest.NoError(t, call(t, conn))
	}
	bad := xdsmsg.EDSCluster("broken", "")
	bad.LbPolicy = clusterpb.Cluster_CLUSTER_PROVIDED
	plane.Set(t, bad)

	c.navigate(serve(t, mux("/status/", Handler(WithControlPlane(plane.Control(), plane.Store())))).URL + "/status/")
	c.await(`document.querySelector("#live").textContent.includes("live")`)
	for _, text := range []string{"Failing: 1 of 1 client refuse", "Where RPCs go", "stable", one.Addr(), "NACKED", "lb_policy", "2 ignored fields, 1 that may matter", "Clients of the control plane"} {
		c.await(`document.body.innerText.includes(` + quote(text) + `)`)
	}
	// Every line of the graph leads from one box to another.
	c.await(`document.querySelectorAll(".graph path").length >= 8`)
	// The fields are listed when their number is clicked.
	c.eval(`document.querySelector("details.small summary").click()`, nil)
	c.await(`document.body.innerText.includes("lb_subset_config")`)

	c.eval(`window.unchanged = true; document.querySelector('[data-param="graph.q"]').focus()`, nil)
	plane.Set(t, xdsmsg.EDSCluster("moved", ""), xdsmsg.SimpleEndpoints("moved", two.Addr()))
	plane.Set(t, xdsmsg.RouteConfig("routes", "service", xdsmsg.PathRoute("/grpc.testing.TestService/UnaryCall", "all"), xdsmsg.PrefixRoute("", "moved")))
	c.await(`document.querySelector(".graph").innerText.includes("moved")`)
	xdstest.NoError(t, call(t, conn))
	c.await(`document.querySelector('[data-section="clusters"]').innerText.includes("moved")`)
	c.await(`document.querySelector(".graph details[open]")?.innerText.includes("lb_subset_config")`)
	c.await(`window.unchanged && document.activeElement.dataset.param === "graph.q"`)
	// The link in the address shows the same again.
	c.raw()
	c.eval(`document.querySelector('[data-param="resources.q"]').value = "sta";
		document.querySelector('[data-param="resources.q"]').dispatchEvent(new Event("input", {bubbles: true}))`, nil)
	c.await(`location.hash.includes("resources.q=sta")`)
	c.await(`!document.querySelector('[data-section="resources"] .body').innerText.includes("broken")`)

	c.overview()
	c.eval(`document.querySelector('#explain [name="target"]').value = "xds:///service";
		document.querySelector('#explain [name="method"]').value = "/grpc.testing.TestService/UnaryCall";
		document.querySelector('#explain [name="header"]').value = "x-user: 7";
		document.querySelector("#explain button").click()`, nil)
	c.await(`document.querySelector("#explanation").innerText.includes("routes, in the order")`)
	c.await(`document.querySelector("#explanation").innerText.includes("broken")`)
	c.pictures("mesh")

	// A section that is folded is not asked for.
	c.raw()
	c.eval(`document.querySelector('[data-section="served"] summary').click()`, nil)
	c.await(`location.hash.includes("fold=served")`)
	c.quiet()
}

// The page explains an RPC as the command does. Of channels with one target, each is offered by its number.
func TestBrowserExplains(t *testing.T) {
	c := startChromium(t, 1400, 900)
	backend := testutils.StartBackend(t, "b")
	for _, cluster := range []string{"one", "another"} {
		_, conn := startChannel(t, cluster, oneCluster(cluster, backend)...)
		xdstest.NoError(t, call(t, conn))
	}
	c.navigate(serve(t, Handler()).URL)
	c.raw() // which has the channels
	c.await(`document.querySelectorAll("#targets option").length === 2`)
	c.overview()
	c.eval(`document.querySelector('#explain [name="target"]').value = [...document.querySelectorAll("#targets option")].at(-1).value;
		document.querySelector('#explain [name="method"]').value = "/grpc.testing.TestService/UnaryCall";
		document.querySelector("#explain button").click()`, nil)
	c.await(`document.querySelector("#explanation .heading").innerText.includes('cluster "another"')`)
	c.quiet()
}

// Names are text, whatever they look like.
func TestBrowserShowsHostileNamesAsText(t *testing.T) {
	c := startChromium(t, 1400, 900)
	backend := testutils.StartBackend(t, "b")
	plane, conn := startChannel(t, hostile[1], hostileMesh(backend.Addr())...)
	conn.Connect()
	c.navigate(serve(t, Handler(WithControlPlane(plane.Control(), plane.Store()))).URL)
	c.await(`document.querySelectorAll(".graph [data-set='graph.cluster']").length >= ` + "10")
	text := c.text()
	c.raw()
	c.await(`document.querySelector('[data-section="resources"]').innerText.includes("<script>")`)
	text += c.text()
	for _, want := range []string{hostile[0], hostile[1], hostile[2], hostile[3], `right\u{202e}to-left\u{2066} and \u{200b}nothing\u{0} and \u{1b}[31m`, "(65536 bytes)", `line\u{a}data: {}`, `\u{2028}\u{2029}\u{feff}`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	c.eval(`for (const e of document.querySelectorAll("main *")) e.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}))`, nil)
	var found struct {
		Owned            bool
		Images, Scripts  int
		Handlers, Styles int
	}
	c.eval(`({owned: "owned" in document.body.dataset, images: document.images.length, scripts: document.scripts.length,
		handlers: [...document.querySelectorAll("*")].filter(e => [...e.attributes].some(a => a.name.startsWith("on"))).length,
		styles: document.querySelectorAll("style, [style]").length})`, &found)
	if found.Owned || found.Images != 0 || found.Scripts != 1 || found.Handlers != 0 || found.Styles != 0 {
		t.Errorf("a name has become markup: %+v", found)
	}
	c.pictures("hostile")
	c.quiet()
}

// quote is a string of JavaScript.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}
