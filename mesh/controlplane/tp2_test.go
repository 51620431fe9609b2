package controlplane_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// What TP2 asks of a server beside its worked examples.

var unconstrained dynparam.Constraints

// locatorsOf are locators of names, with one constraint.
func locatorsOf(t *testing.T, names ...string) (list []*discoverypb.ResourceLocator) {
	for _, name := range names {
		list = append(list, ask{name: name, constraints: exactly(t, "env", "prod")}.message())
	}
	return list
}

// "API Changes", DiscoveryRequest and DeltaDiscoveryRequest: if there are locators in the first
// request for a type on a stream, names are ignored in all that follow.
func TestTP2_FirstRequestOfATypeDecides(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		for _, name := range []string{"a", "b"} {
			s.setVariant(t, rds, name, "prod "+name, "env", "prod")
			s.setVariant(t, eds, name, "plain "+name)
		}
		w := open("n").wire
		w.request(rds, []string{"b"}, locatorsOf(t, "a")...)
		w.receive()
		if delta, ok := w.(*tp2Delta); ok {
			delta.send(&discoverypb.DeltaDiscoveryRequest{TypeUrl: rds, ResourceNamesSubscribe: []string{"b"}, ResourceNamesUnsubscribe: []string{"a"}})
		} else {
			w.request(rds, []string{"a", "b"}, locatorsOf(t, "a")...)
		}
		// The types decide apart from each other.
		w.request(eds, []string{"a"})
		if got := w.receive().typeURL; got != eds {
			t.Errorf("a later request made a difference: a response of type %s", got)
		}
		if got := statusOf(t, s.control, rds).Names; !slices.Equal(got, []string{"a"}) {
			t.Errorf("subscribed to %q, want a", got)
		}
	})
}

// A client that subscribes to a type by names, and later by locators, may not: the first request has
// decided. TP2 does not say what becomes of the locators. They would never be answered, so the stream ends, and
// the client learns why, whether or not it knows of errors of resources (TP3).
func TestTP2_LocatorsAfterNamesAreRefused(t *testing.T) {
	t.Parallel()
	// stores are the ways in which resources get into a store.
	stores := map[string]func(*testing.T, *testServer){
		"a resource": func(t *testing.T, s *testServer) { s.setVariant(t, rds, "a", "prod a", "env", "prod") },
		"a source": func(t *testing.T, s *testServer) {
			s.store.OnDemand(rds, func(begun, _ []*controlplane.Demand) {
				s.update(t, func(tx *controlplane.Tx) {
					for _, d := range begun {
						tx.Answer(d, given(t, "1", d.Name, variant(rds, "prod "+d.Name)))
					}
				})
			})
		},
	}
	for name, prepare := range stores {
		t.Run(name, func(t *testing.T) {
			eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
				prepare(t, s)
				w := open("n").wire
				w.request(rds, []string{"a"})
				w.receive()
				if delta, ok := w.(*tp2Delta); ok {
					// To leave what was never subscribed to leaves no request unanswered.
					delta.send(&discoverypb.DeltaDiscoveryRequest{TypeUrl: rds, ResourceLocatorsUnsubscribe: locatorsOf(t, "a")})
					w.request(rds, []string{"none"})
					w.receive()
				}
				w.request(rds, nil, locatorsOf(t, "a")...)
				if err := w.end(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), rds) {
					t.Errorf("the stream ended with %v, want INVALID_ARGUMENT that names the resource and its type", err)
				}
			})
		})
	}
}

// "API Changes", Resource: the server returns the parameters of each resource. A
// client that sends no locators is sent what it was before there were any.
func TestTP2_ParametersOnTheWire(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		s.setVariant(t, cds, "c", "content", "env", "prod", "version", "v1")
		w := open("n").wire
		w.request(cds, nil, &discoverypb.ResourceLocator{Name: "c"})
		want := &discoverypb.Resource{
			Name: "c", Version: s.store.Variants(cds, "c")[0].Version(), Resource: variant(cds, "content"),
			DynamicParameters: parameters("env", "prod", "version", "v1"),
		}
		if got := w.receive().resources; len(got) != 1 || !proto.Equal(got[0], want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestTP2_NothingNewForClientsWithoutLocators(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.setVariant(t, cds, "c", "content", "env", "prod", "version", "v1")
	plain := s.openDelta(t)
	plain.subscribe(cds, "c")
	if r := plain.next().message.(*deltaResponse).GetResources()[0]; r.GetResourceName() != nil || len(r.ProtoReflect().GetUnknown()) > 0 {
		t.Errorf("a client without locators was sent %v", r)
	}
	bare := s.open(t)
	bare.subscribe(cds, "c")
	if r := bare.next().message.(*sotwResponse).GetResources()[0]; r.GetTypeUrl() != cds {
		t.Errorf("a client without locators was sent a %s", r.GetTypeUrl())
	}
}

// "API Changes", key_constraints: "if a key has a constraint here but is not
// present on the resource, it will match, regardless of what the constraint says".
func TestTP2_AbsentKeyMatches(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		s.set(t, cluster("none"))
		s.setVariant(t, rds, "r", "of all versions", "env", "prod")
		c := open("n")
		h := c.subscribe(rds, "r", exactly(t, "env", "prod", "version", "v7"))
		c.wants(h, "of all versions")
		other := c.subscribe(rds, "r", exactly(t, "env", "test"))
		c.wants(other, map[bool]string{true: nothing, false: ""}[isDelta(c)])
	})
}

func isDelta(c *tp2Client) bool { _, ok := c.wire.(*tp2Delta); return ok }

// After a change, each affected subscription gets the next variant that matches, or that there is
// none.
func TestTP2_SubscriptionsAreReevaluated(t *testing.T) {
	eachVariant(t, controlplane.Options{NotFoundErrors: true}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		s.setVariant(t, rds, "r", "prod", "env", "prod")
		s.setVariant(t, rds, "r", "test", "env", "test")
		s.setVariant(t, rds, "r", "any")
		c := open("n")
		prod := c.subscribe(rds, "r", exactly(t, "env", "prod"))
		test := c.subscribe(rds, "r", exactly(t, "env", "test"))
		c.wants(prod, "prod")
		c.wants(test, "test")

		s.setVariant(t, rds, "r", "prod 2", "env", "prod")
		c.wants(prod, "prod 2")
		c.wants(test, "test")

		s.deleteVariant(t, rds, "r", "env", "prod")
		c.wants(prod, "any")
		c.wants(test, "test")

		s.deleteVariant(t, rds, "r")
		none := nothing
		if !isDelta(c) {
			none = `NotFound: the control plane has no resource "r" of type ` + rds
		}
		c.wants(prod, none)
		c.wants(test, "test")

		// The parameters of a variant change: it is another one.
		s.update(t, func(tx *controlplane.Tx) {
			tx.DeleteVariant(rds, "r", parameters("env", "test"))
			tx.SetNamed("r", parameters("env", "prod"), variant(rds, "test"))
		})
		c.wants(prod, "test")
		c.wants(test, none)

		c.unsubscribe(test)
		s.setVariant(t, rds, "r", "again", "env", "test")
		c.wants(prod, "test")
	})
}

// Only a changed variant gets a new version, and only its subscribers are sent it.
func TestTP2_OnlyChangedVariantsAreSent(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		set := func(prod, test string) {
			s.update(t, func(tx *controlplane.Tx) {
				tx.DeleteAll(rds)
				tx.SetNamed("r", parameters("env", "prod"), variant(rds, prod))
				tx.SetNamed("r", parameters("env", "test"), variant(rds, test))
			})
		}
		versions := func() (versions []string) {
			for _, r := range s.store.Variants(rds, "r") {
				versions = append(versions, r.Version())
			}
			return versions
		}
		set("same", "same")
		before := versions()
		if before[0] == before[1] {
			t.Error("two variants have one version")
		}
		c := open("n")
		c.wants(c.subscribe(rds, "r", exactly(t, "env", "prod")), "same")
		set("same", "other")
		if after := versions(); after[0] != before[0] || after[1] == before[1] {
			t.Errorf("versions %q became %q", before, after)
		}
		c.settle()
		if got := c.responses[rds]; got != 1 {
			t.Errorf("%d responses, want the first only", got)
		}
	})
}

// Subscriptions with overlapping constraints: a client hands a variant to all of
// them that it matches, so it is sent with what is preferred to it.
func TestTP2_OverlappingSubscriptions(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		s.setVariant(t, eds, "e", "three", "shard", "3")
		s.setVariant(t, eds, "e", "five", "shard", "5")
		c := open("n")
		wide := c.subscribe(eds, "e", inRange(t, "shard", dynparam.AtMost(5)))
		narrow := c.subscribe(eds, "e", exactly(t, "shard", "3"))
		both := func(wideWant, narrowWant string) {
			t.Helper()
			c.wants(wide, wideWant)
			c.wants(narrow, narrowWant)
		}
		both("five", "three")
		s.setVariant(t, eds, "e", "three again", "shard", "3")
		both("five", "three again")
		s.deleteVariant(t, eds, "e", "shard", "5")
		both("three again", "three again")
		s.update(t, func(tx *controlplane.Tx) {
			tx.SetVariantError(eds, "e", parameters("shard", "4"), status.New(codes.PermissionDenied, "no"))
		})
		both("PermissionDenied: no", "three again")
		s.setVariant(t, eds, "e", "three at last", "shard", "3")
		both("PermissionDenied: no", "three at last")
	})
}

// TP3 errors name the subscription that they are for.
func TestTP2_ErrorsOfVariants(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		s.setVariant(t, lds, "l", "open", "zone", "a")
		s.update(t, func(tx *controlplane.Tx) {
			tx.SetVariantError(lds, "l", parameters("zone", "b"), status.New(codes.PermissionDenied, "zone b is closed"))
		})
		c := open("n")
		a, b := c.subscribe(lds, "l", exactly(t, "zone", "a")), c.subscribe(lds, "l", exactly(t, "zone", "b"))
		c.wants(a, "open")
		c.wants(b, "PermissionDenied: zone b is closed")
		errs := statusOf(t, s.control, lds).Errors
		if len(errs) != 1 || errs[0].Name != "l" || !errs[0].Constraints.Equal(b.ask.constraints) {
			t.Errorf("standing errors: %+v", errs)
		}

		// An error of the name is that of all its variants; a variant ends it.
		s.update(t, func(tx *controlplane.Tx) { tx.SetError(lds, "l", status.New(codes.Internal, "broken")) })
		c.wants(a, "Internal: broken")
		c.wants(b, "Internal: broken")
		s.setVariant(t, lds, "l", "open again", "zone", "b")
		c.wants(b, "open again")
		if s.store.Error(lds, "l") != nil {
			t.Error("the error of the name did not end")
		}
	})
}

// A locator that cannot be used is an error of this subscription, and no other.
func TestTP2_UnusableConstraints(t *testing.T) {
	bad := &discoverypb.ResourceLocator{Name: "r", DynamicParameterConstraints: &discoverypb.DynamicParameterConstraints{
		KeyConstraints: map[string]*discoverypb.DynamicParameterConstraints_KeyConstraints{"env": {}},
	}}
	good := ask{name: "r", constraints: exactly(t, "env", "prod")}.message()
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		s.setVariant(t, rds, "r", "prod", "env", "prod")
		w := open("n").wire
		w.request(rds, nil, bad, good)
		r := w.receive()
		if len(r.resources) != 1 || len(r.errors) != 1 {
			t.Fatalf("%d resources, errors %v", len(r.resources), r.errors)
		}
		detail := r.errors[0].GetErrorDetail()
		if !proto.Equal(r.errors[0].GetResourceName().GetDynamicParameterConstraints(), bad.GetDynamicParameterConstraints()) ||
			codes.Code(detail.GetCode()) != codes.InvalidArgument || !strings.Contains(detail.GetMessage(), `key_constraints["env"]`) {
			t.Errorf("the error is %v", r.errors[0])
		}
	})
}

// A removal names the subscription that lost its resource, even if it is the last one to the name:
// another one may be on its way to the server.
func TestTP2_DeltaRemovals(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	w := newTP2Delta(t, s, "n").(*tp2Delta)
	constraints := map[string]dynparam.Constraints{"prod": exactly(t, "env", "prod"), "test": exactly(t, "env", "test"), "": unconstrained}
	for _, tt := range []struct {
		name string
		// asked has the constraints of the subscriptions, by their keys in constraints;
		// the variants of the same parameters are deleted one by one, and lost is who
		// has nothing any more after each.
		asked, gone []string
		lost        [][]string
	}{
		{"one", []string{"prod"}, []string{"prod"}, [][]string{{"prod"}}},
		{"one after the other", []string{"prod", "test"}, []string{"prod", "test"}, [][]string{{"prod"}, {"test"}}},
		{"without constraints", []string{""}, []string{"prod"}, [][]string{{""}}},
		{"two at once", []string{"", "test"}, []string{"test"}, [][]string{{"", "test"}}},
	} {
		var locators []*discoverypb.ResourceLocator
		for _, of := range tt.asked {
			locators = append(locators, ask{name: tt.name, constraints: constraints[of]}.message())
		}
		for _, env := range tt.gone {
			s.setVariant(t, rds, tt.name, env, "env", env)
		}
		w.send(&discoverypb.DeltaDiscoveryRequest{TypeUrl: rds, ResourceLocatorsSubscribe: locators})
		if got := len(w.recv().GetResources()); got != len(tt.gone) {
			t.Fatalf("%s: %d resources", tt.name, got)
		}
		for i, env := range tt.gone {
			s.deleteVariant(t, rds, tt.name, "env", env)
			resp := w.recv()
			if len(resp.GetRemovedResources()) > 0 || len(resp.GetRemovedResourceNames()) != len(tt.lost[i]) {
				t.Fatalf("%s: %q is removed by %v", tt.name, env, resp)
			}
			for j, of := range tt.lost[i] {
				got := resp.GetRemovedResourceNames()[j]
				if got.GetName() != tt.name || got.GetDynamicParameterConstraints() == nil ||
					!proto.Equal(got.GetDynamicParameterConstraints(), constraints[of].ToProto()) {
					t.Errorf("%s: %q is removed by %v, want the constraints %v", tt.name, env, resp, constraints[of])
				}
			}
		}
	}
}

// A delta client that reconnects says by name what it has.
func TestTP2_DeltaClientReconnects(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.setVariant(t, rds, "r", "prod", "env", "prod")
	s.setVariant(t, rds, "r", "test", "env", "test")
	has := s.store.Variants(rds, "r")[0]
	prod, test := exactly(t, "env", "prod"), exactly(t, "env", "test")
	tests := []struct {
		name    string
		version string
		asks    []dynparam.Constraints
		want    []string
	}{
		{"the client has it", has.Version(), []dynparam.Constraints{prod}, nil},
		{"the client has another variant", has.Version(), []dynparam.Constraints{test}, []string{"test"}},
		{"two subscriptions to one name", has.Version(), []dynparam.Constraints{prod, test}, []string{"prod", "test"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newTP2Delta(t, s, "n").(*tp2Delta)
			req := &discoverypb.DeltaDiscoveryRequest{TypeUrl: rds, InitialResourceVersions: map[string]string{"r": tt.version}}
			for _, c := range tt.asks {
				req.ResourceLocatorsSubscribe = append(req.ResourceLocatorsSubscribe, ask{name: "r", constraints: c}.message())
			}
			w.send(req)
			w.send(&discoverypb.DeltaDiscoveryRequest{TypeUrl: eds, ResourceNamesSubscribe: []string{"absent"}})
			var got []string
			for resp := w.recv(); resp.GetTypeUrl() == rds; resp = w.recv() {
				for _, r := range resp.GetResources() {
					got = append(got, string(r.GetResource().GetValue()))
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A client that subscribes by names gets one variant of each name: the one that
// no constraints choose.
func TestTP2_ClientWithoutLocators(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		variants [][]string
		want     string
	}{
		{"one without parameters", [][]string{{"env", "prod"}, {}}, "[]"},
		{"only some with", [][]string{{"env", "prod"}}, "[env prod]"},
		{"ambiguous, decided always alike", [][]string{{"version", "v2"}, {"version", "v1"}}, "[version v1]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			for _, pairs := range tt.variants {
				s.setVariant(t, cds, "c", "["+strings.Join(pairs, " ")+"]", pairs...)
			}
			for _, names := range [][]string{{"c"}, {"*"}} {
				for _, c := range []*client{s.open(t), s.openDelta(t)} {
					c.subscribe(cds, names...)
					r := c.next()
					if len(r.values) != 1 || r.values[0] != tt.want {
						t.Errorf("%T of %q got %v, want %q", c.wire, names, r.values, tt.want)
					}
					// A change of another variant is not sent.
					s.setVariant(t, cds, "c", "unseen", "version", "v9", "env", "z")
					c.ack(r, names...)
					c.fence()
				}
			}
		})
	}
}

// A delta client comes back with a member of its wildcard that was deleted meanwhile. It cannot say which variant of the name it
// has, and so is told that none is there, also if it subscribes to the name with other constraints.
func TestTP2_ClaimOfADeletedMember(t *testing.T) {
	t.Parallel()
	for _, inError := range []bool{false, true} {
		s := startServer(t)
		if inError {
			s.update(t, func(tx *controlplane.Tx) {
				tx.SetVariantError(cds, "a", parameters("env", "test"), status.New(codes.Internal, "broken"))
			})
		}
		w := newTP2Delta(t, s, "").(*tp2Delta)
		w.send(&discoverypb.DeltaDiscoveryRequest{
			TypeUrl: cds, InitialResourceVersions: map[string]string{"a": "1"},
			ResourceLocatorsSubscribe: []*discoverypb.ResourceLocator{
				ask{cds, "a", exactly(t, "env", "test")}.message(), ask{cds, "*", exactly(t, "env", "prod")}.message(),
			},
		})
		if resp := w.recv(); !slices.Equal(resp.GetRemovedResources(), []string{"a"}) || (len(resp.GetResourceErrors()) > 0) != inError {
			t.Errorf("got %v, want that a is removed; in error: %v", resp, inError)
		}
	}
}
