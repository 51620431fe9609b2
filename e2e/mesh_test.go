package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	_ "github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) {
	if code, ok := runChild(); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(underZone{overEachWay{m}})
}

// protocol is the server feature that asks the control plane for the protocol that tests run over,
// "" for SotW. It changes between two runs of all tests only, as does downstream.
var protocol string

// way is what is between the clients and their control plane.
type way struct {
	name, protocol string
	// downstream is what the clients speak to a relay; nil if there is none.
	downstream *string
}

// allWays are all of them. With a relay in between, it speaks one protocol to the control plane and the
// other to the clients.
var allWays = []way{
	{"SotW", "", nil},
	{"delta", "delta", nil},
	{"relay-sotw-delta", "", ptr("delta")},
	{"relay-delta-sotw", "delta", ptr("")},
}

// overEachWay runs all tests once over each of the ways.
type overEachWay struct{ m *testing.M }

func (o overEachWay) Run() int {
	flag.Parse()
	chosen, err := waysNamed(*only)
	if err != nil {
		fmt.Println(err)
		return 2
	}
	if err := overlapWaits(); err != nil {
		fmt.Println(err)
		return 2
	}
	var failed []string
	for _, way := range chosen {
		protocol, downstream = way.protocol, way.downstream
		if o.m.Run() != 0 {
			failed = append(failed, way.name)
		}
	}
	if failed != nil {
		fmt.Println("the tests failed over", strings.Join(failed, ", "))
		return 1
	}
	return 0
}

// only chooses among allWays. A run of all packages has no flag for this one, so that the environment
// says it as well.
var only = flag.String("way", os.Getenv("E2E_WAY"), "run the tests only over some of SotW, delta, relay-sotw-delta, relay-delta-sotw")

// waysNamed returns the ways of these names, which commas separate; all if there is none.
func waysNamed(names string) ([]way, error) {
	if names == "" {
		return allWays, nil
	}
	var chosen []way
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(allWays, func(w way) bool { return w.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-way %s: there is no way %q; it has to be some of SotW, delta, relay-sotw-delta, relay-delta-sotw, with commas in between", names, name)
		}
		chosen = append(chosen, allWays[i])
	}
	return chosen, nil
}

// overlapWaits lets more tests run at the same time than there are processors, unless -parallel says
// how many: most of them wait for what others do, some for the 15 seconds of a resource timer.
func overlapWaits() (err error) {
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		err = flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0)))
	}
	return err
}

// A name of -way that is none fails, rather than that no test runs.
func TestWayMustBeKnown(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		names string
		want  []way
	}{
		{"", allWays},
		{"delta", allWays[1:2]},
		{"relay-delta-sotw,SotW", []way{allWays[3], allWays[0]}},
	} {
		if got, err := waysNamed(tc.names); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("-way %q: %v, %v; want %v", tc.names, got, err, tc.want)
		}
	}
	for _, names := range []string{"Delta", "delta,sotw", "delta,", ","} {
		if got, err := waysNamed(names); err == nil {
			t.Errorf("-way %q: %v, want an error", names, got)
		}
	}
}

func ptr[T any](v T) *T { return &v }

// service is the target that most tests dial; its resources are of the same
// name.
const service = "echo.example.com"

// mesh is a control plane on loopback and what a channel needs to reach it.
type mesh struct {
	*xdstest.Server
	t testing.TB
	// features are the server's features in the bootstrap.
	features []string
	// relay is the address of the relay in between, or "".
	relay string
}

func newMesh(t testing.TB, features ...string) *mesh {
	t.Helper()
	return overServer(t, xdstest.StartServer(t, linkOf(t)...), features...)
}

// overServer returns a mesh with that control plane.
func overServer(t testing.TB, server *xdstest.Server, features ...string) *mesh {
	t.Helper()
	m := &mesh{Server: server, t: t, features: with(features, protocol)}
	if downstream != nil {
		m.relay = startRelay(t, server, m.features)
		m.features = with(features, *downstream)
	}
	return m
}

// with returns the features with one more, unless it is "".
func with(features []string, more string) []string {
	if more == "" {
		return features
	}
	return append(slices.Clip(features), more)
}

// Addr is what clients connect to.
func (m *mesh) Addr() string {
	if m.relay != "" {
		return m.relay
	}
	return m.Server.Addr()
}

// Bootstrap returns a bootstrap for the clients of the mesh.
func (m *mesh) Bootstrap(nodeID string, opts ...testutils.BootstrapOption) []byte {
	return testutils.Bootstrap(nodeID, m.Addr(), opts...)
}

// set puts resources into the store in one update.
func (m *mesh) set(resources ...proto.Message) {
	m.t.Helper()
	m.Set(m.t, resources...)
}

// bootstrap returns a bootstrap for the mesh. The node id is the test's name.
func (m *mesh) bootstrap(opts ...testutils.BootstrapOption) []byte {
	return m.Bootstrap(m.t.Name(), append([]testutils.BootstrapOption{testutils.ServerFeatures(m.features...)}, opts...)...)
}

// asks matches the request that adds a name to those of a type that the client asks
// for, over either protocol.
func asks(typeURL, added string, others ...string) xdstest.Match {
	if protocol == "delta" {
		return xdstest.Subscribing(typeURL, added)
	}
	return xdstest.ForNames(typeURL, append(others, added)...)
}

// keepSilent makes the control plane send nothing for missing resources over delta, as over
// SotW. Otherwise RPCs that need them would fail at once over delta.
func (m *mesh) keepSilent() {
	m.OnDeltaResponse(func(_ uint64, resp *discoverypb.DeltaDiscoveryResponse) *discoverypb.DeltaDiscoveryResponse {
		resp.RemovedResources, resp.RemovedResourceNames = nil, nil
		return resp
	})
}

// serve configures the service with one cluster, of the given name, and one
// route to it.
func (m *mesh) serve(name, cluster string, backends ...*testutils.Backend) {
	m.t.Helper()
	m.set(append(chain(name, xdsmsg.PrefixRoute("", cluster)), clusterOf(cluster, backends...)...)...)
}

// chain is a Listener and a RouteConfiguration of the same name.
func chain(name string, routes ...*routepb.Route) []proto.Message {
	return []proto.Message{
		xdsmsg.DefaultListener(name, name),
		xdsmsg.RouteConfig(name, name, routes...),
	}
}

// clusterOf is an EDS cluster and its endpoints.
func clusterOf(name string, backends ...*testutils.Backend) []proto.Message {
	addrs := make([]string, len(backends))
	for i, b := range backends {
		addrs[i] = b.Addr()
	}
	return []proto.Message{xdsmsg.EDSCluster(name, ""), xdsmsg.SimpleEndpoints(name, addrs...)}
}

// builder returns a resolver builder for the mesh.
func (m *mesh) builder() grpcresolver.Builder {
	m.t.Helper()
	b, err := resolver.NewBuilder(m.bootstrap())
	xdstest.NoError(m.t, err)
	return b
}

// dial opens a channel to the target through the mesh.
func (m *mesh) dial(target string, opts ...grpc.DialOption) *grpc.ClientConn {
	m.t.Helper()
	return dial(m.t, target, append([]grpc.DialOption{grpc.WithResolvers(m.builder())}, opts...)...)
}

// latency is how long messages between a client and a control plane take, in each
// direction, over the slow link.
const latency = 10 * time.Millisecond

const (
	loopback = "loopback"
	slowLink = "slow-link"
)

// overLinks runs a test in which no RPC fails with control planes on loopback, and behind a
// link with latency: there a request of the client and a response of the control plane can
// cross. newMesh finds the link in the name of the test.
func overLinks(t *testing.T, f func(t *testing.T)) {
	t.Parallel()
	xdstest.Parallel(t, loopback, f)
	xdstest.Parallel(t, slowLink, f)
}

// overLinksInTurn is overLinks for a test that is not parallel to others.
func overLinksInTurn(t *testing.T, f func(t *testing.T)) {
	t.Run(loopback, f)
	t.Run(slowLink, f)
}

// linkOf returns the link that the test runs over, as an option of its control planes.
func linkOf(t testing.TB) []testutils.FakeServerOption {
	if !isUnder(t, slowLink) {
		return nil
	}
	return []testutils.FakeServerOption{testutils.OverLink(xdstest.SlowLink(latency, latency))}
}

// isUnder reports whether the test is part of a sub-test of that name.
func isUnder(t testing.TB, name string) bool {
	return strings.Contains(t.Name()+"/", "/"+name+"/")
}

// in returns the new-style name of a resource (xRFC TP1).
func in(authority, typeURL, id string) string {
	return "xdstp://" + authority + "/" + typeurl.Name(typeURL) + "/" + id
}

// backends starts a backend for each of the ids.
func backends(t testing.TB, ids ...string) (all []*testutils.Backend) {
	for _, id := range ids {
		all = append(all, testutils.StartBackend(t, id))
	}
	return all
}

// cutOff breaks the streams and refuses others, and returns when n more were refused.
func (m *mesh) cutOff(n int) {
	m.t.Helper()
	m.RefuseStreams(status.Error(codes.Unavailable, "on purpose"))
	attempts := m.Attempts()
	m.BreakStreams(nil)
	xdstest.NoError(m.t, m.WaitAttempts(testutils.Context(m.t), attempts+n))
}

// restart is Restart that fails the test instead of returning an error.
func (m *mesh) restart() {
	m.t.Helper()
	xdstest.NoError(m.t, m.Restart())
}
