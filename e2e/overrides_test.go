package e2e_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// dialOverriding opens a channel to the target whose bootstrap has the overrides.
func (m *mesh) dialOverriding(target, overrides string, opts ...testutils.BootstrapOption) *grpc.ClientConn {
	m.t.Helper()
	return dialWith(m.t, target, m.bootstrap(append(opts, testutils.TopLevel("overrides", json.RawMessage(overrides)))...))
}

// failEveryOther makes a backend fail every second RPC, beginning with the first.
func failEveryOther(b *testutils.Backend) {
	var n atomic.Int32
	b.SetBehaviour(func(context.Context, testutils.RPC) error {
		if n.Add(1)%2 == 1 {
			return testutils.TrailersOnly(status.Error(codes.Unavailable, "again"))
		}
		return nil
	})
}

func TestOverriddenRetries(t *testing.T) {
	t.Parallel()
	inOneWay(t, "the resources stay the same")
	const policy = `route { retry_policy { retry_on: "unavailable" } }`
	for name, test := range map[string]struct {
		received, overrides string
		code                codes.Code
	}{
		"added":   {"", `[{"routes": "echo*", "retry_policy": {"retry_on": "unavailable", "retry_back_off": {"base_interval": "0.001s"}}}]`, codes.OK},
		"changed": {policy, `[{"routes": "echo*", "retry_policy": {"retry_on": "internal"}}]`, codes.Unavailable},
		"removed": {policy, `[{"routes": "echo*", "retry_policy": null}]`, codes.Unavailable},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b")
			m.serveRoute(with(toCluster("b"), "%s", test.received), backend)
			cc := m.dialOverriding("xds:///"+service, test.overrides)
			mustReach(t, cc, unary, backend)
			eachKind(t, func(t *testing.T, k kind) {
				failEveryOther(backend)
				if r := callFor(testutils.Context(t), cc, k); status.Code(r.err) != test.code {
					t.Errorf("%v, want code %v", r.err, test.code)
				}
			})
		})
	}
}

// Overrides change neither ACKs nor the client status, which have what the server sent. An override that does not fit a
// new version leaves the received setting; and an invalid version is NACKed even if an override replaces the fault.
func TestOverridesAreNotSeenByTheServer(t *testing.T) {
	directly(t, "a relay does not pass NACKs on")
	t.Parallel()
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	const name = "unseen.example.com" // by which this client is found
	routes := func(base, more string) *routepb.RouteConfiguration {
		return xdsmsg.RouteConfig(name, "*", with(toCluster("unseen"),
			`route { retry_policy { retry_on: "internal" retry_back_off { base_interval { %s } } %s } }`, base, more))
	}
	const millisecond = "nanos: 1000000"
	m.set(clusterOf("unseen", backend), xdsmsg.DefaultListener(name, name), routes(millisecond, ""))
	cc := m.dialOverriding("xds:///"+name, `[{"routes": "*", "retry_policy": {"retry_on": "unavailable", "retry_back_off": {"max_interval": "1s"}}}]`)
	mustReach(t, cc, unary, backend)
	m.MustWait(testutils.Context(t), t, xdstest.ACKOf(xdsmsg.RouteType))
	failEveryOther(backend)
	mustReach(t, cc, unary, backend)

	held := func() *xdsclient.ResourceDump {
		for _, c := range xdsclient.Clients() {
			d := c.Dump()
			if d.Node.GetId() != t.Name() {
				continue // that of a relay
			}
			for i := range d.Resources {
				if r := &d.Resources[i]; r.Name == name && r.TypeURL == xdsmsg.RouteType && r.Cached() {
					return r
				}
			}
		}
		return nil
	}
	r := held()
	if r == nil {
		t.Fatal("no client has the routes")
	}
	if want := xdsmsg.Any(routes(millisecond, "")); !proto.Equal(r.Any(), want) {
		t.Errorf("the client says that it has %v, want what was sent, %v", r.Any(), want)
	}

	m.set(routes("seconds: 60", "")) // above max_interval of the override
	untilFailed(t, cc, "again")
	if got := held().Ignored(); !slices.ContainsFunc(got, func(i xdsclient.Ignored) bool {
		return i.Path == "overrides[0].retry_policy.retry_back_off.max_interval" && i.Severity == xdsclient.SeverityWarning
	}) {
		t.Errorf("ignored %v, want the override", got)
	}

	m.set(routes(millisecond, "num_retries { value: 0 }"))
	m.MustWait(testutils.Context(t), t, xdstest.NACKOf(xdsmsg.RouteType))
}

// xRFC TP2: overrides are for a name, whichever variant the client uses.
func TestOverridesOfVariants(t *testing.T) {
	t.Parallel()
	m := newVariantMesh(t)
	m.set(xdsmsg.DefaultListener(tp2Listener, tp2Routes))
	for _, v := range []string{"a", "b"} {
		b := testutils.StartBackend(t, v)
		failEveryOther(b)
		m.set(clusterOf(v, b))
		m.SetVariant(t, map[string]string{"env": v}, routesTo(tp2Routes, v))
	}
	use := func(env string) {
		c := constrain(t, xdsmsg.RouteType, is("env", env))
		m.SetDPDS(t, dpdsName, func(*corepb.Node) (dynparam.ByType, error) { return c, nil })
	}
	use("a")
	cc := m.dialOverriding(tp2Target,
		`[{"routes": "xdstp://`+tp2+`/envoy.config.route.v3.RouteConfiguration/*", "retry_policy": {"retry_on": "unavailable", "num_retries": 3, "retry_back_off": {"base_interval": "0.001s"}}}]`, withDPDS())
	for _, v := range []string{"a", "b"} {
		use(v)
		until(t, cc, "reached "+v, func(id string, err error) bool {
			if err != nil {
				t.Fatalf("an RPC was not retried: %v", err)
			}
			return id == v
		}, grpc.WaitForReady(true))
	}
}

// The example of docs/tasks/overrides.md works, and explanations say what that page says.
func TestManualOfOverrides(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/tasks/overrides.md")
	xdstest.NoError(t, err)
	_, rest, _ := strings.Cut(string(doc), "```json\n")
	example, rest, _ := strings.Cut(rest, "```")
	var bootstrap struct{ Overrides json.RawMessage }
	xdstest.NoError(t, json.Unmarshal([]byte(example), &bootstrap))
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	const cluster = "outbound|7070||orders.shop.svc.cluster.local"
	const target = "overrides.example.com"
	m.set(xdsmsg.DefaultListener(target, service), xdsmsg.RouteConfig(service, "*", toCluster(cluster)),
		with(xdsmsg.EDSCluster(cluster, ""), maxRequests, 1000), endpointsOf(cluster, backend))
	cc := m.dialOverriding("xds:///"+target, string(bootstrap.Overrides))
	mustReach(t, cc, unary, backend)
	e, err := explain.InProcess(testutils.Context(t), explain.Request{Target: "xds:///" + target, Method: unaryMethod})
	xdstest.NoError(t, err)
	text := e.Text()
	shown := 0
	for line := range strings.SplitSeq(rest, "\n") {
		if strings.Contains(line, " by overrides[") {
			if shown++; !strings.Contains(text, line+"\n") {
				t.Errorf("the page has %q, and the explanation is\n%s", line, text)
			}
		}
	}
	if want := "5 failures in a row"; !strings.Contains(text, want) {
		t.Errorf("the outlier detection in use is not described by %q:\n%s", want, text)
	}
	if shown != 4 {
		t.Errorf("the page shows %d changes, want 4", shown)
	}
}
