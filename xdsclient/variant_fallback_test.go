package xdsclient

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/testutils"
)

// wrapped is a variant of a resource, for a server whose messages are the published ones.
func wrapped(t *testing.T, variant func(*answer)) *anypb.Any {
	r := &answer{}
	variant(r)
	return &anypb.Any{TypeUrl: wrapperType, Value: mustMarshal(t, r.Resources[0])}
}

// xRFC TP2 and gRFC A71: a server that is fallen back to and goes by names is asked for
// each name once. It says nothing twice, so that what it has said of a name holds for
// whatever subscription to it comes later. The preferred server has variants again.
func TestFallbackToAServerWithoutVariants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, types := newFleet(t, 2), newTestTypes()
		f[0].setRefuse(errRefused)
		f[0].hold()
		c := f.clientWith([][]string{{"dynamic_parameter_constraints"}, nil})
		watch := func(constraints ...string) (*ear, func()) {
			e := newEar(t)
			return e, c.WatchLocator(types.clusters, "a", choose(constraints...), e)
		}
		prod, _ := watch("env=prod")
		test, stop := watch("env=test")
		f[0].open()
		low := f[1].stream()
		check(t, low.request(), want{typ: types.clusters, names: []string{"a"}, node: true})
		low.send(types.clusters, "1", "n1", cluster("a", "low"))
		allHear("low", prod, test)
		check(t, low.request(), want{typ: types.clusters, names: []string{"a"}, version: "1", nonce: "n1"})
		other, _ := watch("env=other")
		other.cluster("low")
		stop()
		low.quiet()
		low.send(types.clusters, "2", "n2", badCluster("a", "no good"))
		allAmbient(KindInvalid, prod, other)
		low.request()
		again, _ := watch("env=test")
		again.cluster("low")
		if err := again.ambient(KindInvalid); !err.Constraints.Equal(choose("env=test")) {
			t.Errorf("error %v has other constraints", err)
		}
		low.quiet()

		f[0].setRefuse(nil)
		high := f[0].stream()
		r := high.request()
		if !slices.Equal(r.GetResourceNames(), []string{"a"}) || len(r.GetResourceLocators()) != 3 {
			t.Errorf("the preferred server got %v, want one name and three locators", r)
		}
		high.send(types.clusters, "1", "n1", wrapped(t, variantOf("a", "env=prod", "p")), wrapped(t, variantOf("a", "env=test", "t")))
		prod.cluster("p")
		again.cluster("t")
		low.gone()
		other.silent()
	})
}

// The same of delta, which unsubscribes from a name when nobody
// watches it with any constraints.
func TestDeltaFallbackToAServerWithoutVariants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, types := newFleet(t, 2), newTestTypes()
		f[0].setRefuse(errRefused)
		f[0].hold()
		c := f.clientWith([][]string{{"dynamic_parameter_constraints", "delta"}, {"delta"}})
		watch := func(constraints ...string) (*ear, func()) {
			e := newEar(t)
			return e, c.WatchLocator(types.clusters, "a", choose(constraints...), e)
		}
		prod, stopProd := watch("env=prod")
		listen(t, c, types.clusters, "b")
		f[0].open()
		low := f[1].delta()
		low.expect(deltaWant{typ: types.clusters, sub: []string{"a", "b"}, node: true})
		early, stopEarly := watch("env=early")
		low.expect(deltaWant{typ: types.clusters, sub: []string{"a"}})
		low.send(types.clusters, "n1", has("a", "1", cluster("a", "low")))
		allHear("low", prod, early)
		low.expect(deltaWant{typ: types.clusters, nonce: "n1"})
		var test *ear
		var stopTest func()
		c.Batch(func() { // a move
			test, stopTest = watch("env=test")
			stopProd()
		})
		test.cluster("low")
		low.quiet()
		low.send(types.clusters, "n2", lacks("a"))
		allAmbient(KindDoesNotExist, test, early)
		low.expect(deltaWant{typ: types.clusters, nonce: "n2"})
		stopEarly()
		low.quiet()
		stopTest()
		low.expect(deltaWant{typ: types.clusters, unsub: []string{"a"}})
	})
}

// A collection at a server that goes by names: its members hold for every watch.
func TestFallbackOfACollectionToAServerWithoutVariants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, types := newFleet(t, 2), newTestTypes()
		f[0].setRefuse(errRefused)
		f[0].hold()
		c := f.clientWith([][]string{{"dynamic_parameter_constraints", "delta"}, {"delta"}}, testutils.Authority("auth", "", nil))
		watch := func(constraints ...string) *collectionEar {
			e := newCollectionEar(t)
			c.WatchCollectionLocator(types.clusters, collectionName, choose(constraints...), e)
			return e
		}
		prod := watch("env=prod")
		f[0].open()
		low := f[1].delta()
		low.expect(deltaWant{typ: types.clusters, sub: []string{collectionName}, node: true})
		low.send(types.clusters, "n1", member("x", "1", "x"))
		low.expect(deltaWant{typ: types.clusters, nonce: "n1"})
		prod.heard("member x = x", "collection")
		test := watch("env=test")
		test.heard("member x = x", "collection")
		low.quiet()
		low.send(types.clusters, "n2", member("x", "2", "y"), member("z", "1", "z"))
		prod.heard("member x = y", "member z = z")
		test.heard("member x = y", "member z = z")
	})
}
