package xdsclient

import (
	"testing"

	"github.com/dynxds/dynxds/testutils"
)

// collectionFallenBack returns a client that has the members "a" and "b" of a
// collection from the higher server, which is unreachable. Something else is
// missing, so that the lower one is engaged.
func collectionFallenBack(t *testing.T, f fleet, types *testTypes, low []string) (*XDSClient, *collectionEar) {
	t.Helper()
	c := f.clientWith([][]string{speaksDelta, low}, testutils.Authority("auth", "", nil))
	e, _ := watchCollection(t, c, types.clusters, collectionName)
	high := f[0].delta()
	high.send(types.clusters, "n1", member("a", "1", "x"), member("b", "1", "x"))
	e.heard("member a = x", "member b = x", "collection")
	f[0].lose(high)
	f[1].untouched()
	e.heard()
	listen(t, c, types.endpoints, "xdstp://auth/envoy.config.endpoint.v3.ClusterLoadAssignment/missing")
	return c, e
}

// gRFC A71 and xRFC TP1, "Glob": the members of a collection are those that the
// server in use has. Those of the one before stay until it has answered.
func TestCollectionFallsBack(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		c, e := collectionFallenBack(t, f, types, speaksDelta)
		low := f[1].delta()
		low.expect(deltaWant{typ: types.clusters, sub: []string{collectionName}, node: true})
		e.heard()
		low.send(types.clusters, "n1", member("a", "7", "x"), member("c", "7", "low"))
		e.heard("member b: does not exist", "member c = low")
		low.send(types.clusters, "n2", member("d", "7", "low"))
		e.heard("member d = low")

		// What is of no use is held until something is.
		f[0].setRefuse(nil)
		high := f[0].delta()
		high.expect(deltaWant{typ: types.clusters, sub: []string{collectionName}, node: true})
		high.send(types.clusters, "n1", has(collectionDir+"bad", "1", badCluster(collectionDir+"bad", "no")))
		e.heard()
		late, _ := watchCollection(t, c, types.clusters, collectionName)
		late.heard("member a = x", "member c = low", "member d = low", "collection")
		low.send(types.clusters, "n3", member("a", "8", "y"))
		e.heard("member a = y")
		late.heard("member a = y")
		high.send(types.clusters, "n2", member("c", "1", "low"))
		e.heard("member a: does not exist", "member d: does not exist", "member bad: invalid")
	})
}

// The higher server takes over with its answer for the collection. The members that it has as
// well do not leave in between.
func TestHigherServerTakesOverWithACollection(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		c, e := collectionFallenBack(t, f, types, speaksDelta)
		low := f[1].delta()
		low.send(types.clusters, "n1", member("a", "7", "x"), member("b", "7", "low"), member("c", "7", "low"))
		e.heard("member b = low", "member c = low")
		f[0].setRefuse(nil)
		high := f[0].delta()
		high.send(types.clusters, "n1", member("new", "1", "high"), member("b", "1", "high"), member("c", "1", "low"))
		e.heard("member new = high", "member b = high", "member a: does not exist")
		low.gone()
		late, _ := watchCollection(t, c, types.clusters, collectionName)
		late.heard("member b = high", "member c = low", "member new = high", "collection")
		if d := c.Dump(); len(d.Resources) != 5 { // the collection, its members, and what is missing
			t.Errorf("the dump has %+v, want 5 entries", d.Resources)
		}

		high.breakOff()
		high = f[0].delta()
		high.expect(deltaWant{typ: types.clusters, sub: []string{collectionName}, node: true,
			initial: map[string]string{collectionDir + "b": "1", collectionDir + "c": "1", collectionDir + "new": "1"}})
		high.send(types.clusters, "n1", lacks(collectionDir+"b"))
		e.heard("member b: does not exist")
	})
}

// That a collection is empty is an answer as well.
func TestHigherServerTakesOverWithAnEmptyCollection(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		_, e := collectionFallenBack(t, f, types, speaksDelta)
		low := f[1].delta()
		low.send(types.clusters, "n1", member("a", "7", "x"), member("b", "7", "x"))
		e.heard()
		f[0].setRefuse(nil)
		f[0].delta().send(types.clusters, "n1", lacks(collectionName))
		e.heard("member a: does not exist", "member b: does not exist")
		low.gone()
	})
}

// A lower server that has no collections leaves the members in use.
func TestCollectionFallsBackToAServerWithoutCollections(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		_, e := collectionFallenBack(t, f, types, speaksSotW)
		check(t, f[1].stream().request(), want{typ: types.endpoints, node: true,
			names: []string{"xdstp://auth/envoy.config.endpoint.v3.ClusterLoadAssignment/missing"}})
		e.heard("ambient: configuration")
		f[0].setRefuse(nil)
		f[0].delta().send(types.clusters, "n1", member("a", "1", "x"), member("c", "1", "x"))
		e.heard("member b: does not exist", "member c = x", "collection")
	})
}

// A higher server without collections does not take over with that, and when it
// takes over with something else, says so.
func TestHigherServerWithoutCollections(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		f[0].setRefuse(errRefused)
		c := f.clientWith([][]string{speaksSotW, speaksDelta}, testutils.Authority("auth", "", nil))
		e, _ := watchCollection(t, c, types.clusters, collectionName)
		const single = "xdstp://auth/envoy.config.endpoint.v3.ClusterLoadAssignment/e"
		other, _ := listen(t, c, types.endpoints, single)
		low := f[1].delta()
		e.heard("collection: configuration")
		low.send(types.clusters, "n1", member("a", "7", "x"))
		e.heard("member a = x", "collection")
		high := f[0].recover()
		e.heard()
		high.send(types.endpoints, "1", "n1", endpoints(single))
		other.value()
		low.gone()
		e.heard("ambient: configuration")
	})
}
