package xdsclient

import (
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// TP2, "Matching Behavior and Best Practices" (TP2-dynamic-parameters-2021-08.md): "the
// cache must attempt to fetch a resource from the authoritative server with that constraint
// before falling back to using the one it already has cached". An attempt that finds the
// server unreachable is one.
func TestUnreachableServerFallsBackToACachedVariant(t *testing.T) {
	for _, when := range []string{"before the watch", "after the watch"} {
		t.Run(when, func(t *testing.T) {
			overDesks(t, nil, func(t *testing.T, d *desk) {
				three, _ := d.watch("a", "shard=3")
				four, _ := d.watch("a", "shard=4")
				gone4, _ := d.watch("b", "shard=4")
				d.listens()
				d.says(variantOf("a", "shard=3", "3"), variantOf("a", "shard=4", "4"), variantOf("b", "shard=4", "b4"))
				three.cluster("3")
				four.cluster("4")
				gone4.cluster("b4")
				d.says(variantOf("a", "shard=3", "3"), variantOf("a", "shard=4", "4"), refuses(codes.NotFound, "b", "shard=4"))
				gone4.ambient(KindDoesNotExist)

				var both, other, deleted *ear
				watch := func() {
					both, _ = d.watch("a", "shard=0-5")
					other, _ = d.watch("a", "shard=7")
					deleted, _ = d.watch("b", "shard=0-5")
				}
				if when == "after the watch" {
					watch()
					d.listens()
					both.silent()
				}
				d.loses()
				if when == "before the watch" {
					watch()
				}
				both.cluster("4")
				if err := both.ambient(KindUnreachable); !err.Constraints.Equal(choose("shard=0-5")) {
					t.Errorf("error %v is for other constraints", err)
				}
				other.fault(KindUnreachable)
				deleted.fault(KindUnreachable) // that variant does not exist any more
				allAmbient(KindUnreachable, three, four)

				// The server is asked for the preferred one when it is back.
				d.k.channel.Opened()
				if got := d.listens(); len(got) != 6 {
					t.Errorf("the new stream asks for %q, want 6 subscriptions", got)
				}
				d.says(variantOf("a", "shard=3", "3"), variantOf("a", "shard=4", "4"), variantOf("a", "shard=5", "5"))
				for both.value().(*clusterv3.Cluster).GetAltStatName() == "4" {
					// The server answers again; the next call may be one with this.
				}
				three.cluster("3")
				four.cluster("4")
			})
		})
	}
}

// A server that had an answer for the subscription itself is believed, now that it cannot
// be reached.
func TestUnreachableServerThatDeniedAVariant(t *testing.T) {
	for _, code := range []codes.Code{codes.NotFound, codes.PermissionDenied, codes.Internal} {
		t.Run(code.String(), func(t *testing.T) {
			overDesks(t, nil, func(t *testing.T, d *desk) {
				three, denied := d.watchBoth("shard=3", "shard=0-5")
				d.says(variantOf("a", "shard=3", "3"), refuses(code, "a", "shard=0-5"))
				three.cluster("3")
				denied.next()
				d.loses()
				three.ambient(KindUnreachable)
				denied.fault(KindUnreachable)
				late, _ := d.watch("a", "shard=0-5")
				late.fault(KindUnreachable)
			})
		})
	}
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
