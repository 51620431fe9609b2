package explain

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// absentResource is one that the client does not have.
func absentResource(like proto.Message, state, err string) *Resource {
	r := held(like)
	r.Raw, r.Version, r.State, r.Error = nil, "", state, err
	return r
}

func TestTargets(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ target, authority, endpoint string }{
		{"xds:///backend", "", "backend"}, {"backend", "", "backend"}, {"xds:backend", "", "backend"}, {"dynxds:///a/b", "", "a/b"},
		{"xds://auth/backend:80", "auth", "backend:80"}, {"backend:80", "", "backend:80"},
	} {
		authority, endpoint, err := ParseTarget(tc.target)
		if err != nil || authority != tc.authority || endpoint != tc.endpoint {
			t.Errorf("%s: %q, %q, %v; want %+v", tc.target, authority, endpoint, err, tc)
		}
	}
	for _, target := range []string{"", "xds:///", "xds://auth", "xds://a%zz/b"} {
		if _, _, err := ParseTarget(target); err == nil {
			t.Errorf("%q is accepted", target)
		}
	}
}

// The Listener of a target is found in any naming scheme, and the authority is gRPC's.
func TestListenerOfATarget(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, target, authority string }{
		{"backend:80", "xds:///backend:80", "backend:80"},
		{"xdstp://auth/envoy.config.listener.v3.Listener/backend", "xds:///backend", "backend"},
		{"xdstp://auth/envoy.config.listener.v3.Listener/a%20b", "xds://auth/a%20b", "a%20b"},
		{"mesh/listeners/backend", "backend", "backend"},
	} {
		s := sourceOf(xdsmsg.InlineListener(tc.name, xdsmsg.RouteConfig("", "*", xdsmsg.PrefixRoute("/", "a"))))
		e := mustExplain(t, s, Request{Target: tc.target})
		xdstest.Equal(t, "Listener of "+tc.target, tc.name, e.Request.Listener)
		xdstest.Equal(t, "authority of "+tc.target, tc.authority, e.Request.Authority)
	}
}
