package meshroute

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// routesOf returns the variants of the routes of a service.
func routesOf(m *Mesh, service string) []*Resource {
	var list []*Resource
	for _, r := range m.Resources() {
		if r.TypeURL == RouteConfigurationType && r.Name == m.naming.resource(RouteConfigurationType, service) {
			list = append(list, r)
		}
	}
	return list
}

// describe is what a client gets, for comparison.
func describe(r *Resource) string {
	if r == nil {
		return "nothing"
	}
	if r.Err != nil {
		return r.Err.Code().String() + " " + r.Err.Message()
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(r.Message)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// choose is what a control plane does for a client's subscription with constraints about
// the keys (TP2).
func choose(t *testing.T, c Client, keys []string, variants []*Resource) *Resource {
	t.Helper()
	byType, err := ConstraintsFor(c, keys)
	if err != nil {
		t.Fatal(err)
	}
	parameters := make([]dynparam.Parameters, len(variants))
	for i, r := range variants {
		parameters[i] = r.Parameters
	}
	constraints := byType.For(variants[0].TypeURL)
	choice := constraints.Choose(parameters)
	if choice.Index < 0 || choice.Rival >= 0 {
		t.Fatalf("%v: constraints %v choose %+v of %v", c, constraints, choice, parameters)
	}
	return variants[choice.Index]
}

// tableOf translates rules for one client.
func tableOf(in Input, name string, c Client) routeTable {
	services := new(pmap.Builder[*serviceResources])
	for _, s := range in.Services {
		services.Set(s.Name, &serviceResources{service: s})
	}
	m := &Mesh{naming: naming{in.Authority}, services: services.Map()}
	of := &compiler{destination: &destination{service: name}, mesh: m, own: m.service(name)}
	return routeTable{of, c.Tag(meshpolicy.RoutesKey) != ""}
}

// bruteForce merges the policies that select a client for it alone, and returns what it gets.
func bruteForce(in Input, c Client, name string) string {
	routes, _ := tableOf(in, name, c).configuration(policytest.Merge(in.Policies, c, name))
	return describe(&Resource{Message: routes})
}

// The property that variants are for: whatever the policies, every client gets, by
// its constraints, by its Node, and by merging for it alone, the same.
func TestVariants_EveryClientGetsItsOwn(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	for range 20 {
		in := randomInput(r)
		m := mustBuild(t, in, nil)
		for _, s := range in.Services {
			variants := routesOf(m, s.Name)
			messages := make(map[string]proto.Message)
			for _, of := range variants {
				if first, ok := messages[describe(of)]; ok && first != of.Message {
					t.Fatalf("%v has a copy of the routes of another variant", of.Parameters)
				}
				messages[describe(of)] = of.Message
			}
			got := make(map[string]bool)
			for _, c := range policytest.Clients() {
				chosen := choose(t, c, m.Keys(), variants)
				if plain := m.Routes(c, s.Name); plain.Message != chosen.Message || plain.Err != chosen.Err {
					t.Fatalf("%v gets %v by constraints, %v without", c, chosen.Parameters, plain.Parameters)
				}
				want := bruteForce(in, c, s.Name)
				if text := describe(chosen); text != want {
					t.Fatalf("%v gets %q of %s, want %q", c, text, s.Name, want)
				}
				got[chosen.Parameters.Key()] = true
			}
			if len(got) != len(variants) {
				t.Fatalf("%d clients of all kinds get %d of %d variants", len(policytest.Clients()), len(got), len(variants))
			}
			checkSmallest(t, m, s.Name)
		}
	}
}

// checkSmallest compares the tags in the parameters with those that, alone, change
// what some client gets. Every set of tags that distinguishes the variants has all of
// these.
func checkSmallest(t *testing.T, m *Mesh, name string) {
	t.Helper()
	want := make(map[string]bool)
	for _, key := range []string{meshpolicy.ServiceKey, "env", "version", "zone", meshpolicy.NamespaceTag, meshpolicy.RoutesKey} {
		first := make(map[string]string)
		for _, c := range policytest.Clients() {
			rest := Client{Service: c.Service, Tags: maps.Clone(c.Tags)}
			rest.Tags[meshpolicy.RoutesKey] = c.Tag(meshpolicy.RoutesKey)
			if key == meshpolicy.ServiceKey {
				rest.Service = "*"
			} else {
				rest.Tags[key] = "*"
			}
			got := describe(m.Routes(c, name))
			if other, ok := first[rest.String()]; ok && other != got {
				want[key] = true
			}
			first[rest.String()] = got
		}
	}
	got := slices.Sorted(slices.Values(m.destination(name).variants.keys))
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), got); diff != "" {
		t.Fatalf("tags that make a difference (-want +got):\n%s", diff)
	}
	for _, r := range routesOf(m, name) {
		for key := range r.Parameters.Map() {
			if key != meshpolicy.SpecificityKey && !want[key] {
				t.Fatalf("%v has the tag %s", r.Parameters, key)
			}
		}
	}
}

// A client's constraints have values for its own tags only.
func TestConstraints(t *testing.T) {
	t.Parallel()
	policies := []*Policy{
		policytest.New("a", TargetRef{Tags: map[string]string{"version": "v1"}}, policytest.To("s", meshpolicy.Rule{Filters: []meshpolicy.Filter{}, BackendRefs: policytest.Send("t")})),
		policytest.New("b", TargetRef{Name: "x"}, policytest.To("t", meshpolicy.Rule{BackendRefs: policytest.Send("s")})),
	}
	m := mustBuild(t, Input{Policies: policies, Services: services("s", "t")}, nil)
	got, err := ConstraintsFor(Client{Service: "frontend", Tags: map[string]string{"more": "y"}}, m.Keys())
	if err != nil {
		t.Fatal(err)
	}
	want, _ := dynparam.New(
		dynparam.Require("service", dynparam.Value("frontend")), dynparam.Require("version", dynparam.Value("")),
		dynparam.Require("specificity", dynparam.InRanges(dynparam.AtLeast(0))))
	if c := got.For(RouteConfigurationType); !c.Equal(want) {
		t.Errorf("got %v, want %v", c, want)
	}
	for _, typeURL := range []string{ListenerType, ClusterType, EndpointsType} {
		if c := got.For(typeURL); !c.IsZero() {
			t.Errorf("%s has the constraints %v", typeURL, c)
		}
	}
	alike := mustBuild(t, Input{Services: services("s", "t")}, nil)
	if c, err := ConstraintsFor(frontend, alike.Keys()); err != nil || !c.For(RouteConfigurationType).IsZero() {
		t.Errorf("where all clients are alike, the constraints are %v, %v", c, err)
	}
	if _, err := ConstraintsFor(Client{Service: strings.Repeat("x", 64<<10)}, m.Keys()); err == nil {
		t.Error("a tag that is too large is no error")
	}
}

// Input that needs too many variants is rejected, quickly and for the one service only.
func TestVariants_Bounds(t *testing.T) {
	t.Parallel()
	var policies []*Policy
	for i := range 30 {
		tags := map[string]string{fmt.Sprintf("k%d", i): "v"}
		rule := meshpolicy.Rule{Matches: policytest.On(policytest.Exact(fmt.Sprintf("/a/%d", i)))}
		policies = append(policies, policytest.New(fmt.Sprint("p", i), TargetRef{Tags: tags}, policytest.To("s", rule)))
	}
	m := mustBuild(t, Input{Policies: policies, Services: services("s", "t")}, nil)
	if r := m.Routes(Client{}, "s"); r.Err.Code() != codes.ResourceExhausted || r.Message != nil || len(routesOf(m, "s")) != 1 {
		t.Errorf("got %v", r)
	}
	if r := m.Routes(Client{}, "t"); r.Message == nil {
		t.Errorf("another service has %v", r.Err)
	}
	if n := len(m.Reports()); n != 30 || m.Reports()[0].Severity != Error {
		t.Errorf("got %d reports, the first one is %v", n, m.Reports()[0])
	}

	policies = nil
	for i := range maxAllTags + 1 {
		tags := map[string]string{fmt.Sprintf("k%d", i): "v"}
		policies = append(policies, policytest.New(fmt.Sprint("p", i), TargetRef{Tags: tags},
			policytest.To(fmt.Sprint("s", i), meshpolicy.Rule{Filters: []meshpolicy.Filter{}, Matches: policytest.On(policytest.Exact("/a/b"))})))
	}
	in := Input{Policies: policies}
	for i := range policies {
		in.Services = append(in.Services, service(fmt.Sprint("s", i)))
	}
	if _, err := Build(in, nil); err == nil || !strings.Contains(err.Error(), "121 tags") {
		t.Errorf("Build = %v", err)
	}
}

// TP2, "Matching Ambiguity": a new key comes into use in two steps, clients first. In
// neither does a client get a variant that is not its own.
func TestConstraints_BetweenTwoMeshes(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(11, 12))
	for range 30 {
		in := Input{Services: services("a", "b", "c"), Policies: policytest.Policies(r, 3)}
		before := mustBuild(t, in, nil)
		in.Policies = append(policytest.Policies(r, 5)[3:], in.Policies...)
		after := mustBuild(t, in, before)
		keys := slices.Compact(slices.Sorted(slices.Values(append(before.Keys(), after.Keys()...))))
		for _, m := range []*Mesh{before, after} {
			variants := routesOf(m, "a")
			for _, c := range policytest.Clients() {
				if got := choose(t, c, keys, variants); describe(got) != describe(m.Routes(c, "a")) {
					t.Fatalf("%v gets %v", c, got.Parameters)
				}
			}
		}
	}
}

func randomInput(r *rand.Rand) Input {
	in := Input{Policies: policytest.Policies(r, r.IntN(7))}
	for _, name := range policytest.Services {
		if r.IntN(8) > 0 {
			in.Services = append(in.Services, service(name, policytest.Tags(r, 0), policytest.Tags(r, 0)))
			if r.IntN(2) == 0 { // the servers are those of all services
				in.Services[len(in.Services)-1].TLS = &TLS{Identity: "id", Roots: "ca", SANs: exactSAN(name)}
			}
		}
	}
	return in
}
