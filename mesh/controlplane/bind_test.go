package controlplane_test

import (
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// eachBound runs a test with a server that adds the constraints of a policy to locators, and that has two variants of a Listener.
func eachBound(t *testing.T, test func(t *testing.T, p *policy, s *testServer, open func(node string) *tp2Client)) {
	t.Parallel()
	for name, wire := range map[string]func(testing.TB, *testServer, string) tp2Wire{"SotW": newTP2SotW, "delta": newTP2Delta} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPolicy("one", "direct", "two", "via_proxy", "three", "neither")
			s := startServer(t, controlplane.Options{NotFoundErrors: true, BindLocators: true, NodeConstraints: func(node *corepb.Node) dynparam.ByType {
				byType, err := p.of(node)
				if err != nil {
					t.Error(err)
				}
				return byType
			}})
			for _, name := range []string{"l", boundMember} {
				s.setVariant(t, lds, name, "direct", "listener_type", "direct")
				s.setVariant(t, lds, name, "via_proxy", "listener_type", "via_proxy")
			}
			test(t, p, s, func(node string) *tp2Client { return newTP2Client(t, s, wire(t, s, node)) })
		})
	}
}

const boundMember = "xdstp://a/envoy.config.listener.v3.Listener/d/x"

// Whatever constraints clients send, they get variants for their own nodes.
func TestBindLocators(t *testing.T) {
	eachBound(t, func(t *testing.T, _ *policy, s *testServer, open func(node string) *tp2Client) {
		for node, want := range map[string]string{"one": "direct", "two": "via_proxy"} {
			c := open(node)
			c.wants(c.subscribe(lds, "l", unconstrained), want)
			c.wants(c.subscribe(lds, "l", exactly(t, "listener_type", want)), want)
			c.wants(c.subscribe(lds, "l", exactly(t, "other", "key")), want)
			c.wants(c.subscribe(lds, "*", unconstrained), "l="+want+" "+boundMember+"="+want)
			if isDelta(c) {
				c.wants(c.subscribe(lds, strings.TrimSuffix(boundMember, "x")+"*", unconstrained), boundMember+"="+want)
			}
		}
		for node, constraint := range map[string]string{"one": "via_proxy", "two": "direct", "three": "direct"} {
			c := open(node)
			h := c.subscribe(lds, "l", exactly(t, "listener_type", constraint))
			c.settle()
			if !strings.HasPrefix(h.String(), "PermissionDenied: ") {
				t.Errorf("node %s with the constraint %s has %q, want PERMISSION_DENIED", node, constraint, h)
			}
			c.unsubscribe(h)
			h = c.subscribe(lds, "l", unconstrained)
			c.settle()
			if want := map[string]string{"one": "direct", "two": "via_proxy", "three": nothing}[node]; h.String() != want && !(want == nothing && strings.HasPrefix(h.String(), "NotFound: ")) {
				t.Errorf("node %s has %q, want %q", node, h, want)
			}
		}
	})
}

// If the constraints of a node change, its stream ends, and is sent nothing of what changes afterwards; other streams go on.
func TestBindLocators_Refresh(t *testing.T) {
	eachBound(t, func(t *testing.T, p *policy, s *testServer, open func(node string) *tp2Client) {
		one, two := open("one"), open("two")
		one.wants(one.subscribe(lds, "l", unconstrained), "direct")
		h := two.subscribe(lds, "l", unconstrained)
		two.wants(h, "via_proxy")
		p.set("one", "via_proxy")
		s.control.RefreshNodeConstraints(nil)
		s.setVariant(t, lds, "l", "for others", "listener_type", "direct")
		s.setVariant(t, lds, "l", "changed", "listener_type", "via_proxy")
		var err error
		switch w := one.wire.(type) {
		case *tp2SotW:
			_, err = w.stream.Recv()
		case *tp2Delta:
			_, err = w.stream.Recv()
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("next on the stream is %v, want its end with UNAVAILABLE", err)
		}
		two.wants(h, "changed")
		again := open("one")
		again.wants(again.subscribe(lds, "l", unconstrained), "changed")
	})
}

// A client is sent none of the responses that were composed before the constraints of its node changed.
func TestBindLocators_RefreshDuringAPush(t *testing.T) {
	t.Parallel()
	p := newPolicy("one", "direct")
	var control *controlplane.Server
	s := startServer(t, controlplane.Options{
		BindLocators: true,
		NodeConstraints: func(node *corepb.Node) dynparam.ByType {
			byType, _ := p.of(node)
			return byType
		},
		MaxResponseSize: 1, // each name in a response of its own
		Absence: func(_, name string, _ func(string) bool) string {
			if name == "c" {
				p.set("one", "via_proxy")
				control.RefreshNodeConstraints(nil)
			}
			return ""
		},
	})
	control = s.control
	w := newTP2Delta(t, s, "one").(*tp2Delta)
	var locators []*discoverypb.ResourceLocator
	for _, name := range []string{"a", "b", "c", "d"} {
		locators = append(locators, &discoverypb.ResourceLocator{Name: name})
	}
	w.request(lds, nil, locators...)
	for _, name := range []string{"a", "b"} {
		if got := w.recv().GetRemovedResourceNames(); len(got) != 1 || got[0].GetName() != name {
			t.Errorf("removed are %v, want %s", got, name)
		}
	}
	if next, err := w.stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("next on the stream is %v, %v, want its end with UNAVAILABLE", next, err)
	}
}
