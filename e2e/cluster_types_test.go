package e2e_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	dnspb "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

const (
	static     = clusterpb.Cluster_STATIC
	strictDNS  = clusterpb.Cluster_STRICT_DNS
	logicalDNS = clusterpb.Cluster_LOGICAL_DNS
)

// connections counts the connections to a backend.
type connections struct {
	noStats
	n atomic.Int32
}

func (c *connections) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnBegin); ok {
		c.n.Add(1)
	}
}

// clusterKinds are the types of clusters, each with the resources of a cluster "c" with one backend, whose
// address in DNS is target.
var clusterKinds = []struct {
	name string
	of   func(backend *testutils.Backend, target string) []proto.Message
}{
	{"EDS", func(b *testutils.Backend, _ string) []proto.Message { return clusterOf("c", b) }},
	{"STATIC", func(b *testutils.Backend, _ string) []proto.Message {
		return []proto.Message{xdsmsg.InlineCluster("c", static, xdsmsg.In("z", b.Addr()))}
	}},
	{"STRICT_DNS", func(_ *testutils.Backend, target string) []proto.Message {
		return []proto.Message{xdsmsg.InlineCluster("c", strictDNS, xdsmsg.In("z", target))}
	}},
	{"LOGICAL_DNS", func(_ *testutils.Backend, target string) []proto.Message {
		return []proto.Message{xdsmsg.InlineCluster("c", logicalDNS, xdsmsg.In("z", target))}
	}},
	{"aggregate", func(b *testutils.Backend, target string) []proto.Message {
		return append(clusterOf("under", b),
			xdsmsg.AggregateCluster("c", "middle"), xdsmsg.AggregateCluster("middle", "under", "last"),
			xdsmsg.InlineCluster("last", logicalDNS, xdsmsg.In("z", target)))
	}},
	{"DnsCluster", func(_ *testutils.Backend, target string) []proto.Message {
		return []proto.Message{dnsCluster("c", target, new(dnspb.DnsCluster))}
	}},
	{"DnsCluster with one endpoint", func(_ *testutils.Backend, target string) []proto.Message {
		return []proto.Message{dnsCluster("c", target, &dnspb.DnsCluster{AllAddressesInSingleEndpoint: true})}
	}},
}

// dnsCluster is a cluster of type envoy.clusters.dns.
func dnsCluster(name, target string, config *dnspb.DnsCluster) *clusterpb.Cluster {
	c := xdsmsg.InlineCluster(name, logicalDNS, xdsmsg.In("z", target))
	c.ClusterDiscoveryType = &clusterpb.Cluster_ClusterType{
		ClusterType: &clusterpb.Cluster_CustomClusterType{Name: "envoy.clusters.dns", TypedConfig: xdsmsg.Any(config)},
	}
	return c
}

// isAggregate reports whether a cluster has others, which have its endpoints and security.
func isAggregate(c *clusterpb.Cluster) bool {
	return c.GetClusterType().GetName() == "envoy.clusters.aggregate"
}

// A cluster of each type serves every kind of RPC, and opens no connection before
// the first one.
func TestEveryClusterTypeServes(t *testing.T) {
	t.Parallel()
	for _, tc := range clusterKinds {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m, used := newMesh(t), testutils.StartBackend(t, "used")
			seen := new(connections)
			backend := testutils.StartBackend(t, "b1", grpc.StatsHandler(seen))
			_, target := inZone(t, backend)
			// Not the last route's cluster, which ClientConn.Connect connects.
			m.set(chain(service, xdsmsg.PathRoute(emptyMethod, "used"), xdsmsg.PrefixRoute("/grpc.testing", "c"), toCluster("used")),
				clusterOf("used", used), tc.of(backend, target))
			cc := m.dial("xds:///" + service)
			answerer(t, cc, emptyMethod)
			xdstest.Equal(t, "connections to a cluster that no RPC was for", 0, seen.n.Load())
			mustReachByEachKind(t, cc, backend)
			xdstest.Equal(t, "connections", 1, seen.n.Load())
		})
	}
}

// A cluster changes from each type to each other one while RPCs run, and no RPC
// fails.
func TestClusterChangesItsTypeUnderLoad(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		m, first := newMesh(t), testutils.StartBackend(t, "first")
		m.serve(service, "c", first)
		cc := m.dial("xds:///" + service)
		l := loadOn(t, cc, first)
		// Away from EDS, and from each type to the next one; then the way back.
		for _, i := range []int{1, 2, 5, 6, 3, 4, 3, 2, 1, 4, 0, 4} {
			next := testutils.StartBackend(t, clusterKinds[i].name)
			_, target := inZone(t, next)
			m.set(clusterKinds[i].of(next, target))
			l.await(t, next)
		}
		l.Stop(t)
	})
}

// forwardFrom2 makes b reachable at 127.0.0.2, at the port that a has at 127.0.0.1.
func forwardFrom2(t *testing.T, a, b *testutils.Backend) {
	xdstest.Forward(t, strings.Replace(a.Addr(), "127.0.0.1", "127.0.0.2", 1), b)
}

// STRICT_DNS follows DNS although no connection ends: backends are added and removed while RPCs run, and no
// RPC fails.
func TestStrictDNSFollowsDNS(t *testing.T) {
	inOneWay(t, "DNS changes, and no resource")
	overLinks(t, func(t *testing.T) {
		m := newMesh(t)
		a, b := testutils.StartBackend(t, "a"), testutils.StartBackend(t, "b")
		name, target := inZone(t, a)
		forwardFrom2(t, a, b)
		cc := m.dialServing(chain(service, toCluster("c")),
			with(xdsmsg.InlineCluster("c", strictDNS, xdsmsg.In("z", target)), `dns_refresh_rate { seconds: 1 }`))
		l := loadOn(t, cc, a)
		zone.SetA(name, "127.0.0.1", "127.0.0.2")
		l.await(t, a, b)
		zone.SetA(name, "127.0.0.2")
		l.await(t, b)
		l.Stop(t)
	})
}

// Everything about an aggregate cluster changes while RPCs run, and no RPC fails.
func TestAggregateChangesUnderLoad(t *testing.T) {
	everyWay(t)
	overLinks(t, func(t *testing.T) {
		m := newMesh(t)
		a, b, c := testutils.StartBackend(t, "a"), testutils.StartBackend(t, "b"), testutils.StartBackend(t, "c")
		m.set(chain(service, toCluster("top")), xdsmsg.AggregateCluster("top", "ca", "cb"), clusterOf("ca", a), clusterOf("cb", b))
		cc := m.dial("xds:///" + service)
		l := loadOn(t, cc, a)
		for _, step := range []struct {
			change any // resources
			want   *testutils.Backend
		}{
			{xdsmsg.AggregateCluster("top", "cb", "ca"), b},
			{append(clusterOf("cc", c), xdsmsg.AggregateCluster("top", "cc", "cb")), c},
			{[]proto.Message{xdsmsg.AggregateCluster("top", "inner", "cc"), xdsmsg.AggregateCluster("inner", "ca")}, a},
			{endpointsOf("ca", b), b},
			{endpointsOf("ca"), c}, // nothing there: the next cluster
			{endpointsOf("ca", a), a},
			{xdsmsg.AggregateCluster("top", "cb"), b},
		} {
			m.set(step.change)
			l.await(t, step.want)
		}
		l.Stop(t)
	})
}
