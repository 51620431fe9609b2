package controlplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// A delay that does not end during a test, and one that does.
const long, short = time.Hour, 20 * time.Millisecond

// withdrawing are the options of a server that removes resources after a delay.
func withdrawing(delay time.Duration) controlplane.Options {
	return controlplane.Options{RemovalDelay: delay, NotFoundErrors: true}
}

// resource returns one of a type.
func resource(typeURL, name, version string) proto.Message {
	switch typeURL {
	case lds:
		return xdsmsg.DefaultListener(name, version)
	case rds:
		return xdsmsg.RouteConfig(name, "*", xdsmsg.PrefixRoute("", version))
	case cds:
		return xdsmsg.EDSCluster(name, version)
	default:
		return xdsmsg.SimpleEndpoints(name, version+":1")
	}
}

// referred are the types that other resources lead to.
var referred = []string{rds, cds, eds}

func eachReferred(t *testing.T, test func(t *testing.T, typeURL string)) {
	for _, typeURL := range referred {
		t.Run(typeURL[len("type.googleapis.com/envoy.config."):], func(t *testing.T) {
			t.Parallel()
			test(t, typeURL)
		})
	}
}

func TestWithdrawal_DeltaClientKeepsUntilItUnsubscribes(t *testing.T) {
	t.Parallel()
	eachReferred(t, func(t *testing.T, typeURL string) {
		s := startServer(t, withdrawing(long))
		s.set(t, resource(typeURL, "a", "1"), resource(typeURL, "b", "1"))
		c := s.openDelta(t)
		c.subscribe(typeURL, "a", "b")
		c.ack(c.want(typeURL, "a", "b"))
		s.delete(t, typeURL, "a")
		c.fence()
		if got := c.typeStatus(s.control, typeURL).Kept; !slices.Equal(got, []string{"a"}) {
			t.Errorf("the status has %q as kept, want a", got)
		}
		// Others go on.
		s.set(t, resource(typeURL, "b", "2"))
		c.want(typeURL, "b")
		// For another client, and for this one after it unsubscribed, it does not exist.
		late := s.openDelta(t)
		late.subscribe(typeURL, "a")
		late.want(typeURL, "-a")
		c.unsubscribe(typeURL, "a")
		c.fence()
		if got := c.typeStatus(s.control, typeURL).Kept; len(got) > 0 {
			t.Errorf("the status has %q as kept after the client unsubscribed", got)
		}
		c.subscribe(typeURL, "a")
		c.want(typeURL, "-a")
	})
}

func TestWithdrawal_DeltaClientThatAsksAgainIsTold(t *testing.T) {
	t.Parallel()
	s := startServer(t, withdrawing(long))
	s.set(t, append(clusters("d/a", "d/b"), cluster("a"))...)
	c := s.openDelta(t)
	c.subscribe(cds, "a", in("d/*"))
	c.want(cds, "a", in("d/a"), in("d/b"))
	s.delete(t, cds, "a", in("d/a"))
	c.fence()
	c.subscribe(cds, "a")
	c.want(cds, "-a")
	c.subscribe(cds, in("d/*"))
	c.want(cds, in("d/b"), "-"+in("d/a"))
	c.subscribe(cds, "*")
	c.want(cds, in("d/b"))
	s.delete(t, cds, in("d/b"))
	c.fence()
	c.subscribe(cds, "*")
	c.want(cds, "-"+in("d/b"))
	c.fence()
}

func TestWithdrawal_SotWClientKeepsUntilItUnsubscribes(t *testing.T) {
	t.Parallel()
	for _, typeURL := range []string{rds, eds} {
		t.Run(typeURL, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, withdrawing(long))
			s.set(t, resource(typeURL, "a", "1"), resource(typeURL, "b", "1"))
			c := s.open(t)
			c.subscribe(typeURL, "a", "b")
			c.ack(c.want(typeURL, "a", "b"), "a", "b")
			s.delete(t, typeURL, "a")
			c.fence()
			s.set(t, resource(typeURL, "b", "2"))
			b2 := c.want(typeURL, "b")
			c.ack(b2, "b")
			c.fence()
			c.ack(b2, "a", "b")
			c.want(typeURL, "!a: NotFound")
			late := s.open(t)
			late.subscribe(typeURL, "a")
			late.want(typeURL, "!a: NotFound")
		})
	}
}

// Complete responses include kept Clusters.
func TestWithdrawal_SotWClustersStayInResponses(t *testing.T) {
	t.Parallel()
	for _, wildcard := range []bool{false, true} {
		t.Run(fmt.Sprintf("wildcard %v", wildcard), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, withdrawing(long))
			s.set(t, cluster("a"), cluster("b"))
			c := s.open(t)
			names, missing := []string{"a", "b", "c", "d"}, []string{"!c: NotFound", "!d: NotFound"}
			if wildcard {
				names, missing = nil, nil
			}
			c.subscribe(cds, names...)
			c.ack(c.want(cds, append(missing, "a", "b")...), names...)
			s.delete(t, cds, "a")
			c.fence()
			s.set(t, cluster("c"))
			c.ack(c.want(cds, "a", "b", "c"), names...)
			// What came and went between two responses was never sent.
			s.set(t, cluster("d"))
			c.want(cds, "a", "b", "c", "d")
			if wildcard {
				late := s.open(t)
				late.subscribe(cds)
				late.want(cds, "b", "c", "d")
				return
			}
			c.subscribe(cds, "b", "c")
			c.fence()
			s.set(t, changed("b", "new"))
			c.want(cds, "b", "c")
			c.subscribe(cds, "a", "b", "c")
			c.want(cds, "b", "c", "!a: NotFound")
		})
	}
}

// openBoth opens a client of each protocol, which has these resources.
func (s *testServer) openBoth(t *testing.T, typeURL string, names ...string) (*client, *client) {
	t.Helper()
	delta, sotw := s.openDelta(t), s.open(t)
	delta.subscribe(typeURL, names...)
	delta.want(typeURL, names...)
	sotw.subscribe(typeURL, names...)
	sotw.want(typeURL, names...)
	return delta, sotw
}

func TestWithdrawal_EndsWithTheDelay(t *testing.T) {
	t.Parallel()
	eachReferred(t, func(t *testing.T, typeURL string) {
		s := startServer(t, withdrawing(short))
		s.set(t, resource(typeURL, "a", "1"), resource(typeURL, "b", "1"))
		delta, sotw := s.openBoth(t, typeURL, "a", "b")
		var others []string // are in a complete response
		if typeURL == cds {
			others = []string{"b"}
		}
		for range 2 {
			s.delete(t, typeURL, "a")
			delta.want(typeURL, "-a")
			sotw.ack(sotw.want(typeURL, append(others, "!a: NotFound")...), "a", "b")
			s.set(t, resource(typeURL, "a", "2"))
			delta.want(typeURL, "a")
			sotw.want(typeURL, append(others, "a")...)
		}
	})
}

func TestWithdrawal_WildcardEndsWithTheDelay(t *testing.T) {
	t.Parallel()
	s := startServer(t, withdrawing(short))
	s.set(t, append(clusters("d/a", "d/b"), cluster("a"))...)
	wild, glob, sotw := s.openDelta(t), s.openDelta(t), s.open(t)
	wild.subscribe(cds)
	wild.want(cds, "a", in("d/a"), in("d/b"))
	glob.subscribe(cds, in("d/*"))
	glob.want(cds, in("d/a"), in("d/b"))
	sotw.subscribe(cds)
	sotw.want(cds, "a", in("d/a"), in("d/b"))
	s.delete(t, cds, in("d/a"))
	wild.want(cds, "-"+in("d/a"))
	glob.want(cds, "-"+in("d/a"))
	sotw.want(cds, "a", in("d/b"))
}

// A resource that is added again is served, and no removal was sent.
func TestWithdrawal_ResourceComesBack(t *testing.T) {
	t.Parallel()
	eachReferred(t, func(t *testing.T, typeURL string) {
		s := startServer(t, withdrawing(long))
		s.set(t, resource(typeURL, "a", "1"))
		delta, sotw := s.openBoth(t, typeURL, "a")
		s.delete(t, typeURL, "a")
		s.set(t, resource(typeURL, "a", "1"))
		delta.fence()
		sotw.want(typeURL, "a")
		s.delete(t, typeURL, "a")
		s.set(t, resource(typeURL, "a", "2"))
		delta.want(typeURL, "a")
		sotw.want(typeURL, "a")
	})
}

// Revoked access takes effect at once, and so does the deletion of a Listener.
func TestWithdrawal_NotOfErrorsAndListeners(t *testing.T) {
	t.Parallel()
	s := startServer(t, withdrawing(long))
	denied := status.New(codes.PermissionDenied, "no")
	for _, typeURL := range append([]string{lds}, referred...) {
		s.set(t, resource(typeURL, "a", "1"), resource(typeURL, "b", "1"))
		delta, sotw := s.openBoth(t, typeURL, "a", "b")
		var others []string
		if typeURL == cds || typeURL == lds {
			others = []string{"b"}
		}
		s.update(t, func(tx *controlplane.Tx) { tx.SetError(typeURL, "a", denied) })
		delta.want(typeURL, "!a: PermissionDenied")
		sotw.want(typeURL, append(others, "!a: PermissionDenied")...)
		// An error after the deletion ends the withdrawal.
		if typeURL != lds {
			s.delete(t, typeURL, "b")
			delta.fence()
			s.update(t, func(tx *controlplane.Tx) { tx.SetError(typeURL, "b", denied) })
			delta.want(typeURL, "!b: PermissionDenied")
			sotw.want(typeURL, "!b: PermissionDenied")
			continue
		}
		s.delete(t, typeURL, "b")
		delta.want(typeURL, "-b")
		sotw.want(typeURL, "!b: NotFound")
	}
}

// A client does not keep a variant that its node's constraints no longer match.
func TestWithdrawal_NotOfWhatConstraintsTookAway(t *testing.T) {
	t.Parallel()
	p := newPolicy("n", "direct")
	opts := withdrawing(long)
	opts.NodeConstraints = func(node *corepb.Node) dynparam.ByType {
		byType, err := p.of(node)
		if err == nil {
			byType, err = dynparam.NewByType(map[string]dynparam.Constraints{"envoy.config.route.v3.RouteConfiguration": byType.For(lds)})
		}
		if err != nil {
			t.Error(err)
		}
		return byType
	}
	s := startServer(t, opts)
	for _, name := range []string{"a", "b"} {
		s.setVariant(t, rds, name, "direct", "listener_type", "direct")
	}
	c := s.openDelta(t)
	c.identify("n", rds, "a", "b")
	c.next()
	s.deleteVariant(t, rds, "a", "listener_type", "direct")
	c.fence()
	p.set("n", "via_proxy")
	s.control.RefreshNodeConstraints(nil)
	c.want(rds, "-a", "-b")
}

// A client that DPDS moves has its variant until it subscribes to the next one.
func TestWithdrawal_Variants(t *testing.T) {
	eachVariant(t, withdrawing(long), func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		for _, typeURL := range referred {
			s.setVariant(t, typeURL, "r", "old", "env", "a")
			s.setVariant(t, typeURL, "r", "new", "env", "b")
			c := open("n")
			a := c.subscribe(typeURL, "r", exactly(t, "env", "a"))
			c.wants(a, "old")
			s.deleteVariant(t, typeURL, "r", "env", "a")
			c.wants(a, "old")
			b := c.move([]ask{{typeURL, "r", exactly(t, "env", "b")}}, []ask{a.ask})[0]
			c.wants(b, "new")
			// Both are deleted; a new subscription to the one that was dropped gets nothing.
			s.deleteVariant(t, typeURL, "r", "env", "b")
			c.wants(b, "new")
			a = c.subscribe(typeURL, "r", exactly(t, "env", "a"))
			c.settle()
			if got := a.String(); got == "old" || got == "new" {
				t.Errorf("%s: a new subscription to what was deleted has %q", typeURL, got)
			}
			c.wants(b, "new")
		}
	})
}

// A client like gRPC C-core, whose routes refer to the old Cluster until it applies new ones, late. It
// must not lose the Cluster, or its endpoints, before.
func TestWithdrawal_ClientThatStillNamesTheOldCluster(t *testing.T) {
	t.Parallel()
	old := []proto.Message{cluster("old"), xdsmsg.SimpleEndpoints("old", "1.1.1.1:1")}
	moved := []proto.Message{
		resource(rds, "r", "new"), cluster("new"), xdsmsg.SimpleEndpoints("new", "2.2.2.2:2"),
	}
	end := func(s *testServer) {
		s.set(t, moved...)
		s.update(t, func(tx *controlplane.Tx) {
			tx.Delete(cds, "old")
			tx.Delete(eds, "old")
		})
	}
	t.Run("SotW", func(t *testing.T) {
		t.Parallel()
		s := startServer(t, withdrawing(long))
		s.set(t, append(old, resource(rds, "r", "old"))...)
		c := s.open(t)
		c.subscribe(rds, "r")
		c.ack(c.want(rds, "r"), "r")
		c.subscribe(cds, "old")
		c.ack(c.want(cds, "old"), "old")
		c.subscribe(eds, "old")
		c.ack(c.want(eds, "old"), "old")
		end(s)
		routes := c.want(rds, "r")
		c.fence()
		// The ACK of the routes comes last.
		c.subscribe(cds, "old", "new")
		both := c.want(cds, "old", "new")
		c.subscribe(eds, "old", "new")
		assigned := c.want(eds, "new")
		c.ack(routes, "r")
		c.ack(both, "new")
		c.ack(assigned, "new")
		c.fence()
		s.set(t, changed("new", "x"))
		c.want(cds, "new")
	})
	t.Run("delta", func(t *testing.T) {
		t.Parallel()
		s := startServer(t, withdrawing(long))
		s.set(t, append(old, resource(rds, "r", "old"))...)
		c := s.openDelta(t)
		for typeURL, name := range map[string]string{rds: "r", cds: "old", eds: "old"} {
			c.subscribe(typeURL, name)
			c.ack(c.want(typeURL, name))
		}
		end(s)
		routes := c.want(rds, "r")
		c.fence()
		c.subscribe(cds, "new")
		c.ack(c.want(cds, "new"))
		c.subscribe(eds, "new")
		c.ack(c.want(eds, "new"))
		c.ack(routes)
		c.unsubscribe(cds, "old")
		c.unsubscribe(eds, "old")
		c.fence()
	})
}

// An error in place of all variants removes those of a collection, kept ones included.
func TestWithdrawal_NotOfVariantsOfWhatIsDenied(t *testing.T) {
	eachVariant(t, withdrawing(long), func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		for _, collection := range []string{"*", in("d/*")} {
			c := open("n")
			if _, ok := c.wire.(*tp2SotW); ok && collection != "*" {
				continue // SotW has no globs
			}
			for _, name := range []string{"d/x", "d/y"} {
				s.setVariant(t, cds, in(name), name+"-a", "env", "a")
				s.setVariant(t, cds, in(name), name+"-b", "env", "b")
			}
			all := c.subscribe(cds, collection, dynparam.Constraints{})
			x, y := in("d/x")+"=d/x", in("d/y")+"=d/y"
			before := fmt.Sprintf("%s-a %s-b %s-a %s-b", x, x, y, y)
			c.wants(all, before)
			s.deleteVariant(t, cds, in("d/x"), "env", "a")
			c.wants(all, before)
			s.update(t, func(tx *controlplane.Tx) {
				tx.SetError(cds, in("d/x"), status.New(codes.PermissionDenied, "no"))
				tx.SetError(cds, in("d/y"), status.New(codes.PermissionDenied, "no"))
			})
			c.settle()
			if got := all.String(); strings.Contains(got, "-a") || strings.Contains(got, "-b") {
				t.Errorf("the collection %q still has %q, which is denied", collection, got)
			}
		}
	})
}
