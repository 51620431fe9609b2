package explain

import (
	"strings"
	"testing"
	"unicode"

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

// Text of resources and peers cannot move a terminal's cursor or begin a line of its own.
func TestHostileTextIsText(t *testing.T) {
	t.Parallel()
	const evil = "\x1b[2J\nroute \u202e\x00\xff<script>"
	route := xdsmsg.PrefixRoute("/", "a")
	route.Name, route.Metadata = strings.ToValidUTF8(evil, ""), places("matches", strings.ToValidUTF8(evil, ""))
	s := sourceOf(xdsmsg.DefaultListener("backend", "r"), xdsmsg.RouteConfig("r", "*", route))
	plain := mustExplain(t, s, Request{})
	r := absentResource(xdsmsg.EDSCluster("a", ""), "NACKED", evil)
	r.Server, r.ErrorVersion, s.Client.NodeID = evil, evil, evil
	s.Resources = append(s.Resources, r)
	e := mustExplain(t, s, Request{Headers: map[string][]string{"k": {evil}}})
	text := e.Text()
	for _, c := range text {
		if c != '\n' && !unicode.IsPrint(c) {
			t.Fatalf("the text has the character %q:\n%q", c, text)
		}
	}
	if got, want := strings.Count(text, "\n"), strings.Count(plain.Text(), "\n")+3; got > want {
		t.Errorf("the text has %d lines, more than %d:\n%s", got, want, text)
	}
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
