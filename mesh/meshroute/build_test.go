package meshroute

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// The resources of any input are valid for Envoy and dynxds, and do not depend on the order of the input
// or on the previous mesh.
func TestBuild_Properties(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 10))
	var previous *Mesh
	for i := range 60 {
		in := randomInput(r)
		if i%2 == 0 {
			in.Authority = "xds.example.com"
		}
		m := accepted(t, in, nil)
		r.Shuffle(len(in.Policies), func(i, j int) { in.Policies[i], in.Policies[j] = in.Policies[j], in.Policies[i] })
		r.Shuffle(len(in.Services), func(i, j int) { in.Services[i], in.Services[j] = in.Services[j], in.Services[i] })
		again := mustBuild(t, in, previous)
		if diff := cmp.Diff(summary(m), summary(again)); diff != "" {
			t.Fatalf("in another order, after another mesh (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(m.Reports(), again.Reports()); diff != "" {
			t.Fatalf("reports (-want +got):\n%s", diff)
		}
		if previous != nil {
			sameChanges(t, previous, again)
		}
		previous = again
	}
}

func summary(m *Mesh) []string {
	var list []string
	for _, r := range m.Resources() {
		list = append(list, r.TypeURL+" "+r.Name+" "+r.Parameters.String()+" "+describe(r))
	}
	return list
}

// A change of a policy affects only its services; a change of its lines or file affects none.
func TestBuild_ReusesUnchangedResources(t *testing.T) {
	t.Parallel()
	text := func(header string) string {
		return "name: p\nspec:\n  to:\n  - targetRef: {kind: MeshService, name: s1}\n    rules:\n" +
			"    - filters: [{requestHeaderModifier: {set: [{name: a, value: " + header + "}]}}]\n"
	}
	var in Input
	for i := range 4 {
		in.Services = append(in.Services, service(fmt.Sprintf("s%d", i)))
	}
	in.Policies = append(policytest.Parse(t, "f", text("x")), policytest.New("other", TargetRef{}, policytest.To("s2", meshpolicy.Rule{BackendRefs: policytest.Send("s3")})))
	first := mustBuild(t, in, nil)

	in.Policies[0] = policytest.Parse(t, "g", "# a comment\n\n"+text("x"))[0]
	second := mustBuild(t, in, first)
	if changed, removed := second.Changes(first); len(changed)+len(removed) > 0 {
		t.Errorf("other lines changed %v, %v", changed, removed)
	}
	merged, _ := second.Merged(Client{}, "s1")
	xdstest.Equal(t, "the place of filters", "g:8", merged.Rules[0].From[meshpolicy.FieldFilters].Source(0).String())
	xdstest.Equal(t, "the place of a report", "g:8", second.Reports()[0].Source.String())

	in.Policies[0] = policytest.Parse(t, "f", text("y"))[0]
	third := mustBuild(t, in, second)
	changed, removed := third.Changes(second)
	if len(changed) != 1 || changed[0].Name != "s1" || changed[0].TypeURL != RouteConfigurationType || len(removed) > 0 {
		t.Errorf("a policy for s1 changed %v, %v", changed, removed)
	}

	in.Services = slices.Clone(in.Services)
	in.Services[3] = service("s3", nil, nil)
	fourth := mustBuild(t, in, third)
	for _, r := range first.Resources() {
		if r.Name != "s1" && r.Name != "s3" && !slices.Contains(fourth.Resources(), r) {
			t.Errorf("%s %s was rebuilt", r.TypeURL, r.Name)
		}
	}

	in.Policies[1] = policytest.New("other", TargetRef{}, policytest.To("s2", meshpolicy.Rule{Matches: policytest.On(policytest.Prefix("/x")), BackendRefs: policytest.Send("s3")}))
	if fifth := mustBuild(t, in, fourth); fifth.destination("s2") == fourth.destination("s2") || fifth.destination("s3") != fourth.destination("s3") {
		t.Error("another policy for s2 did not rebuild the routes to s2, or those to s3, which it sends requests to")
	}
}

// TP2, "Migrating From Node Metadata".
func TestClientFromNode(t *testing.T) {
	t.Parallel()
	metadata := func(fields map[string]any) *structpb.Struct {
		s, err := structpb.NewStruct(fields)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, test := range []struct {
		node *corepb.Node
		want string
	}{
		{nil, "a client without tags"},
		{&corepb.Node{Cluster: "c"}, "service=c"},
		{&corepb.Node{Cluster: "c", Metadata: metadata(map[string]any{"service": "s", "version": "v1", "n": 1.0, "empty": ""})}, "service=s,version=v1"},
	} {
		if got := ClientFromNode(test.node).String(); got != test.want {
			t.Errorf("%v is %q, want %q", test.node, got, test.want)
		}
	}
}

// Where authors are not to harm each other, what is wrong is left out, and all else is as without it.
func TestBuild_Separate(t *testing.T) {
	t.Parallel()
	rule := func(path string) meshpolicy.Rule {
		return meshpolicy.Rule{Matches: policytest.On(policytest.Exact(path))}
	}
	good := Input{Services: services("s", "t"), Policies: []*Policy{policytest.New("p", TargetRef{}, policytest.To("s", rule("/a/b")))}, Separate: true}
	want := mustBuild(t, good, nil)
	bad := good.clone()
	odd := &Service{Name: "u", Source: Source{File: "u.yaml", Line: 1}, Endpoints: []Endpoint{{Address: "a"}}}
	bad.Services = append(bad.Services, odd, service("s", map[string]string{"a": "b"}))
	bad.Policies = append(bad.Policies, policytest.New("p", TargetRef{}, policytest.To("t", rule("/c/d"))))
	got := mustBuild(t, bad, nil)
	if changed, removed := mustBuild(t, bad, want).Changes(want); len(changed)+len(removed) > 0 {
		t.Errorf("beside what is left out %v changed and %v are removed", changed, removed)
	}
	reports := []string{
		`p.yaml:1: error: policy p: policy p is defined twice; the other definition is at p.yaml:1`,
		`services.yaml:1: error: service s is defined twice; the other definition is at services.yaml:1`,
		`u.yaml:1: error: endpoints[0].address: service u: "a" is not an address; write it as host:port, an IPv6 address in brackets`,
	}
	var said []string
	for _, r := range got.Reports() {
		if said = append(said, r.String()); !r.LeftOut {
			t.Errorf("%v does not say that something is left out", r)
		}
	}
	xdstest.Equal(t, "reports", reports, said)
	// What is left out may change, and be corrected.
	for _, addresses := range [][]Endpoint{{{Address: "b"}}, {{Address: "10.0.0.1:80"}}, {{Address: "c"}}} {
		next := *odd
		next.Endpoints = addresses
		in := bad.clone()
		in.Services[2] = &next
		from := mustBuild(t, in, got)
		alone := mustBuild(t, in, nil)
		sameMesh(t, alone, from)
		got = from
	}
}
