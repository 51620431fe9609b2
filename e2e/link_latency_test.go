package e2e_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// latency is how long messages between a client and a control plane take, in each
// direction, over the slow link.
const latency = 10 * time.Millisecond

const (
	loopback = "loopback"
	slowLink = "slow-link"
)

// overLinks runs a test of which no RPC fails with control planes on loopback, and behind a
// link with latency: there a request of the client and a response of the control plane can
// cross. newMesh tells which by the name of the test.
func overLinks(t *testing.T, f func(t *testing.T)) {
	t.Parallel()
	overLinksInTurn(t, f)
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
	return []testutils.FakeServerOption{testutils.OverLink(testutils.NewLink(latency, latency))}
}

// isUnder reports whether the test is part of a sub-test of that name.
func isUnder(t testing.TB, name string) bool {
	return strings.Contains(t.Name()+"/", "/"+name+"/")
}

// DPDS moves a client to another variant, and the old one is deleted before the control
// plane can have heard that the client subscribes to the new one. No RPC fails, as the
// new one is there.
func TestVariantIsDeletedWhileTheClientMoves(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		t.Parallel()
		for name, prepare := range map[string]func(m *mesh){
			"removals name the subscription": func(*mesh) {},
			// As of other servers; the client may not take them for those of the new variant.
			"removals are by name": func(m *mesh) {
				m.OnDeltaResponse(func(_ uint64, resp *discoverypb.DeltaDiscoveryResponse) *discoverypb.DeltaDiscoveryResponse {
					for _, of := range resp.GetRemovedResourceNames() {
						resp.RemovedResources = append(resp.RemovedResources, of.GetName())
					}
					resp.RemovedResourceNames = nil
					return resp
				})
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				m := newVariantMesh(t)
				prepare(m)
				all := backends(t, "even", "odd")
				m.set(xdsmsg.DefaultListener(tp2Listener, tp2Routes))
				for _, b := range all {
					m.set(clusterOf(b.ID(), b)...)
				}
				turn := func(i int) map[string]string { return map[string]string{"turn": all[i%2].ID()} }
				offer := func(i int) {
					m.SetVariant(t, turn(i), routesTo(tp2Routes, all[i%2].ID()))
					c := constrain(t, routesURL, is("turn", turn(i)["turn"]))
					m.SetDPDS(t, dpdsName, func(*corepb.Node) (dynparam.ByType, error) { return c, nil })
				}
				offer(0)
				cc := dialWith(t, tp2Target, m.bootstrap(withDPDS()))
				mustReach(t, cc, unary, all[0])
				l := startLoad(t, cc)
				for i := range 10 {
					l.await(t, all[i%2])
					offer(i + 1)
					<-time.After(latency * 2 / 5) // less than a message takes over the link
					m.Update(t, func(tx *controlplane.Tx) { tx.DeleteVariant(routesURL, tp2Routes, turn(i)) })
				}
				l.await(t, all[0])
				l.stop(t)
			})
		}
	})
}

// DPDS moves a client on before it can have asked for the last variant, and each is deleted
// soon after. No RPC fails, as the variant that DPDS says is there.
func TestDPDSMovesFasterThanMessagesTravel(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		t.Parallel()
		cluster, endpoints := in(tp2, clusterURL, "c"), in(tp2, endpointsURL, "e")
		routesOf := func(b *testutils.Backend) string { return in(tp2, routesURL, b.ID()) }
		// The variants of a type lead to a backend each.
		for typeURL, variantFor := range map[string]func(b *testutils.Backend) proto.Message{
			listenerURL:  func(b *testutils.Backend) proto.Message { return xdsmsg.DefaultListener(tp2Listener, routesOf(b)) },
			routesURL:    func(b *testutils.Backend) proto.Message { return routesTo(tp2Routes, b.ID()) },
			clusterURL:   func(b *testutils.Backend) proto.Message { return xdsmsg.EDSCluster(cluster, b.ID()) },
			endpointsURL: func(b *testutils.Backend) proto.Message { return xdsmsg.SimpleEndpoints(endpoints, b.Addr()) },
		} {
			t.Run(typeURL[strings.LastIndexByte(typeURL, '.')+1:], func(t *testing.T) {
				t.Parallel()
				m := newVariantMesh(t)
				all := backends(t, "0", "1", "2")
				for _, b := range all {
					m.set(append(clusterOf(b.ID(), b), routesTo(routesOf(b), b.ID()))...)
				}
				m.set(xdsmsg.EDSCluster(cluster, endpoints))
				if typeURL != listenerURL {
					m.set(xdsmsg.DefaultListener(tp2Listener, tp2Routes))
				}
				if typeURL != routesURL {
					m.set(routesTo(tp2Routes, cluster))
				}
				turn := func(i int) map[string]string { return map[string]string{"turn": all[i%3].ID()} }
				name := map[string]string{listenerURL: tp2Listener, routesURL: tp2Routes, clusterURL: cluster, endpointsURL: endpoints}[typeURL]
				m.Delete(t, typeURL, name) // the variant without parameters
				offer := func(i int) {
					m.SetVariant(t, turn(i), variantFor(all[i%3]))
					c := constrain(t, typeURL, is("turn", turn(i)["turn"]))
					m.SetDPDS(t, dpdsName, func(*corepb.Node) (dynparam.ByType, error) { return c, nil })
				}
				offer(0)
				cc := dialWith(t, tp2Target, m.bootstrap(withDPDS()))
				mustReach(t, cc, unary, all[0])
				l := startLoad(t, cc)
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
				l.stop(t)
			})
		}
	})
}
