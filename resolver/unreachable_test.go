package resolver

import (
	"errors"
	"testing"

	"github.com/dynxds/dynxds/xdsclient"
)

// unreachable is that the server of a resource is.
func unreachable(resource string) error {
	return &xdsclient.Error{Kind: xdsclient.KindUnreachable, Resource: resource, Err: errors.New("unreachable")}
}

// That the server is out of reach says nothing of a resource: what is in use
// waits for it to come back.
func TestWhatIsInUseWaitsForAServerThatIsOutOfReach(t *testing.T) {
	t.Parallel()
	t.Run("routes for a Cluster", func(t *testing.T) {
		t.Parallel()
		f := configured(t)
		f.answer("RouteConfiguration R", routes("R", "b"), nil)
		f.answer("Cluster b", nil, unreachable("b"))
		f.expectNothing()
		f.serve("b", "2")
		f.expect("R: b=2")
	})
	t.Run("routes for endpoints", func(t *testing.T) {
		t.Parallel()
		f := configured(t)
		f.answer("RouteConfiguration R", routes("R", "b"), nil)
		f.answer("Cluster b", eds("b"), nil)
		f.answer("ClusterLoadAssignment b", nil, unreachable("b"))
		f.expectNothing()
		f.answer("ClusterLoadAssignment b", endpoints("b", "2"), nil)
		f.expect("R: b=2")
	})
	t.Run("routes, if then there is an answer that is an error", func(t *testing.T) {
		t.Parallel()
		f := configured(t)
		f.answer("RouteConfiguration R", routes("R", "b"), nil)
		f.answer("Cluster b", nil, unreachable("b"))
		f.answer("Cluster b", nil, errors.New("no b"))
		f.expect("R: b=!no b")
	})
	t.Run("endpoints for those of another name", func(t *testing.T) {
		t.Parallel()
		f := configured(t)
		f.answer("Cluster a", eds("other"), nil)
		f.expect("R: a=1")
		f.answer("ClusterLoadAssignment other", nil, unreachable("other"))
		f.expectNothing()
		f.answer("Cluster a", eds("other"), nil)
		f.expect("R: a=1")
		f.answer("ClusterLoadAssignment other", endpoints("other", "2"), nil)
		f.expect("R: a=2")
	})
}

// The names of one authority may be spelled in several ways (xRFC TP1): that of the
// Listener is by a template of the bootstrap, and the client's errors have canonical ones.
func TestRoutesOfAnAuthorityWaitHoweverItIsSpelled(t *testing.T) {
	t.Parallel()
	for _, authority := range []string{"a!b", "a%21b", "%61!b"} {
		t.Run(authority, func(t *testing.T) {
			t.Parallel()
			listener := "xdstp://" + authority + "/envoy.config.listener.v3.Listener/L"
			const cluster = "xdstp://a!b/envoy.config.cluster.v3.Cluster/b"
			f := newFixtureOf(t, listener)
			f.answer("Listener "+listener, toRDS("R"), nil)
			f.answer("RouteConfiguration R", routes("R", "a"), nil)
			f.serve("a", "1")
			f.expect("R: a=1")
			f.answer("RouteConfiguration R", routes("R", cluster), nil)
			f.answer("Cluster "+cluster, nil, unreachable(cluster))
			f.expectNothing()
			f.answer("Cluster "+cluster, eds("b"), nil)
			f.answer("ClusterLoadAssignment b", endpoints("b", "2"), nil)
			f.expect("R: " + cluster + "=2")
		})
	}
}

// Where there is nothing in use, RPCs are told; and the outage of an authority
// does not hold up routes that come from another one.
func TestWhatDoesNotWaitForAServerThatIsOutOfReach(t *testing.T) {
	t.Parallel()
	t.Run("the first configuration", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.route("a")
		f.expect("R: a=?")
		err := unreachable("a")
		f.answer("Cluster a", nil, err)
		f.expect("R: a=!" + err.Error())
	})
	t.Run("routes of another authority", func(t *testing.T) {
		t.Parallel()
		f := configured(t)
		const b = "xdstp://other/envoy.config.cluster.v3.Cluster/b"
		f.answer("RouteConfiguration R", routes("R", "a", b), nil)
		err := unreachable(b)
		f.answer("Cluster "+b, nil, err)
		f.expect("R: a=1 " + b + "=!" + err.Error())
	})
}
