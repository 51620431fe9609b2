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
