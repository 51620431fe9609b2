package controlplane_test

import (
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
)

// Envoy, "Eventual consistency considerations".
func TestSotW_PushOrderIsMakeBeforeBreak(t *testing.T) {
	s, c := startSotW(t)
	c.subscribe(custom, "x")
	c.subscribe(rds, "r")
	c.subscribe(eds, "e")
	c.subscribe(lds, "l")
	c.want(lds)
	c.subscribe(cds, "c")
	c.want(cds)
	c.fenceOff(rds)
	s.update(t, func(tx *controlplane.Tx) {
		tx.SetNamed("x", nil, wrapperspb.String("x"))
		tx.Set(xdsmsg.RouteConfig("r", "*"), xdsmsg.DefaultListener("l", "r"), xdsmsg.SimpleEndpoints("e", "127.0.0.1:1"), cluster("c"))
	})
	version := c.want(cds, "c").GetVersionInfo()
	for _, next := range []struct{ typeURL, name string }{{eds, "e"}, {lds, "l"}, {rds, "r"}, {custom, "x"}} {
		if v := c.want(next.typeURL, next.name).GetVersionInfo(); v != version {
			t.Errorf("version of %s is %q, of Cluster %q, in one update", next.typeURL, v, version)
		}
	}
}

// fenceOff returns when the server has taken in all requests so far, without a
// subscription of the custom type.
func (c *client) fenceOff(typeURL string) {
	c.t.Helper()
	if _, err := c.store.Update(func(tx *controlplane.Tx) { tx.Set(xdsmsg.RouteConfig("fence", "*")) }); err != nil {
		c.t.Fatal(err)
	}
	c.subscribe(typeURL, "r", "fence")
	c.want(typeURL, "fence")
}

// Envoy, "Eventual consistency considerations": stale Clusters go last.
func TestSotW_DeletedClusterGoesAfterTheRoutesThatLeaveIt(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, names ...string) (*testServer, *client) {
		s := startServer(t)
		s.set(t, cluster("old"), cluster("stays"), xdsmsg.RouteConfig("r", "*", xdsmsg.PrefixRoute("/", "old")))
		c := s.open(t)
		c.subscribe(cds, names...)
		c.want(cds, "old", "stays")
		c.subscribe(rds, "r")
		c.want(rds, "r")
		return s, c
	}
	reroute := xdsmsg.RouteConfig("r", "*", xdsmsg.PrefixRoute("/", "new"))

	t.Run("deleted only", func(t *testing.T) {
		t.Parallel()
		s, c := open(t, "old", "stays")
		s.update(t, func(tx *controlplane.Tx) {
			tx.Delete(cds, "old")
			tx.Set(reroute)
		})
		c.want(rds, "r")
		c.want(cds, "stays")
		c.fence()
	})
	t.Run("deleted and added", func(t *testing.T) {
		t.Parallel()
		s, c := open(t)
		s.update(t, func(tx *controlplane.Tx) {
			tx.Delete(cds, "old")
			tx.Set(cluster("new"), reroute)
		})
		c.want(cds, "new", "old", "stays")
		c.want(rds, "r")
		c.want(cds, "new", "stays")
		c.fence()
	})
	t.Run("deleted and changed", func(t *testing.T) {
		t.Parallel()
		s, c := open(t)
		s.update(t, func(tx *controlplane.Tx) {
			tx.Delete(cds, "old")
			tx.Set(changed("stays", "new"), reroute)
		})
		c.want(cds, "old", "stays")
		c.want(rds, "r")
		c.want(cds, "stays")
	})
	t.Run("nothing but Clusters", func(t *testing.T) {
		t.Parallel()
		s, c := open(t)
		s.update(t, func(tx *controlplane.Tx) {
			tx.Delete(cds, "old")
			tx.Set(cluster("new"))
		})
		c.want(cds, "new", "stays")
		c.fence()
	})
}
