package xdsclient

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/dynxds/dynxds/testutils"
)

// split returns a client with two targets: "A" has the clusters "a" and "s" of the higher
// server, as version "high", which then refuses streams. "B" watches "s", which is cached.
func split(t *testing.T, f fleet, types *testTypes, features [][]string) (c *XDSClient, a, sOfA, sOfB *ear) {
	t.Helper()
	c = f.clientWith(features)
	a, _ = listen(t, c.ForTarget("A"), types.clusters, "a")
	sOfA, _ = listen(t, c.ForTarget("A"), types.clusters, "s")
	high := f[0].peer(features[0])
	high.say(types.clusters, "1", clusters(cluster("a", "high"), cluster("s", "high")))
	allHear("high", a, sOfA)
	f[0].lose(high)
	sOfB, _ = listen(t, c.ForTarget("B"), types.clusters, "s")
	sOfB.cluster("high")
	synctest.Wait()
	for _, below := range f[1:] {
		below.untouched()
	}
	return c, a, sOfA, sOfB
}

// followed returns the place in the list of the server that a target follows, or -1.
func followed(c *XDSClient, target string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.authorities[authorityKey{}].parties[target]
	if p == nil {
		return -1
	}
	return p.level.index
}

// serversOf returns which servers the versions in use of a cluster are from, in order.
func serversOf(c *XDSClient, name string) (servers []string) {
	for _, r := range c.Dump().Resources {
		if r.Name == name {
			servers = append(servers, r.Server)
		}
	}
	return servers
}

// gRFC A71: "gRPC will use a shared XdsClient instance for each data plane target", so
// that one which needs something new does not take along one that has all it needs. The
// name that both watch is of another server for each.
func TestTargetFallsBackAlone(t *testing.T) {
	for name, features := range protocolsOfTwo {
		t.Run(name, func(t *testing.T) {
			overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
				c, a, sOfA, sOfB := split(t, f, types, features)
				b, stopB := listen(t, c.ForTarget("B"), types.clusters, "b")
				low := f[1].peer(features[1])
				sOfB.silent()
				low.say(types.clusters, "7", clusters(cluster("b", "low"), cluster("s", "low")))
				allHear("low", b, sOfB)
				low.answer()
				allSilent(a, sOfA)
				if got := serversOf(c, "s"); !slices.Equal(got, []string{uri(0), uri(1)}) {
					t.Errorf("s is from %q, want from both servers", got)
				}

				f[0].setRefuse(nil)
				high := f[0].peer(features[0])
				high.say(types.clusters, "1", clusters(cluster("a", "high"), cluster("s", "high"), cluster("b", "high")))
				allHear("high", sOfB, b)
				synctest.Wait()
				allSilent(a, sOfA, sOfB)
				if got := serversOf(c, "s"); !slices.Equal(got, []string{uri(0)}) {
					t.Errorf("s is from %q, want from the higher server", got)
				}
				f[1].opened(1)
				stopB()
				synctest.Wait()
				c.mu.Lock()
				defer c.mu.Unlock()
				if len(c.channels) != 1 || c.authorities[authorityKey{}].levels[1].channel != nil {
					t.Error("the lower server was not left")
				}
			})
		})
	}
}

// The lower server is asked for what the target that falls back watches, and for nothing
// else.
func TestLowerServerIsAskedForOneTarget(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		c, a, sOfA, sOfB := split(t, f, types, [][]string{nil, nil})
		listen(t, c.ForTarget("B"), types.clusters, "b")
		low := f[1].stream()
		check(t, low.request(), want{typ: types.clusters, names: []string{"b", "s"}, node: true})
		// A third one begins: what is cached for the first one is cached for it.
		third, stop := listen(t, c.ForTarget("C"), types.clusters, "a")
		third.cluster("high")
		low.quiet()
		fresh, stopFresh := listen(t, c.ForTarget("C"), types.clusters, "c")
		check(t, low.request(), want{typ: types.clusters, names: []string{"a", "b", "c", "s"}})
		low.send(types.clusters, "1", "n1", cluster("a", "low"), cluster("b", "low"), cluster("c", "low"), cluster("s", "low"))
		allHear("low", third, fresh, sOfB)
		allSilent(a, sOfA)
		low.request()
		stop()
		stopFresh()
		for range 2 { // the stops are two changes, and the last request lists what is left
			if r := low.request(); slices.Equal(r.GetResourceNames(), []string{"b", "s"}) {
				return
			}
		}
		t.Error("the lower server was not told that the third target is gone")
	})
}

// Each target returns with the first thing that is of use to it.
func TestTargetReturnsAlone(t *testing.T) {
	for name, features := range protocolsOfTwo {
		t.Run(name, func(t *testing.T) {
			overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
				f[0].setRefuse(errRefused)
				c := f.clientWith(features)
				b, _ := listen(t, c.ForTarget("B"), types.endpoints, "b")
				d, _ := listen(t, c.ForTarget("D"), types.clusters, "d")
				low := f[1].peer(features[1])
				low.say(types.clusters, "1", clusters(cluster("d", "low")))
				d.cluster("low")
				low.answer()
				f[0].setRefuse(nil)
				high := f[0].peer(features[0])
				high.say(types.clusters, "1", clusters(badCluster("d", "no")))
				allSilent(d, b)
				high.say(types.clusters, "2", clusters(cluster("d", "high")))
				d.cluster("high")
				b.silent()
				synctest.Wait()
				if i, j := followed(c, "B"), followed(c, "D"); i != 1 || j != 0 {
					t.Errorf("B and D follow servers %d and %d, want 1 and 0", i, j)
				}
				// What is new for the one that is still there is asked for at both.
				e, _ := listen(t, c.ForTarget("B"), types.clusters, "e")
				synctest.Wait()
				low.say(types.clusters, "2", clusters(cluster("e", "low")))
				e.cluster("low")
				d.silent()
			})
		})
	}
}

// A response that only repeats the one before it is an answer for a target that stands by
// since.
func TestRepetitionIsOfUseToATargetThatStandsBy(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		c, a, sOfA, sOfB := split(t, f, types, [][]string{nil, nil})
		listen(t, c.ForTarget("C"), types.endpoints, "c")
		low := f[1].asked()
		high := f[0].recover()
		high.send(types.clusters, "1", "n1", cluster("a", "high"), cluster("s", "high"))
		high.send(types.clusters, "1", "n2", cluster("a", "high"), cluster("s", "high"))
		synctest.Wait()
		s, _ := listen(t, c.ForTarget("C"), types.clusters, "s") // at the lower server
		check(t, low.request(), want{typ: types.clusters, names: []string{"s"}})
		low.send(types.clusters, "1", "n1", cluster("s", "low"))
		s.cluster("low")
		high.send(types.clusters, "1", "n3", cluster("a", "high"), cluster("s", "high"))
		s.cluster("high")
		low.gone()
		allSilent(a, sOfA, sOfB)
	})
}

// gRFC A71: watchers hear that all servers are unreachable if theirs is the last. A
// target that has all it needs does not go there.
func TestTargetWithoutAnyServer(t *testing.T) {
	overFleet(t, 3, func(t *testing.T, types *testTypes, f fleet) {
		c, a, sOfA, sOfB := split(t, f, types, make([][]string, 3))
		for _, s := range f {
			s.setRefuse(errRefused)
		}
		b, _ := listen(t, c.ForTarget("B"), types.clusters, "b")
		b.fault(KindUnreachable)
		sOfB.ambient(KindUnreachable)
		late, _ := listen(t, c.ForTarget("B"), types.clusters, "a")
		late.cluster("high")
		late.ambient(KindUnreachable)
		pass(time.Minute)
		allSilent(a, sOfA)
		n, _ := listen(t, c.ForTarget("A"), types.clusters, "n")
		n.fault(KindUnreachable)
		allAmbient(KindUnreachable, a, sOfA)

		// The one in the middle comes back, and then the first.
		f[1].setRefuse(nil)
		middle := f[1].stream()
		check(t, middle.request(), want{typ: types.clusters, names: []string{"a", "b", "n", "s"}, node: true})
		middle.send(types.clusters, "1", "n1", cluster("a", "middle"), cluster("b", "middle"))
		b.cluster("middle")
		late.untilCluster("middle")
		sOfB.cluster("high") // no server has sent a newer one
		a.untilCluster("middle")
		sOfA.cluster("high")
		n.silent()
		high := f[0].recover()
		high.send(types.clusters, "9", "n1", cluster("n", "high"))
		n.cluster("high")
		allSilent(a, b)
		high.send(types.clusters, "10", "n2", cluster("n", "high"), cluster("b", "high"))
		b.cluster("high")
		middle.gone()
		allSilent(late, sOfA)
	})
}

// A collection has other members for a target that fell back. On the way down and on the
// way up a watcher is told the differences.
func TestTargetFallsBackWithACollection(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		c := f.clientWith([][]string{speaksDelta, speaksDelta}, testutils.Authority("auth", "", nil))
		ofA, _ := watchCollection(t, c.ForTarget("A"), types.clusters, collectionName)
		high := f[0].delta()
		high.send(types.clusters, "n1", member("a", "1", "x"), member("b", "1", "x"))
		ofA.heard("member a = x", "member b = x", "collection")
		f[0].lose(high)
		ofB, _ := watchCollection(t, c.ForTarget("B"), types.clusters, collectionName)
		ofB.heard("member a = x", "member b = x", "collection")
		f[1].untouched()
		listen(t, c.ForTarget("B"), types.endpoints, "xdstp://auth/envoy.config.endpoint.v3.ClusterLoadAssignment/missing")
		low := f[1].delta()
		ofB.heard()
		low.send(types.clusters, "n1", member("a", "7", "low"), member("c", "7", "low"))
		ofB.heard("member a = low", "member b: does not exist", "member c = low")
		ofA.heard()

		// A second target, which has heard of members that the lower server does not have.
		ofC, _ := watchCollection(t, c.ForTarget("C"), types.clusters, collectionName)
		ofC.heard("member a = x", "member b = x", "collection")
		listen(t, c.ForTarget("C"), types.endpoints, "xdstp://auth/envoy.config.endpoint.v3.ClusterLoadAssignment/other")
		ofC.heard("member a = low", "member b: does not exist", "member c = low")
		ofA.heard()
		ofB.heard()

		f[0].setRefuse(nil)
		high = f[0].delta()
		high.send(types.clusters, "n1", member("a", "1", "x"), member("d", "1", "x"))
		ofA.heard("member b: does not exist", "member d = x")
		for _, e := range []*collectionEar{ofB, ofC} {
			e.heard("member a = x", "member c: does not exist", "member d = x")
		}
		low.gone()
	})
}

// xRFC TP2: while no server can be reached, a cached variant that matches stands in, even
// that of a target that follows another server.
func TestVariantOfAnotherTargetStandsIn(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		c := f.clientWith([][]string{{"dynamic_parameter_constraints"}, {"dynamic_parameter_constraints"}})
		watch := func(target string, constraints ...string) *ear {
			e := newEar(t)
			c.ForTarget(target).WatchLocator(types.clusters, "a", choose(constraints...), e)
			return e
		}
		three := watch("A", "shard=3")
		high := f[0].asked()
		high.send(types.clusters, "1", "n1", wrapped(t, variantOf("a", "shard=3", "3")))
		three.cluster("3")
		f[0].setRefuse(errRefused)
		f[1].lose(high)
		several := watch("B", "shard=0-5")
		several.cluster("3")
		several.ambient(KindUnreachable)
		four := watch("B", "shard=4")
		four.fault(KindUnreachable)
		three.silent()

		low := f[1].recover()
		low.send(types.clusters, "1", "n1", wrapped(t, variantOf("a", "shard=4", "4")))
		for several.value().(*clusterv3.Cluster).GetAltStatName() == "3" {
			// The server answers again; the next call may be one with this.
		}
		four.cluster("4")
		three.silent()
	})
}
