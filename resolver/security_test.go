package resolver

import (
	"errors"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// securedEDS is eds for a Cluster that asks for security.
func securedEDS(service string) *xdsresource.Cluster {
	c := eds(service)
	c.Security = &xdsresource.Security{Roots: &xdsresource.CertificateInstance{Provider: new(bootstrap.CertificateProvider)}}
	return c
}

// accepting is eds for a Cluster that accepts servers of the given names.
func accepting(t *testing.T, service string, names ...string) *xdsresource.Cluster {
	t.Helper()
	c := xdsmsg.EDSCluster("a", service)
	c.TransportSocket = xdsmsg.TLSSocket(xdsmsg.UpstreamTLS("", "", names...))
	value, err := xdsresource.ClusterType.Decode(xdsmsg.Any(c), xdsclient.DecodeOptions{})
	xdstest.NoError(t, err)
	return value.(*xdsresource.Cluster)
}

// A Cluster that gets stricter ends the use of endpoints under the old security, even if there are no others
// yet. Any other change waits for its endpoints.
func TestNothingStaysInUseWithLaxerSecurity(t *testing.T) {
	t.Parallel()
	secure := func(t *testing.T) *fixture {
		f := routed(t, "a")
		f.graph.usesXDS = true
		f.answer("Cluster a", accepting(t, "a", "x", "y"))
		f.answer("ClusterLoadAssignment a", endpoints("a", "1"))
		f.expect("R: a=1")
		return f
	}
	xdstest.Parallel(t, "other endpoints", func(t *testing.T) {
		f := secure(t)
		f.change("Cluster a", accepting(t, "other", "x"), "R: a=?")
		f.change("ClusterLoadAssignment other", endpoints("other", "2"), "R: a=2")
	})
	xdstest.Parallel(t, "other endpoints, of which nothing is heard", func(t *testing.T) {
		f := secure(t)
		f.change("Cluster a", accepting(t, "other", "x"), "R: a=?")
		f.change("ClusterLoadAssignment other", unreachable("other"), "R: a=!"+unreachable("other").Error())
	})
	xdstest.Parallel(t, "a laxer version waits for its endpoints", func(t *testing.T) {
		f := secure(t)
		f.keep("Cluster a", accepting(t, "other", "x", "y", "z"))
		f.change("ClusterLoadAssignment other", endpoints("other", "2"), "R: a=2")
	})
	xdstest.Parallel(t, "a stricter version after a laxer one without endpoints", func(t *testing.T) {
		f := secure(t)
		f.keep("Cluster a", accepting(t, "other", "x", "y", "z"))
		f.keep("Cluster a", accepting(t, "another", "x", "y"))
		f.change("Cluster a", accepting(t, "another", "x"), "R: a=?")
	})
	xdstest.Parallel(t, "the same endpoints", func(t *testing.T) {
		f := secure(t)
		f.change("Cluster a", accepting(t, "a", "x"), "R: a=1")
	})
	xdstest.Parallel(t, "under an aggregate cluster", func(t *testing.T) {
		f := routed(t, "top")
		f.graph.usesXDS = true
		f.answer("Cluster top", aggregate("a", "b"))
		f.answer("Cluster a", accepting(t, "a", "x", "y"))
		f.answer("ClusterLoadAssignment a", endpoints("a", "1"))
		f.serve("b", "2")
		f.expect("R: top=[a=1 b=2]")
		f.change("Cluster a", accepting(t, "other", "x"), "R: top=[a=? b=2]")
	})
	xdstest.Parallel(t, "without endpoints, while new routes wait for another cluster", func(t *testing.T) {
		f := secure(t)
		f.answer("RouteConfiguration R", routes("R", "b"))
		f.keep("ClusterLoadAssignment a", errors.New("deleted"))
		f.keep("Cluster a", accepting(t, "a", "x", "y", "z"))
		f.change("Cluster a", accepting(t, "a", "x"), "R: a=!deleted")
	})
	xdstest.Parallel(t, "under a deleted aggregate cluster, while new routes wait", func(t *testing.T) {
		f := routed(t, "top")
		f.graph.usesXDS = true
		f.answer("Cluster top", aggregate("b"))
		f.answer("Cluster b", accepting(t, "b", "x", "y"))
		f.answer("ClusterLoadAssignment b", endpoints("b", "1"))
		f.expect("R: top=[b=1]")
		f.answer("RouteConfiguration R", routes("R", "b", "c"))
		f.keep("Cluster top", errors.New("deleted"))
		f.keep("Cluster b", accepting(t, "b", "x", "y"))
		f.change("Cluster b", accepting(t, "b", "x"), "R: top=!deleted")
	})
	xdstest.Parallel(t, "a channel that does not obey", func(t *testing.T) {
		f := secure(t)
		f.graph.usesXDS = false
		f.change("Cluster a", accepting(t, "other", "x"), "R: a=1")
	})
}

// A Cluster that begins to ask for security ends the use of endpoints without it, even if
// there are no others yet.
func TestNothingStaysInUseWithoutSecurity(t *testing.T) {
	t.Parallel()
	secure := func(t *testing.T) *fixture {
		f := routed(t, "a")
		f.graph.usesXDS = true
		f.serve("a", "1")
		f.expect("R: a=1")
		return f
	}
	xdstest.Parallel(t, "other endpoints", func(t *testing.T) {
		f := secure(t)
		f.change("Cluster a", securedEDS("other"), "R: a=?")
		f.change("ClusterLoadAssignment other", endpoints("other", "2"), "R: a=2")
	})
	xdstest.Parallel(t, "after the server was unreachable", func(t *testing.T) {
		f := secure(t)
		f.keep("Cluster a", unreachable("a"))
		f.change("Cluster a", securedEDS("a"), "R: a=?")
		f.change("ClusterLoadAssignment a", endpoints("a", "2"), "R: a=2")
	})
	xdstest.Parallel(t, "under an aggregate cluster", func(t *testing.T) {
		f := routed(t, "top")
		f.graph.usesXDS = true
		f.answer("Cluster top", aggregate("a", "b"))
		f.serve("a", "1")
		f.serve("b", "2")
		f.see()
		f.keep("Cluster a", unreachable("a"))
		f.change("Cluster a", securedEDS("a"), "R: top=[a=? b=2]")
		f.change("ClusterLoadAssignment a", endpoints("a", "3"), "R: top=[a=3 b=2]")
	})
	xdstest.Parallel(t, "without endpoints, while new routes wait for another cluster", func(t *testing.T) {
		f := secure(t)
		f.answer("RouteConfiguration R", routes("R", "b"))
		f.keep("ClusterLoadAssignment a", errors.New("deleted"))
		f.change("Cluster a", securedEDS("a"), "R: a=!deleted")
		f.serve("b", "2")
		f.expect("R: b=2")
	})
	xdstest.Parallel(t, "under a deleted aggregate cluster, while new routes wait", func(t *testing.T) {
		f := routed(t, "top")
		f.graph.usesXDS = true
		f.answer("Cluster top", aggregate("b"))
		f.serve("b", "1")
		f.expect("R: top=[b=1]")
		f.answer("RouteConfiguration R", routes("R", "b", "c"))
		f.keep("Cluster top", errors.New("deleted"))
		f.keep("Cluster b", eds("b"))
		f.change("Cluster b", securedEDS("b"), "R: top=!deleted")
		f.keep("ClusterLoadAssignment b", endpoints("b", "1"))
		f.serve("c", "2")
		f.expect("R: b=1 c=2")
	})
	xdstest.Parallel(t, "a channel that does not obey", func(t *testing.T) {
		f := configured(t)
		t.Cleanup(f.graph.close)
		f.change("Cluster a", securedEDS("other"), "R: a=1")
	})
}
