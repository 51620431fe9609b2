package e2e_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// dpdsAuthority is another authority than that of the resources that its DPDS resource
// is for.
const dpdsAuthority = "dpds.example.com"

var dpdsElsewhere = in(dpdsAuthority, dynparam.MapTypeURL, "map")

// apart are the servers of TP2, "Non-Cacheability of DPDS": a caching one for most
// resources, and the authoritative one that has the DPDS resource "by using a
// different authority in the DPDS resource name".
type apart struct{ cache, origin *mesh }

func newApart(t *testing.T) apart {
	t.Helper()
	// The origin is asked by name alone, and needs no feature for that.
	return apart{newVariantMesh(t), newMesh(t, "fail_on_data_errors")}
}

// dial opens a channel to the service of the authority.
func (a apart) dial(opts ...testutils.BootstrapOption) *grpc.ClientConn {
	a.cache.t.Helper()
	return dialWith(a.cache.t, tp2Target, a.cache.bootstrap(append(opts,
		testutils.Authority(tp2, "", map[string]any{
			"dynamic_parameter_constraints_resource": dpdsElsewhere, "xds_servers": []any{a.cache.asServer("insecure")},
		}),
		authorityWith(dpdsAuthority, a.origin.asServer("insecure")))...))
}

// serve puts routes to direct and to proxy into the cache. A client without constraints
// gets those to direct.
func (a apart) serve() (direct, proxy *testutils.Backend) {
	m := a.cache
	m.t.Helper()
	all := backends(m.t, "direct", "proxy")
	m.set(xdsmsg.DefaultListener(tp2Listener, tp2Routes))
	for i, useProxy := range []string{"false", "true"} {
		m.set(clusterOf(all[i].ID(), all[i]))
		m.SetVariant(m.t, map[string]string{"use_proxy": useProxy}, routesTo(tp2Routes, all[i].ID()))
	}
	return all[0], all[1]
}

// useProxy sets the DPDS resource.
func (a apart) useProxy(value string) {
	a.origin.t.Helper()
	c := constrain(a.origin.t, xdsmsg.RouteType, is("use_proxy", value))
	a.origin.SetDPDS(a.origin.t, dpdsElsewhere, func(*corepb.Node) (dynparam.ByType, error) { return c, nil })
}

// TP2, "Non-Cacheability of DPDS" and "Server-Specified Constraints": the DPDS resource
// of another authority comes from the server of that authority, before anything is
// requested from the cache. Its updates move RPCs, and none fails.
func TestDPDSOfAnotherAuthority(t *testing.T) {
	everyWay(t)
	directly(t, severalServers)
	overLinks(t, func(t *testing.T) {
		a := newApart(t)
		direct, proxy := a.serve()
		a.useProxy("true")
		answer := a.origin.StallSends()
		cc := a.dial()
		cc.Connect()
		a.origin.MustWait(testutils.Context(t), t, xdstest.Subscribing(dynparam.MapTypeURL, dpdsElsewhere))
		if early := a.cache.Requests(); len(early) > 0 {
			t.Errorf("requests to the cache before the response of DPDS: %v", early)
		}
		answer()
		l := loadOn(t, cc, proxy)
		a.useProxy("false")
		l.await(t, direct)
		a.origin.Stop() // the last constraints stay
		l.await(t, direct)
		l.Stop(t)
		for _, r := range a.cache.Requests() {
			if r.TypeURL == dynparam.MapTypeURL {
				t.Errorf("a request to the cache for a resource that is not cacheable: %v", r)
			}
		}
		for _, r := range a.origin.Requests() {
			if r.TypeURL != dynparam.MapTypeURL {
				t.Errorf("a request to the origin for what the cache has: %v", r)
			}
		}
	})
}

// DPDS moves a client to the next variant before it can have subscribed to the last one, and each is deleted soon
// after. No RPC fails, as the variant that DPDS selects exists.
func TestDPDSMovesFasterThanMessagesTravel(t *testing.T) {
	everyWay(t)
	directly(t, "DPDS has a stream of its own upstream, so that other resources may overtake it")
	overLinks(t, func(t *testing.T) {
		cluster, endpoints := in(tp2, xdsmsg.ClusterType, "c"), in(tp2, xdsmsg.EndpointType, "e")
		routesOf := func(b *testutils.Backend) string { return in(tp2, xdsmsg.RouteType, b.ID()) }
		// The variants of a type lead to a backend each.
		for typeURL, variantFor := range map[string]func(b *testutils.Backend) proto.Message{
			xdsmsg.ListenerType: func(b *testutils.Backend) proto.Message { return xdsmsg.DefaultListener(tp2Listener, routesOf(b)) },
			xdsmsg.RouteType:    func(b *testutils.Backend) proto.Message { return routesTo(tp2Routes, b.ID()) },
			xdsmsg.ClusterType:  func(b *testutils.Backend) proto.Message { return xdsmsg.EDSCluster(cluster, b.ID()) },
			xdsmsg.EndpointType: func(b *testutils.Backend) proto.Message { return endpointsOf(endpoints, b) },
		} {
			xdstest.Parallel(t, typeURL[strings.LastIndexByte(typeURL, '.')+1:], func(t *testing.T) {
				m := newVariantMesh(t)
				all := backends(t, "0", "1", "2")
				for _, b := range all {
					m.set(clusterOf(b.ID(), b), routesTo(routesOf(b), b.ID()))
				}
				m.set(xdsmsg.EDSCluster(cluster, endpoints))
				if typeURL != xdsmsg.ListenerType {
					m.set(xdsmsg.DefaultListener(tp2Listener, tp2Routes))
				}
				if typeURL != xdsmsg.RouteType {
					m.set(routesTo(tp2Routes, cluster))
				}
				turn := func(i int) map[string]string { return map[string]string{"turn": all[i%3].ID()} }
				name := map[string]string{xdsmsg.ListenerType: tp2Listener, xdsmsg.RouteType: tp2Routes, xdsmsg.ClusterType: cluster, xdsmsg.EndpointType: endpoints}[typeURL]
				m.Delete(t, typeURL, name) // the variant without parameters
				offer := func(i int) {
					m.SetVariant(t, turn(i), variantFor(all[i%3]))
					c := constrain(t, typeURL, is("turn", turn(i)["turn"]))
					m.SetDPDS(t, dpdsName, func(*corepb.Node) (dynparam.ByType, error) { return c, nil })
				}
				offer(0)
				cc := dialWith(t, tp2Target, m.bootstrap(withDPDS()))
				l := loadOn(t, cc, all[0])
				const moves = 100
				for i := range moves {
					offer(i + 1)
					<-time.After(time.Duration(rand.Int64N(int64(latency))))
					m.Update(t, func(tx *controlplane.Tx) { tx.DeleteVariant(typeURL, name, turn(i)) })
					if i%20 == 0 {
						l.await(t, all[(i+1)%3])
					}
				}
				l.await(t, all[moves%3])
				l.Stop(t)
			})
		}
	})
}
