package xdsclient

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/testutils"
)

// xRFC TP3, "Wildcard Subscriptions and Glob Collections" and "Protocol Behavior": an error
// for a member is an answer for the glob collection, and cancels its resource timer.
func TestErrorsForAllMembersAnswerACollection(t *testing.T) {
	for _, test := range []struct {
		code codes.Code
		want []string
	}{
		{codes.Internal, []string{"member a: server error", "member b: server error", "collection"}},
		{codes.PermissionDenied, []string{"member a: server error", "member b: server error", "collection"}},
		{codes.NotFound, []string{"collection"}},
	} {
		t.Run(test.code.String(), func(t *testing.T) {
			overCollections(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
				e, _ := watchCollection(t, c, types.clusters, collectionName)
				s := server.delta()
				s.expect(deltaWant{typ: types.clusters, sub: []string{collectionName}, node: true})
				s.send(types.clusters, "n1", fails(collectionDir+"a", test.code, "no"), fails(collectionDir+"b", test.code, "no"))
				s.expect(deltaWant{typ: types.clusters, nonce: "n1"})
				e.heard(test.want...)
				pass(time.Minute)
				e.heard()
				if got := c.Stats(); got.ServerErrors != 2 || got.Unasked != 0 {
					t.Errorf("Stats() is %+v, want 2 server errors and nothing unasked", got)
				}
				late, _ := watchCollection(t, c, types.clusters, collectionName)
				late.heard(test.want...)
			})
		})
	}
}

// An error for a member ends what the resource timer said of its collection.
func TestErrorForAMemberAfterTheTimerOfItsCollection(t *testing.T) {
	overCollections(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		e, _ := watchCollection(t, c, types.clusters, collectionName)
		s := server.delta()
		pass(16 * time.Second)
		e.heard("collection: does not exist")
		s.send(types.clusters, "n1", fails(collectionDir+"a", codes.Internal, "no"))
		e.heard("member a: server error", "collection")
	})
}

// An error for the collection as a whole wins over errors for its members, in one
// response in either order, and until the server sends another one for it or a resource
// (xRFC TP3, "Protocol Behavior").
func TestErrorForAMemberLeavesThatOfItsCollection(t *testing.T) {
	for _, first := range []string{"member", "collection"} {
		t.Run(fmt.Sprint(first, " first"), func(t *testing.T) {
			overCollections(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
				e, _ := watchCollection(t, c, types.clusters, collectionName)
				s := server.delta()
				parts := []part{fails(collectionDir+"a", codes.Internal, "no"), fails(collectionName, codes.PermissionDenied, "not yours")}
				if first == "collection" {
					parts[0], parts[1] = parts[1], parts[0]
				}
				s.send(types.clusters, "n1", parts...)
				e.heard("member a: server error", "collection: server error")
				s.send(types.clusters, "n2", fails(collectionDir+"b", codes.Internal, "no"))
				e.heard("member b: server error")
				s.send(types.clusters, "n3", member("a", "1", "x"))
				e.heard("member a = x", "collection")
			})
		})
	}
}

// The same from a server of variants: an error by the parameters of a variant answers the
// collections whose constraints these satisfy, and no others.
func TestErrorForAVariantAnswersItsCollection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newCollectionDesk(t)
		low, _ := d.collect("shard=0-9")
		high, _ := d.collect("shard=20-29")
		d.listens()
		d.says(refuses(codes.Internal, collectionDir+"a", "shard=3"), refuses(codes.NotFound, collectionDir+"b", "shard=4"))
		low.heard("member a{shard=3}: server error", "collection")
		high.heard()
		d.says(refuses(codes.NotFound, collectionDir+"a"))
		low.heard("member a{shard=3}: does not exist")
		high.heard("collection")
	})
}

// gRFC A71: while the cache follows another server, errors for members that are no final
// answer are no reason to go back to the one above.
func TestErrorsForMembersAtAServerAboveTheOneInUse(t *testing.T) {
	for _, test := range []struct {
		code     codes.Code
		high     []string
		takeOver bool
	}{
		{code: codes.Internal},
		{codes.PermissionDenied, []string{"member x: does not exist", "member a: server error"}, true},
		{codes.NotFound, []string{"member x: does not exist"}, true},
	} {
		t.Run(test.code.String(), func(t *testing.T) {
			overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
				f[0].setRefuse(errRefused)
				c := f.clientWith([][]string{{"delta"}, {"delta"}}, testutils.Authority("auth", "", nil))
				e, _ := watchCollection(t, c, types.clusters, collectionName)
				low := f[1].delta()
				low.send(types.clusters, "n1", member("x", "1", "x"))
				e.heard("member x = x", "collection")
				f[0].setRefuse(nil)
				high := f[0].delta()
				high.send(types.clusters, "n1", fails(collectionDir+"a", test.code, "no"))
				e.heard(test.high...)
				if test.takeOver {
					low.gone()
				}
			})
		})
	}
}
