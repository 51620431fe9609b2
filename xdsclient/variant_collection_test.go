package xdsclient

import (
	"testing"

	"google.golang.org/grpc/codes"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// collect starts a watch of the collection.
func (d *desk) collect(constraints ...string) (*collectionEar, func()) {
	e := newCollectionEar(d.t)
	return e, d.k.c.WatchCollectionLocator(d.types.clusters, collectionName, choose(constraints...), e)
}

func memberOf(name, params, text string) func(*answer) {
	return variantOf(collectionDir+name, params, text)
}

func newCollectionDesk(t *testing.T) *desk { return newDesk(t, true) }

// TP2, "Matching Behavior and Best Practices", of glob collections: "all matching
// variants of the resource will be used"; and "Sharding Clusters".
func TestCollectionTakesAllMatchingVariants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newCollectionDesk(t)
		low, _ := d.collect("shard=0-4")
		high, _ := d.collect("shard=3-9")
		one, _ := d.watch(collectionDir+"a", "shard=0-9")
		d.hears("+"+collectionDir+"*{shard in [0-4]}", "+"+collectionDir+"*{shard in [3-9]}", "+"+collectionDir+"a{shard in [0-9]}")
		d.says(memberOf("a", "shard=1", "a1"), memberOf("a", "shard=3", "a3"), memberOf("a", "shard=5", "a5"),
			memberOf("b", "shard=4", "b"), memberOf("c", "shard=99", "c"), memberOf("d", "", "d"))
		low.heard("member a{shard=1} = a1", "member a{shard=3} = a3", "member b{shard=4} = b", "member d = d", "collection")
		high.heard("member a{shard=3} = a3", "member a{shard=5} = a5", "member b{shard=4} = b", "member d = d", "collection")
		one.cluster("a5")
		one.silent()
		if got := d.k.c.Stats(); got.Unmatched != 1 || got.Decoded != 5 {
			t.Errorf("Stats() is %+v, want 1 unmatched and 5 decoded", got)
		}
		d.says(memberOf("a", "shard=3", "new"))
		low.heard("member a{shard=3} = new")
		high.heard("member a{shard=3} = new")
	})
}

// A variant leaves a collection by the constraints that spell out its parameters, or
// all variants of a name by those of the collection, or by the name alone.
func TestVariantsLeaveACollection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newCollectionDesk(t)
		e, _ := d.collect("shard=0-9")
		d.listens()
		all := []func(*answer){memberOf("a", "shard=1", "x"), memberOf("a", "shard=2", "x"), memberOf("a", "", "x")}
		d.says(all...)
		e.heard("member a{shard=1} = x", "member a{shard=2} = x", "member a = x", "collection")
		d.says(gone(collectionDir+"a", "shard=1"))
		e.heard("member a{shard=1}: does not exist")
		d.says(gone(collectionDir+"a", ""))
		e.heard("member a: does not exist")
		d.says(all...)
		e.heard("member a{shard=1} = x", "member a = x")
		d.says(gone(collectionDir+"a", "shard=0-9"))
		e.heard("member a{shard=1}: does not exist", "member a{shard=2}: does not exist", "member a: does not exist")
		d.says(all...)
		e.heard("member a{shard=1} = x", "member a{shard=2} = x", "member a = x")
		d.says(gone(collectionDir + "a"))
		e.heard("member a{shard=1}: does not exist", "member a{shard=2}: does not exist", "member a: does not exist")
		d.says(memberOf("a", "shard=1", "x"), memberOf("b", "shard=1", "x"))
		e.heard("member a{shard=1} = x", "member b{shard=1} = x")
		d.says(gone(collectionName, "shard=0-9")) // the collection is empty
		e.heard("member a{shard=1}: does not exist", "member b{shard=1}: does not exist")
	})
}

// xRFC TP3, "Wildcard Subscriptions and Glob Collections", of variants.
func TestErrorsOfVariantsInACollection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newCollectionDesk(t)
		e, _ := d.collect("shard=0-9")
		other, _ := d.collect("shard=20-29")
		d.listens()
		d.says(memberOf("a", "shard=1", "x"), memberOf("a", "shard=2", "x"),
			refuses(codes.Internal, collectionDir+"a", "shard=3"), refuses(codes.Internal, collectionDir+"a", "shard=42"))
		e.heard("member a{shard=1} = x", "member a{shard=2} = x", "member a{shard=3}: server error", "collection")
		d.says(refuses(codes.Internal, collectionDir+"a", "shard=2"))
		e.heard("ambient a{shard=2}: server error")
		d.says(refuses(codes.PermissionDenied, collectionName, "shard=20-29"))
		other.heard("collection: server error")
		e.heard()
	})
}

// An error for a subscription to one resource is for the variant that it prefers. A
// collection with the same constraints has the others as well.
func TestErrorForAResourceLeavesItsCollection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newCollectionDesk(t)
		e, _ := d.collect("shard=0-9")
		one, stop := d.watch(collectionDir+"a", "shard=0-9")
		d.listens()
		d.says(memberOf("a", "shard=1", "x"), memberOf("a", "shard=2", "x"))
		e.heard("member a{shard=1} = x", "member a{shard=2} = x", "collection")
		one.cluster("x")
		for _, code := range []codes.Code{codes.PermissionDenied, codes.NotFound} {
			d.says(refuses(code, collectionDir+"a", "shard=0-9"))
			one.next()
			e.heard()
		}

		// If the resource is not watched by itself, the error is for all variants of it.
		stop()
		d.listens()
		d.says(refuses(codes.PermissionDenied, collectionDir+"a", "shard=0-9"))
		e.heard("ambient a{shard=1}: server error", "ambient a{shard=2}: server error")
	})
}

// A new stream cannot say by name which variants the client has. So the server sends
// all, none of which is decoded again, and what it does not send has left.
func TestCollectionOfVariantsOverReconnects(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newCollectionDesk(t)
		e, _ := d.collect("shard=0-9")
		d.listens()
		d.says(memberOf("a", "shard=1", "x"), memberOf("b", "shard=1", "x"), memberOf("c", "shard=1", "x"))
		e.heard("member a{shard=1} = x", "member b{shard=1} = x", "member c{shard=1} = x", "collection")
		d.breaks()
		var m discoverypb.DeltaDiscoveryRequest
		d.unmarshal(d.k.request(), &m)
		if len(m.GetInitialResourceVersions()) > 0 {
			t.Errorf("initial_resource_versions are %v, want none", m.GetInitialResourceVersions())
		}
		e.heard()
		d.says(memberOf("a", "shard=1", "x"), memberOf("b", "shard=2", "x"))
		e.heard("member b{shard=1}: does not exist", "member b{shard=2} = x", "member c{shard=1}: does not exist")
		d.types.wantDecoded(t, 4)
	})
}
