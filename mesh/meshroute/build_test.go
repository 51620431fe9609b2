package meshroute

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	_ "github.com/dynxds/dynxds/httpfilter/fault"
	"github.com/dynxds/dynxds/internal/xdsresource"
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
		checkChanges(t, previous, again)
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

// checkChanges applies the changes from one mesh to the next to the resources of the
// first.
func checkChanges(t *testing.T, before, after *Mesh) {
	t.Helper()
	held := make(map[resourceKey]*Resource)
	if before != nil {
		for _, r := range before.Resources() {
			held[r.key()] = r
		}
	}
	changed, removed := after.Changes(before)
	for _, r := range removed {
		if held[r.key()] != r {
			t.Fatalf("%s %v was removed, and not there", r.Name, r.Parameters)
		}
		delete(held, r.key())
	}
	for _, r := range changed {
		if held[r.key()] == r {
			t.Fatalf("%s %v is no change", r.Name, r.Parameters)
		}
		held[r.key()] = r
	}
	for _, r := range after.Resources() {
		if held[r.key()] != r {
			t.Fatalf("%s %s %v changed, and Changes does not report it", r.TypeURL, r.Name, r.Parameters)
		}
		delete(held, r.key())
	}
	if len(held) > 0 {
		t.Fatalf("%d resources were removed, and Changes does not have them", len(held))
	}
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
	if got := merged.Rules[0].From[meshpolicy.FieldFilters].Source().String(); got != "g:8" {
		t.Errorf("got filters from %s, want g:8", got)
	}
	if got := second.Reports()[0].Source.String(); got != "g:8" {
		t.Errorf("got a report on %s, want g:8", got)
	}

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
}

// xRFC TP3: a missing service is NOT_FOUND. Kuma (meshhttproute, UnresolvedBackendRefsWeight, and mirrors that do
// not resolve): rules that refer to it do not take the other routes with them.
func TestBuild_MissingServices(t *testing.T) {
	t.Parallel()
	policies := []*Policy{
		policytest.New("good", TargetRef{}, policytest.To("s", meshpolicy.Rule{BackendRefs: policytest.Send("s")})),
		policytest.New("bad", TargetRef{Name: "frontend"}, policytest.To("s",
			meshpolicy.Rule{BackendRefs: []meshpolicy.BackendRef{{Name: "s", Weight: 3}, {Name: "gone", Tags: map[string]string{"v": "1"}, Weight: 1}}},
			meshpolicy.Rule{Matches: policytest.On(policytest.Exact("/a/b")), Filters: []meshpolicy.Filter{{Type: meshpolicy.RequestMirror, Mirror: &policytest.Send("lost")[0]}}})),
		policytest.New("worse", TargetRef{}, policytest.To("t", meshpolicy.Rule{BackendRefs: []meshpolicy.BackendRef{{Name: "gone", Tags: map[string]string{"v": "1"}, Weight: 1}}})),
		policytest.New("void", TargetRef{}, policytest.To("nowhere", meshpolicy.Rule{BackendRefs: policytest.Send("s")})),
		policytest.New("wide", TargetRef{}, meshpolicy.To{Rules: []meshpolicy.Rule{{Matches: policytest.On(policytest.Exact("/c/d"))}}}),
	}
	m := accepted(t, Input{Policies: policies, Services: services("s", "t")}, nil)
	for implementation, gone := range map[Implementation]string{Dynxds: "gone;v=1", Envoy: "gone;v=1", GRPCGo: "gone;v=1;no-such-service", OtherGRPC: "gone;v=1;no-such-service"} {
		host := hostFor(t, m.Routes(Client{Service: "frontend", Implementation: implementation}, "s"))
		mirrored, split := host.Routes[0], host.Routes[len(host.Routes)-1]
		if len(mirrored.Mirrors) > 0 || clusterOf(t, mirrored) != "s" {
			t.Errorf("%v: the route with the missing mirror is %+v", implementation, mirrored)
		}
		clusters := split.Action.(*xdsresource.Forward).Clusters
		if len(clusters) != 2 || clusters[0].Name != "s" || clusters[0].Weight != 3 || clusters[1].Name != gone || clusters[1].Weight != 1 {
			t.Errorf("%v: requests are sent to %+v", implementation, clusters)
		}
	}
	var got []string
	for _, r := range m.Resources() {
		if r.Err != nil {
			got = append(got, r.TypeURL[len("type.googleapis.com/envoy.config."):]+" "+r.Err.Code().String()+" "+r.Err.Message())
		}
	}
	slices.Sort(got)
	policytest.Equal(t, "errors in place of resources", []string{
		`cluster.v3.Cluster NotFound the mesh has no service "gone", to which requests are sent by policy bad, policy worse`,
		`listener.v3.Listener NotFound the mesh has no service "nowhere", which is named by policy void`,
		`route.v3.RouteConfiguration NotFound the mesh has no service "nowhere", which is named by policy void`,
	}, got)
	// When the services are added, there are no errors, and the one in place of the Cluster is replaced.
	before := m
	m = accepted(t, Input{Policies: policies, Services: services("s", "t", "gone", "lost", "nowhere")}, before)
	changed, removed := m.Changes(before)
	is := func(r *Resource) bool { return r.TypeURL == ClusterType && r.Name == "gone;v=1" }
	if !slices.ContainsFunc(changed, is) || slices.ContainsFunc(removed, is) {
		t.Errorf("%v changed, %v was removed", changed, removed)
	}
	changed, removed = before.Changes(m)
	if !slices.ContainsFunc(changed, is) || slices.ContainsFunc(removed, is) {
		t.Errorf("the other way round, %v changed, %v was removed", changed, removed)
	}
	again := mustBuild(t, Input{Policies: slices.Clone(policies), Services: services("s", "t")}, before)
	if changed, removed = again.Changes(before); len(changed)+len(removed) > 0 {
		t.Errorf("without a change, %v changed, %v was removed", changed, removed)
	}
	for _, r := range m.Resources() {
		if r.Err != nil {
			t.Errorf("%s: %v", r.Name, r.Err)
		}
	}
}

func TestBuild_Endpoints(t *testing.T) {
	t.Parallel()
	v1 := map[string]string{"version": "v1"}
	east, west := Locality{"r", "east", ""}, Locality{"r", "west", ""}
	s := &Service{Name: "s", Endpoints: []Endpoint{
		{Address: "10.0.0.1:80", Locality: west, Weight: 3, Tags: v1},
		{Address: "10.0.0.2:80", Locality: east, Tags: v1, Health: corepb.HealthStatus_DRAINING},
		{Address: "10.0.0.3:80", Locality: west, Weight: 2, Health: corepb.HealthStatus_UNHEALTHY, Hostname: "h"},
		{Address: "[::1]:80", Locality: west, Priority: 4, Tags: v1},
		{Address: "10.0.0.5:80", Locality: east, Priority: 2},
	}}
	p := policytest.New("p", TargetRef{}, policytest.To("s", meshpolicy.Rule{BackendRefs: []meshpolicy.BackendRef{
		{Name: "s", Tags: v1, Weight: 1}, {Name: "s", Tags: map[string]string{"version": "v9"}, Weight: 1},
	}}))
	p.Source.File = "p.yaml"
	m := accepted(t, Input{Services: []*Service{s}, Policies: []*Policy{p}}, nil)
	got := make(map[string][]xdsresource.Locality)
	for _, r := range m.Resources() {
		if r.TypeURL == EndpointsType {
			got[r.Name] = checkResource(t, r).(*xdsresource.Endpoints).Localities
		}
	}
	id := func(l Locality) xdsresource.LocalityID { return xdsresource.LocalityID(l) }
	want := map[string][]xdsresource.Locality{
		"s": {
			{ID: id(east), Weight: 1, Endpoints: []xdsresource.Endpoint{{Address: "10.0.0.2:80", Weight: 1, Health: xdsresource.HealthDraining}}},
			{ID: id(west), Weight: 3, Endpoints: []xdsresource.Endpoint{
				{Address: "10.0.0.1:80", Weight: 3, Health: xdsresource.HealthHealthy},
				{Address: "10.0.0.3:80", Weight: 2, Health: xdsresource.HealthUnhealthy, Hostname: "h"},
			}},
			{ID: id(east), Priority: 1, Weight: 1, Endpoints: []xdsresource.Endpoint{{Address: "10.0.0.5:80", Weight: 1, Health: xdsresource.HealthHealthy}}},
			{ID: id(west), Priority: 2, Weight: 1, Endpoints: []xdsresource.Endpoint{{Address: "[::1]:80", Weight: 1, Health: xdsresource.HealthHealthy}}},
		},
		"s;version=v1": {
			{ID: id(east), Weight: 1, Endpoints: []xdsresource.Endpoint{{Address: "10.0.0.2:80", Weight: 1, Health: xdsresource.HealthDraining}}},
			{ID: id(west), Weight: 3, Endpoints: []xdsresource.Endpoint{{Address: "10.0.0.1:80", Weight: 3, Health: xdsresource.HealthHealthy}}},
			{ID: id(west), Priority: 1, Weight: 1, Endpoints: []xdsresource.Endpoint{{Address: "[::1]:80", Weight: 1, Health: xdsresource.HealthHealthy}}},
		},
		"s;version=v9": {},
	}
	policytest.Equal(t, "localities", want, got)
}

// The names of xRFC TP1: each resource refers to the next by the name that it has.
func TestBuild_Names(t *testing.T) {
	t.Parallel()
	p := policytest.New("p", TargetRef{}, policytest.To("s", meshpolicy.Rule{BackendRefs: []meshpolicy.BackendRef{
		{Name: "s", Tags: map[string]string{"b": "2", "a/x": "1"}, Weight: 1},
	}}))
	for authority, want := range map[string][]string{
		"": {"s", "s", "s;a/x=1;b=2", "s;a/x=1;b=2"},
		// In canonical form, in which clients ask for them and compare them.
		"a!b c": {
			"xdstp://a!b%20c/envoy.config.listener.v3.Listener/s", "xdstp://a!b%20c/envoy.config.route.v3.RouteConfiguration/s",
			"xdstp://a!b%20c/envoy.config.cluster.v3.Cluster/s;a/x=1;b=2", "xdstp://a!b%20c/envoy.config.endpoint.v3.ClusterLoadAssignment/s;a/x=1;b=2",
		},
	} {
		m := mustBuild(t, Input{Services: services("s"), Policies: []*Policy{p}, Authority: authority}, nil)
		byName := make(map[string]any)
		for _, r := range m.Resources() {
			byName[r.TypeURL+r.Name] = checkResource(t, r)
		}
		listener, _ := byName[ListenerType+m.ListenerName("s")].(*xdsresource.Listener)
		routes, _ := byName[RouteConfigurationType+listener.RouteConfigName].(*xdsresource.RouteConfiguration)
		cluster, _ := byName[ClusterType+clusterOf(t, routes.VirtualHosts[0].Routes[0])].(*xdsresource.Cluster)
		endpoints, _ := byName[EndpointsType+cluster.EDSServiceName].(*xdsresource.Endpoints)
		policytest.Equal(t, "names", want, []string{listener.Name, routes.Name, cluster.Name, endpoints.Name})
	}
}

func TestBuild_Filters(t *testing.T) {
	t.Parallel()
	config, err := anypb.New(&faultpb.HTTPFault{})
	if err != nil {
		t.Fatal(err)
	}
	s := service("s")
	s.Filters = []*hcmpb.HttpFilter{{Name: "f", ConfigType: &hcmpb.HttpFilter_TypedConfig{TypedConfig: config}}}
	m := mustBuild(t, Input{Services: []*Service{s}}, nil)
	listener := checkResource(t, m.Resources()[0]).(*xdsresource.Listener)
	if len(listener.Filters) != 2 || listener.Filters[0].Name != "f" {
		t.Errorf("the filters are %+v", listener.Filters)
	}
	if diff := cmp.Diff(s.Filters, []*hcmpb.HttpFilter{{Name: "f", ConfigType: &hcmpb.HttpFilter_TypedConfig{TypedConfig: config}}}, protocmp.Transform()); diff != "" {
		t.Errorf("the service's filters were changed:\n%s", diff)
	}
}

// All faults of the input are reported, each with its place.
func TestBuild_Faults(t *testing.T) {
	t.Parallel()
	bad := &Service{Name: "a b", Source: Source{File: "s.yaml", Line: 4}, Endpoints: []Endpoint{
		{Address: "host"}, {Address: "host:0"}, {Address: "10.0.0.1:80", Weight: 1 << 31}, {Address: "10.0.0.1:80", Weight: 1 << 31}, {Address: "x:1", Health: 7},
		{Address: "10.0.0.1:0080"}, {Address: "a b:1"}, {Address: "[%]:1"}, {Address: "y:1", Hostname: "a b"},
	}}
	_, err := Build(Input{Services: []*Service{bad}}, nil)
	want := []string{
		`s.yaml:4: name: "a b" cannot be the name of a service; use letters, digits and, inside, - _ .`,
		`s.yaml:4: endpoints[0].address: service a b: "host" is not host:port`,
		`s.yaml:4: endpoints[1].address: service a b: "host:0" is not host:port`,
		`s.yaml:4: endpoints[3].address: service a b: "10.0.0.1:80" is already the address of endpoints[2]`,
		`s.yaml:4: endpoints[4].health: service a b: 7 is not a state of health`,
		`s.yaml:4: endpoints[5].address: service a b: "10.0.0.1:0080" is already the address of endpoints[3]`,
		`s.yaml:4: endpoints[6].address: service a b: "a b:1" is not host:port`,
		`s.yaml:4: endpoints[7].address: service a b: "[%]:1" is not host:port`,
		`s.yaml:4: endpoints[8].hostname: service a b: "a b" has a blank or control character in it`,
		`s.yaml:4: endpoints: service a b: the weights add up to 4294967303, more than 4294967295`,
	}
	policytest.Equal(t, "faults", strings.Join(want, "\n"), fmt.Sprint(err))
	p, q := policytest.New("p", TargetRef{}, policytest.To("s", meshpolicy.Rule{})), policytest.New("p", TargetRef{}, policytest.To("s", meshpolicy.Rule{}))
	q.Source = Source{File: "q.yaml", Line: 2}
	_, err = Build(Input{Services: services("s", "s"), Policies: []*Policy{p, q}}, nil)
	want = []string{
		`q.yaml:2: policy p is defined twice; the other definition is at p.yaml:1`,
		`services.yaml:1: service s is defined twice; the other definition is at services.yaml:1`,
	}
	policytest.Equal(t, "faults", strings.Join(want, "\n"), fmt.Sprint(err))
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
		`u.yaml:1: error: endpoints[0].address: service u: "a" is not host:port`,
	}
	var said []string
	for _, r := range got.Reports() {
		if said = append(said, r.String()); !r.LeftOut {
			t.Errorf("%v does not say that something is left out", r)
		}
	}
	policytest.Equal(t, "reports", reports, said)
	// What is left out may change, and be corrected.
	for _, addresses := range [][]Endpoint{{{Address: "b"}}, {{Address: "10.0.0.1:80"}}, {{Address: "c"}}} {
		next := *odd
		next.Endpoints = addresses
		in := bad.clone()
		in.Services[2] = &next
		from := mustBuild(t, in, got)
		alone := mustBuild(t, in, nil)
		policytest.Equal(t, "reports", alone.Reports(), from.Reports())
		policytest.Equal(t, "names", alone.names, from.names)
		got = from
	}
}
