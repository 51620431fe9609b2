package e2e_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	_ "github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/meshtest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) {
	if code, ok := runChild(); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(underZone{overWays{m}})
}

// protocol is the server feature that asks the control plane for the protocol that tests run over,
// "" for SotW. It changes between two runs of tests only, as does downstream.
var protocol string

// downstream is the server feature that asks the relay for a protocol; nil if there is no relay.
var downstream *string

// way is how the clients reach their control plane.
type way struct {
	name       string
	protocol   string
	downstream *string
}

// allWays are all of them. A relay speaks one protocol to the control plane and the other to the clients.
var allWays = []way{
	{"delta", "delta", nil},
	{"SotW", "", nil},
	{"relay-sotw-delta", "", proto.String("delta")},
	{"relay-delta-sotw", "delta", proto.String("")},
}

// overWays runs all tests over delta, and those that everyWay marks once over each of the other ways. With -way it runs all
// tests over each of the ways that are named.
type overWays struct{ m *testing.M }

func (o overWays) Run() int {
	flag.Parse()
	chosen, err := waysNamed(*only)
	if err := errors.Join(err, overlapWaits()); err != nil {
		fmt.Println(err)
		return 2
	}
	var failed []string
	for i, way := range chosen {
		if *only == "" && i == 1 {
			if len(marked) == 0 {
				break
			}
			chooseMarked()
		}
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

// marked are the tests that have called everyWay.
var (
	markedMu sync.Mutex
	marked   = map[string]bool{}
)

// everyWay marks a test to which it matters how a client reaches its control plane: resources come, change and go while
// RPCs run, servers are lost, constraints choose variants. It stands first in the test.
func everyWay(t *testing.T) {
	markedMu.Lock()
	defer markedMu.Unlock()
	marked[t.Name()] = true
}

// chooseMarked makes the next run one of the marked tests among those that -run chooses.
func chooseMarked() {
	run := flag.Lookup("test.run").Value
	_, below, deeper := strings.Cut(run.String(), "/")
	pattern := "^(" + strings.Join(slices.Sorted(maps.Keys(marked)), "|") + ")$"
	if deeper {
		pattern += "/" + below
	}
	_ = run.Set(pattern) // a string takes every value
}

// only chooses among allWays, for all tests. A run of all packages cannot pass this package's flag, hence the
// environment variable.
var only = flag.String("way", os.Getenv("E2E_WAY"), "run all tests, and over these ways only: some of delta, SotW, relay-sotw-delta, relay-delta-sotw")

// waysNamed returns the ways of these names, which commas separate; all if there is none.
func waysNamed(names string) ([]way, error) {
	if names == "" {
		return allWays, nil
	}
	var chosen []way
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(allWays, func(w way) bool { return w.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-way %s: there is no way %q; it has to be some of delta, SotW, relay-sotw-delta, relay-delta-sotw, with commas in between", names, name)
		}
		chosen = append(chosen, allWays[i])
	}
	return chosen, nil
}

// overlapWaits lets more tests run at the same time than there are processors, unless -parallel says
// how many: most of them wait for what others do, some for the 15 seconds of a resource timer.
func overlapWaits() (err error) {
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set {
		err = flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0)))
	}
	return err
}

// service is the target that most tests dial; its resources are of the same
// name.
const service = "echo.example.com"

// mesh is a control plane on loopback and what a channel needs to reach it.
type mesh struct {
	*meshtest.Server
	t testing.TB
	// features are the server's features in the bootstrap.
	features []string
	// relay is the address of the relay in between, or "".
	relay string
}

func newMesh(t testing.TB, features ...string) *mesh {
	t.Helper()
	return overServer(t, meshtest.Start(t, meshtest.Options{Link: linkOf(t)}), features...)
}

// overServer returns a mesh with that control plane.
func overServer(t testing.TB, server *meshtest.Server, features ...string) *mesh {
	t.Helper()
	m := &mesh{Server: server, t: t, features: withFeature(features, protocol)}
	if downstream != nil {
		m.relay = startRelay(t, server, m.features)
		m.features = withFeature(features, *downstream)
	}
	return m
}

// withFeature returns the features with one more, unless it is "".
func withFeature(features []string, more string) []string {
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

// set puts resources into the store in one update. Each argument is a resource or a slice of them.
func (m *mesh) set(resources ...any) {
	m.t.Helper()
	var all []proto.Message
	for _, r := range resources {
		switch r := r.(type) {
		case proto.Message:
			all = append(all, r)
		case []proto.Message:
			all = append(all, r...)
		default:
			m.t.Fatalf("%T is not a resource", r)
		}
	}
	m.Set(m.t, all...)
}

// with is [xdsmsg.With].
func with[M proto.Message](message M, fields string, args ...any) M {
	return xdsmsg.With(message, fields, args...)
}

// bootstrap returns a bootstrap for the mesh. The node id is the test's name.
func (m *mesh) bootstrap(opts ...testutils.BootstrapOption) []byte { return m.as(m.t.Name(), opts...) }

// as is bootstrap with another node id.
func (m *mesh) as(id string, opts ...testutils.BootstrapOption) []byte {
	return testutils.Bootstrap(id, m.Addr(), append([]testutils.BootstrapOption{testutils.ServerFeatures(m.features...)}, opts...)...)
}

// keepSilent makes the control plane send nothing for missing resources over delta, as over
// SotW. Otherwise RPCs that need them would fail at once over delta.
func (m *mesh) keepSilent() {
	m.OnResponse(func(_ *discoverypb.DiscoveryResponse, resp *discoverypb.DeltaDiscoveryResponse) bool {
		resp.RemovedResources, resp.RemovedResourceNames = nil, nil
		return true
	})
}

// serve configures the service with one cluster, of the given name, and one
// route to it.
func (m *mesh) serve(name, cluster string, backends ...*testutils.Backend) {
	m.t.Helper()
	m.set(chain(name, toCluster(cluster)), clusterOf(cluster, backends...))
}

// serveCluster configures the service with a route to the cluster, whose endpoints are the backends.
func (m *mesh) serveCluster(cluster *clusterpb.Cluster, backends ...*testutils.Backend) {
	m.t.Helper()
	m.set(chain(service, toCluster(cluster.GetName())), cluster, endpointsOf(cluster.GetName(), backends...))
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
	return []proto.Message{xdsmsg.EDSCluster(name, ""), endpointsOf(name, backends...)}
}

// endpointsOf are the endpoints of a cluster, healthy and in one locality.
func endpointsOf(name string, backends ...*testutils.Backend) *endpointpb.ClusterLoadAssignment {
	return xdsmsg.Endpoints(name, xdsmsg.In("zone", addrsOf(backends)...))
}

func addrsOf(backends []*testutils.Backend) (addrs []string) {
	for _, b := range backends {
		addrs = append(addrs, b.Addr())
	}
	return addrs
}

// dial opens a channel to the target through the mesh.
func (m *mesh) dial(target string, opts ...grpc.DialOption) *grpc.ClientConn {
	m.t.Helper()
	return dialWith(m.t, target, m.bootstrap(), opts...)
}

// dialServing sets the resources and opens a channel to the service.
func (m *mesh) dialServing(resources ...any) *grpc.ClientConn {
	m.t.Helper()
	m.set(resources...)
	return m.dial("xds:///" + service)
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

// linkOf returns the link that the test runs over, nil if there is none.
func linkOf(t testing.TB) *testutils.Link {
	if !isUnder(t, slowLink) {
		return nil
	}
	return xdstest.SlowLink(latency, latency)
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
