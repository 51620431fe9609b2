package resolver

import (
	"errors"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

// unreachable is the error that the server of a resource is unreachable.
func unreachable(resource string) error {
	return &xdsclient.Error{Kind: xdsclient.KindUnreachable, Transient: true, Resource: resource, Err: errors.New("unreachable")}
}

// late is the error that the server of a resource did not send it in time. lacking says that it would say
// so if it had no such resource (resource_timer_is_transient_error).
func late(resource string, lacking bool) error {
	return &xdsclient.Error{Kind: xdsclient.KindTimeout, Transient: lacking, Resource: resource, Err: errors.New("no answer")}
}

// An unreachable server is no answer: what is in use stays until there is one.
func TestConfigurationInUseWaitsForAnUnreachableServer(t *testing.T) {
	t.Parallel()
	xdstest.Parallel(t, "routes for a Cluster", func(t *testing.T) {
		f := configured(t)
		f.answer("RouteConfiguration R", routes("R", "b"))
		f.keep("Cluster b", unreachable("b"))
		f.serve("b", "2")
		f.expect("R: b=2")
	})
	xdstest.Parallel(t, "routes for endpoints", func(t *testing.T) {
		f := configured(t)
		f.answer("RouteConfiguration R", routes("R", "b"))
		f.answer("Cluster b", eds("b"))
		f.keep("ClusterLoadAssignment b", unreachable("b"))
		f.change("ClusterLoadAssignment b", endpoints("b", "2"), "R: b=2")
	})
	xdstest.Parallel(t, "routes, if then there is an answer that is an error", func(t *testing.T) {
		f := configured(t)
		f.answer("RouteConfiguration R", routes("R", "b"))
		f.answer("Cluster b", unreachable("b"))
		f.change("Cluster b", errors.New("no b"), "R: b=!no b")
	})
	xdstest.Parallel(t, "routes for a Cluster of a late server that says what it lacks", func(t *testing.T) {
		f := configured(t)
		f.answer("RouteConfiguration R", routes("R", "b"))
		f.keep("Cluster b", late("b", true))
		f.answer("Cluster b", eds("b"))
		f.keep("ClusterLoadAssignment b", late("b", true))
		f.change("ClusterLoadAssignment b", endpoints("b", "2"), "R: b=2")
	})
	xdstest.Parallel(t, "the clusters under an aggregate one", func(t *testing.T) {
		f := newFixture(t)
		f.route("a")
		f.answer("Cluster a", aggregate("b"))
		f.serve("b", "1")
		f.expect("R: a=[b=1]")
		f.answer("Cluster a", aggregate("c"))
		f.keep("Cluster c", late("c", true))
		f.serve("c", "2")
		f.expect("R: a=[c=2]")
	})
	xdstest.Parallel(t, "endpoints for those of another name", func(t *testing.T) {
		f := configured(t)
		f.change("Cluster a", eds("other"), "R: a=1")
		f.keep("ClusterLoadAssignment other", unreachable("other"))
		f.change("Cluster a", eds("other"), "R: a=1")
		f.change("ClusterLoadAssignment other", endpoints("other", "2"), "R: a=2")
	})
}

// Nor is silence an answer, for the endpoints of a Cluster that names another ClusterLoadAssignment. Its absence is.
func TestEndpointsInUseWaitForASilentServer(t *testing.T) {
	t.Parallel()
	f := configured(t)
	f.change("Cluster a", eds("other"), "R: a=1")
	f.keep("ClusterLoadAssignment other", late("other", false))
	f.change("ClusterLoadAssignment other", endpoints("other", "2"), "R: a=2")
	f.change("Cluster a", eds("third"), "R: a=2")
	f.keep("ClusterLoadAssignment third", late("third", false))
	var err error = &xdsclient.Error{Kind: xdsclient.KindDoesNotExist, Resource: "third", Err: errors.New("no such resource")}
	f.change("ClusterLoadAssignment third", err, "R: a=!"+err.Error())

	f = newFixture(t)
	f.route("a")
	f.answer("Cluster a", eds("a"))
	err = late("a", false)
	f.change("ClusterLoadAssignment a", err, "R: a=!"+err.Error())
}

// The names of one authority may be spelled in several ways (xRFC TP1): that of the
// Listener is by a template of the bootstrap, and the client's errors have canonical ones.
func TestRoutesOfAnAuthorityWaitHoweverItIsSpelled(t *testing.T) {
	t.Parallel()
	for _, authority := range []string{"a!b", "a%21b", "%61!b"} {
		xdstest.Parallel(t, authority, func(t *testing.T) {
			listener := "xdstp://" + authority + "/envoy.config.listener.v3.Listener/L"
			const cluster = "xdstp://a!b/envoy.config.cluster.v3.Cluster/b"
			f := newFixtureOf(t, listener)
			f.answer("Listener "+listener, toRDS("R"))
			f.answer("RouteConfiguration R", routes("R", "a"))
			f.serve("a", "1")
			f.expect("R: a=1")
			f.answer("RouteConfiguration R", routes("R", cluster))
			f.keep("Cluster "+cluster, unreachable(cluster))
			f.answer("Cluster "+cluster, eds("b"))
			f.change("ClusterLoadAssignment b", endpoints("b", "2"), "R: "+cluster+"=2")
		})
	}
}

// Without a configuration in use, RPCs get the error. An outage of one authority does not
// delay routes of another one.
func TestWhatDoesNotWaitForAnUnreachableServer(t *testing.T) {
	t.Parallel()
	xdstest.Parallel(t, "the first configuration", func(t *testing.T) {
		f := newFixture(t)
		f.route("a")
		f.expect("R: a=?")
		err := unreachable("a")
		f.change("Cluster a", err, "R: a=!"+err.Error())
	})
	xdstest.Parallel(t, "routes for a Cluster of a late server that may lack it", func(t *testing.T) {
		f := configured(t)
		f.answer("RouteConfiguration R", routes("R", "a", "b"))
		err := late("b", false)
		f.change("Cluster b", err, "R: a=1 b=!"+err.Error())
	})
	xdstest.Parallel(t, "routes of another authority", func(t *testing.T) {
		f := configured(t)
		const b = "xdstp://other/envoy.config.cluster.v3.Cluster/b"
		f.answer("RouteConfiguration R", routes("R", "a", b))
		err := unreachable(b)
		f.change("Cluster "+b, err, "R: a=1 "+b+"=!"+err.Error())
	})
}
