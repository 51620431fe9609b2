package xdsclient

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
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

// TP2, "Matching Behavior and Best Practices" (TP2-dynamic-parameters-2021-08.md): "the cache must attempt to
// fetch a resource from the authoritative server with that constraint before falling back to using the one
// it already has cached". An attempt that finds the server unreachable is one.
func TestUnreachableServerFallsBackToACachedVariant(t *testing.T) {
	const (
		before = `
			watch three=a{shard=3} four=a{shard=4} b=b{shard=4} -> stream; req +a{shard=3} +a{shard=4} +b{shard=4}
			send 1 a{shard=3}=3 a{shard=4}=4 b{shard=4}=x         -> ack 1; three = 3; four = 4; b = x
			send 2 a{shard=3}=3 a{shard=4}=4 b{shard=4}?NotFound  -> ack 2; b ambient: does not exist
		`
		watch = `watch both=a{shard=0-5} other=a{shard=7} deleted=b{shard=0-5} -> `
		lose  = `
			refuse
			break
			wait 1s -> three ambient: unreachable; four ambient: unreachable; b ambient: unreachable`
		// The variant that deleted could have does not exist any more.
		standIn = "both = 4; both ambient: unreachable; other: unreachable; deleted: unreachable"
		// The server is asked for the preferred one when it is back.
		back = `
			accept
			wait 2s -> stream; req +a{shard=0-5} +a{shard=3} +a{shard=4} +a{shard=7} +b{shard=0-5} +b{shard=4}
			send 3 a{shard=3}=3 a{shard=4}=4 a{shard=5}=5 -> ack 3; ?both = 4; both = 5; three = 3; four = 4; b ambient: does not exist
		`
	)
	tests := []transcriptTest{
		{name: "before the watch", servers: variants, steps: before + lose + "\n" + watch + standIn + back, then: func(x *transcript) {
			for _, r := range x.c.Dump().Resources {
				if r.Failure != nil && !r.Failure.Err.Constraints.Equal(r.Constraints) {
					x.t.Errorf("error %v is for other constraints", r.Failure.Err)
				}
			}
		}},
		{name: "after the watch", servers: variants, steps: before + watch + "req +a{shard=0-5} +a{shard=7} +b{shard=0-5}" + lose + "; " + standIn + back},
	}
	// A server that had an answer for the subscription itself is believed, now that it cannot be reached.
	for code, kind := range map[string]string{"NotFound": "does not exist", "PermissionDenied": "server error", "Internal": "server error"} {
		tests = append(tests, transcriptTest{name: "after the answer " + code, servers: variants, steps: fmt.Sprintf(`
			watch three=a{shard=3} denied=a{shard=0-5} -> stream; req +a{shard=0-5} +a{shard=3}
			send 1 a{shard=3}=3 a{shard=0-5}?%s -> ack 1; three = 3; denied: %s
			refuse
			break
			wait 1s                 -> three ambient: unreachable; denied: unreachable
			watch late=a{shard=0-5} -> late: unreachable
		`, code, kind)})
	}
	runTranscripts(t, tests)
}

// gRFC A71: what is missing is asked of the next server first. A cached variant is for
// when none can be reached, or the one in use keeps silent.
func TestFallbackServerBeforeACachedVariant(t *testing.T) {
	features := []string{"dynamic_parameter_constraints"}
	for _, then := range []string{"it answers", "it keeps silent", "it is unreachable"} {
		t.Run(then, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				f, types := newFleet(t, 2), newTestTypes()
				c := f.clientWith([][]string{features, features})
				three := newEar(t)
				c.WatchLocator(types.endpoints, "a", choose("shard=3"), three)
				high := f[0].asked()
				high.send(types.endpoints, "1", "n1", wrapped(t, variantWith("a", "shard=3", "1", endpoints("a"))))
				three.next()
				f[0].setRefuse(errRefused)
				if then == "it is unreachable" {
					f[1].setRefuse(errRefused)
				}
				high.breakOff()
				f[1].untouched()

				some := newEar(t)
				c.WatchLocator(types.endpoints, "a", choose("shard=0-5"), some)
				some.silent()
				if then == "it is unreachable" {
					pass(10 * time.Second)
					some.value()
					some.ambient(KindUnreachable)
					return
				}
				pass(time.Second)
				low := f[1].asked()
				some.silent()
				if then == "it answers" {
					low.send(types.endpoints, "1", "n1", wrapped(t, variantWith("a", "shard=5", "1", endpoints("a"))))
				} else {
					pass(20 * time.Second)
				}
				some.value()
				some.silent()
			})
		})
	}
}

// loses ends the stream, and has the next attempt to open one fail.
func (d *desk) loses() {
	d.k.channel.Ended(transport.ErrNoAnswer)
	d.k.channel.Ended(errRefused)
	d.asked = make(map[string]bool)
}
