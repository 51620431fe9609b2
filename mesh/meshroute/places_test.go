package meshroute

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

const placedText = `name: owner
spec:
  to:
  - targetRef: {kind: MeshService, name: s}
    rules:
    - matches:
      - path: {prefix: /a}
      - path: {prefix: /b}
      backendRefs:
      - {kind: MeshService, name: t}
    - matches: [{path: {exact: /p.S/M}}]
      filters:
      - requestHeaderModifier: {set: [{name: x, value: y}]}
---
name: consumer
spec:
  targetRef: {kind: MeshService, name: frontend}
  to:
  - targetRef: {kind: MeshService, name: s}
    rules:
    - matches:
      - path: {prefix: /b}
      - path: {prefix: /a}
      filters:
      - requestMirror: {backendRef: {kind: MeshService, name: t}}
`

// placedInput has policies in a.yaml and services in b.yaml of the folder /etc/mesh.
func placedInput(t testing.TB, text string) Input {
	in := Input{SourceDir: "/etc/mesh/", Policies: policytest.Parse(t, "/etc/mesh/a.yaml", text), Services: services("s", "t")}
	for i, s := range in.Services {
		s.Source = Source{File: "/etc/mesh/b.yaml", Line: 10*i + 1}
		s.Endpoints[0].Source = Source{File: s.Source.File, Line: 10*i + 3}
	}
	return in
}

// placesOf returns the places in the routes of a client by path, "part=places" in order.
func placesOf(t testing.TB, m *Mesh, c Client, service string) map[string]string {
	t.Helper()
	config, ok := m.Routes(c, service).Message.(*routepb.RouteConfiguration)
	if !ok {
		t.Fatalf("%v has no routes", c)
	}
	got := make(map[string]string)
	for _, r := range config.GetVirtualHosts()[0].GetRoutes() {
		var parts []string
		of := provenance.Of(r.GetMetadata())
		for _, part := range slices.Sorted(maps.Keys(of)) {
			parts = append(parts, part+"="+of[part])
		}
		got[r.GetMatch().GetPrefix()+r.GetMatch().GetPath()] = strings.Join(parts, "; ")
	}
	return got
}

// Each route names the lines of what it was made from, relative to the folder.
func TestPlacesOfRoutes(t *testing.T) {
	t.Parallel()
	m := accepted(t, placedInput(t, placedText), nil)
	for _, tc := range []struct {
		client Client
		want   map[string]string
	}{
		{frontend, map[string]string{
			"/a": "backendRefs=a.yaml:10; filters=a.yaml:25; matches=a.yaml:23, a.yaml:7", "/a/": "backendRefs=a.yaml:10; filters=a.yaml:25; matches=a.yaml:23, a.yaml:7",
			"/b": "backendRefs=a.yaml:10; filters=a.yaml:25; matches=a.yaml:22, a.yaml:8", "/b/": "backendRefs=a.yaml:10; filters=a.yaml:25; matches=a.yaml:22, a.yaml:8",
			"/p.S/M": "filters=a.yaml:13; matches=a.yaml:11", "/": "",
		}},
		{Client{}, map[string]string{
			"/a": "backendRefs=a.yaml:10; matches=a.yaml:7", "/a/": "backendRefs=a.yaml:10; matches=a.yaml:7",
			"/b": "backendRefs=a.yaml:10; matches=a.yaml:8", "/b/": "backendRefs=a.yaml:10; matches=a.yaml:8",
			"/p.S/M": "filters=a.yaml:13; matches=a.yaml:11", "/": "",
		}},
	} {
		policytest.Equal(t, tc.client.String(), tc.want, placesOf(t, m, tc.client, "s"))
	}
}

// The other resources name the lines of the service and its parts.
func TestPlacesOfServices(t *testing.T) {
	t.Parallel()
	in := placedInput(t, placedText)
	in.Services[0].TLS = &TLS{Identity: "id", Roots: "ca", SANs: exactSAN("s"), Source: Source{File: "/etc/mesh/b.yaml", Line: 5}}
	config, err := pack(&corepb.Metadata{})
	if err != nil {
		t.Fatal(err)
	}
	in.Services[1].Filters = []*hcmpb.HttpFilter{{Name: "x", ConfigType: &hcmpb.HttpFilter_TypedConfig{TypedConfig: config}, IsOptional: true}}
	in.Services[1].FiltersSource = Source{File: "/elsewhere/c.yaml", Line: 7}
	got := make(map[string]map[string]string)
	for _, r := range mustBuild(t, in, nil).Resources() {
		switch m := r.Message.(type) {
		case *listenerpb.Listener:
			got["Listener "+m.GetName()] = provenance.Of(m.GetMetadata())
		case *clusterpb.Cluster:
			got["Cluster "+m.GetName()] = provenance.Of(m.GetMetadata())
		case *routepb.RouteConfiguration:
			got["RouteConfiguration "+m.GetName()] = provenance.Of(m.GetMetadata())
			got["VirtualHost "+m.GetName()] = provenance.Of(m.GetVirtualHosts()[0].GetMetadata())
		case *endpointpb.ClusterLoadAssignment:
			got["LbEndpoint "+m.GetClusterName()] = provenance.Of(m.GetEndpoints()[0].GetLbEndpoints()[0].GetMetadata())
		}
	}
	service := func(line int) map[string]string { return map[string]string{"service": fmt.Sprint("b.yaml:", line)} }
	policytest.Equal(t, "places", map[string]map[string]string{
		// The Listener of a server is read by the server, not by clients.
		"Listener grpc/server/10.0.0.1:80": nil,
		"Listener s":                       service(1), "Listener t": {"service": "b.yaml:11", "filters": "c.yaml:7"},
		"Cluster s": {"service": "b.yaml:1", "tls": "b.yaml:5"}, "Cluster t": service(11),
		"LbEndpoint s": {"endpoint": "b.yaml:3"}, "LbEndpoint t": {"endpoint": "b.yaml:13"},
		// Routes do not change when the service moves in its file.
		"RouteConfiguration s": nil, "VirtualHost s": nil, "RouteConfiguration t": nil, "VirtualHost t": nil,
	}, got)
}

// withoutMetadata removes the metadata of a message and of the messages in it.
func withoutMetadata(m proto.Message) proto.Message {
	m = proto.Clone(m)
	clearMetadata(m.ProtoReflect())
	return m
}

func clearMetadata(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Name() == "metadata":
			m.Clear(f)
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				clearMetadata(v.List().Get(i).Message())
			}
		default:
			clearMetadata(v.Message())
		}
		return true
	})
}

// give gives each rule lines of its own.
func give(policies []*Policy, first int) {
	line := first
	for _, p := range policies {
		for i := range p.To {
			for j := range p.To[i].Rules {
				r := &p.To[i].Rules[j]
				r.Line = line
				for f := range r.Lines {
					r.Lines[f] = line + 1 + f
				}
				line += 1 + len(r.Lines)
				for k := range r.Matches {
					r.Matches[k].Line = line
					line++
				}
			}
		}
	}
}

// The property that places are for: whatever the policies, a variant names exactly the rules that
// decide for the clients that get it, and with places it is otherwise the variant without.
func TestPlaces_OfTheRulesThatDecide(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	shared := 0
	for range 60 {
		in := randomInput(r)
		give(in.Policies, 1)
		plain := mustBuild(t, in, nil)
		in.SourceDir = "."
		m := mustBuild(t, in, nil)
		for i, of := range m.Resources() {
			without := plain.Resources()[i]
			if of.key() != without.key() || (of.Message == nil) != (without.Message == nil) ||
				of.Message != nil && !proto.Equal(withoutMetadata(of.Message), without.Message) {
				t.Fatalf("with places there is %v, without %v", of, without)
			}
		}
		for _, s := range in.Services {
			name := func(variant *Resource, route int) string {
				return fmt.Sprint("route ", route, " of ", s.Name, " ", variant.Parameters)
			}
			want := make(map[string]map[string]bool) // of a route, by its name: "part=place"
			for _, c := range policytest.Clients() {
				variant := m.Routes(c, s.Name)
				if variant.Err != nil {
					continue
				}
				for i, parts := range decidedFor(in, c, s) {
					route := name(variant, i)
					if want[route] == nil {
						want[route] = make(map[string]bool)
					}
					for part, places := range parts {
						for _, place := range places {
							want[route][part+"="+place.String()] = true
						}
					}
				}
			}
			for _, variant := range routesOf(m, s.Name) {
				if variant.Err != nil {
					continue
				}
				for i, r := range variant.Message.(*routepb.RouteConfiguration).GetVirtualHosts()[0].GetRoutes() {
					route, got := name(variant, i), make(map[string]bool)
					for part, text := range provenance.Of(r.GetMetadata()) {
						places := strings.Split(text, ", ")
						for _, place := range places {
							got[part+"="+place] = true
						}
						if part == provenance.Filters && len(places) > 1 {
							shared++
						}
					}
					policytest.Equal(t, "places of "+route, want[route], got)
					if t.Failed() {
						t.FailNow()
					}
				}
			}
		}
	}
	if shared == 0 {
		t.Error("no variant is shared by clients whose filters are decided by different rules")
	}
}

// decidedFor merges the policies for one client, and returns the places of the parts of each route.
func decidedFor(in Input, c Client, s *Service) []map[string][]Source {
	merged := policytest.Merge(in.Policies, c, s.Name)
	_, made := routeTable{naming{in.Authority}, s.Name, func(string) bool { return true }, nil, sessionFilter, c.Tag(meshpolicy.RoutesKey) != ""}.configuration(merged)
	var all []map[string][]Source
	for _, route := range made {
		parts := make(map[string][]Source)
		if r := route.Rule; r != nil {
			for _, o := range r.MatchesFrom {
				parts[provenance.Matches] = append(parts[provenance.Matches], o.MatchSource(route.Index))
			}
			for f, name := range meshpolicy.FieldNames {
				if f := meshpolicy.Field(f); r.Has(f) {
					parts[name] = []Source{r.From[f].FieldSource(f)}
				}
			}
		}
		all = append(all, parts)
	}
	return all
}

// What did not move stays the same pointer, and moved rules change only what names them.
func TestPlacesChangeOnlyWithTheirLines(t *testing.T) {
	t.Parallel()
	other := "---\nname: other\nspec: {to: [{targetRef: {kind: MeshService, name: t}, rules: [{filters: []}]}]}\n"
	in := placedInput(t, placedText+other)
	first := mustBuild(t, in, nil)
	in.Policies = placedInput(t, placedText+other).Policies
	second := mustBuild(t, in, first)
	if changed, removed := second.Changes(first); len(changed)+len(removed) > 0 {
		t.Errorf("policies that were read again at the same lines changed %v, %v", changed, removed)
	}
	in.Policies = placedInput(t, placedText+"# a comment\n"+other).Policies
	third := mustBuild(t, in, second)
	if changed, removed := third.Changes(second); len(changed) != 1 || changed[0].Name != "t" || len(removed) > 0 {
		t.Errorf("a policy for t that moved changed %v, %v, want the routes to t", changed, removed)
	}
	moved := *in.Services[0]
	moved.Source.Line++
	in.Services = []*Service{&moved, in.Services[1]}
	changed, removed := mustBuild(t, in, third).Changes(third)
	var names []string
	for _, r := range changed {
		names = append(names, r.TypeURL[strings.LastIndex(r.TypeURL, ".")+1:]+" "+r.Name)
	}
	want := []string{"Cluster s", "Listener s"}
	if slices.Sort(names); !slices.Equal(names, want) || len(removed) > 0 {
		t.Errorf("a service that moved changed %q, %v, want %q", names, removed, want)
	}
}

// A rule that never decides, as a more specific one does wherever it could, is not named.
func TestPlaces_NotOfRulesThatNeverDecide(t *testing.T) {
	t.Parallel()
	in := placedInput(t, `{name: all, spec: {to: [{targetRef: {kind: MeshService, name: s}, rules: [{backendRefs: [{kind: MeshService, name: s}]}]}]}}
---
{name: v2, spec: {targetRef: {kind: MeshSubset, tags: {version: v2}}, to: [{targetRef: {kind: MeshService, name: s}, rules: [{backendRefs: [{kind: MeshService, name: t}]}]}]}}
---
{name: frontend-v2, spec: {targetRef: {kind: MeshServiceSubset, name: frontend, tags: {version: v2}}, to: [{targetRef: {kind: MeshService, name: s}, rules: [{backendRefs: [{kind: MeshService, name: s}]}]}]}}
`)
	m := accepted(t, in, nil)
	v2 := map[string]string{"version": "v2"}
	policytest.Equal(t, "places for v2 of frontend", map[string]string{"/": "backendRefs=a.yaml:5; matches=a.yaml:5, a.yaml:3, a.yaml:1"},
		placesOf(t, m, Client{Service: frontend.Service, Tags: v2}, "s"))
	policytest.Equal(t, "places for v2", map[string]string{"/": "backendRefs=a.yaml:3; matches=a.yaml:3, a.yaml:1"}, placesOf(t, m, Client{Tags: v2}, "s"))
	policytest.Equal(t, "places for frontend", map[string]string{"/": "backendRefs=a.yaml:1; matches=a.yaml:1"}, placesOf(t, m, frontend, "s"))
	policytest.Equal(t, "places for others", map[string]string{"/": "backendRefs=a.yaml:1; matches=a.yaml:1"}, placesOf(t, m, Client{}, "s"))
}

// A route of the Gateway API that counts for some clients of a variant only, as another route displaces it for the others, hides no
// rules below it.
func TestPlaces_BelowADisplacedRoute(t *testing.T) {
	t.Parallel()
	rule := func(line int, prefix string) meshpolicy.Rule {
		return meshpolicy.Rule{
			Matches: []meshpolicy.Match{{Path: policytest.Prefix(prefix), Line: line}}, Line: line,
			Lines: [meshpolicy.NumFields]int{meshpolicy.FieldTimeouts: line}, Timeouts: &meshpolicy.Timeouts{Request: new(time.Duration)},
		}
	}
	route := func(name string, clients meshpolicy.TargetRef, rules ...meshpolicy.Rule) *Policy {
		return meshpolicy.New(meshpolicy.Policy{
			Kind: meshpolicy.HTTPRouteKind, Name: name, TargetRef: clients, To: []meshpolicy.To{policytest.To("s", rules...)}, Source: Source{File: "f"},
		})
	}
	below := policytest.New("the last", meshpolicy.TargetRef{}, policytest.To("s", rule(1, "/a")))
	below.Source = Source{File: "f"}
	web := meshpolicy.TargetRef{Tags: map[string]string{meshpolicy.NamespaceTag: "web"}}
	in := Input{SourceDir: ".", Services: services("s"), Policies: []*Policy{
		below, route("producer", meshpolicy.TargetRef{}, rule(2, "/a"), rule(3, "/bb")), route("consumer", web, rule(4, "/bb")),
	}}
	m := mustBuild(t, in, nil)
	if n := len(routesOf(m, "s")); n != 1 {
		t.Fatalf("there are %d variants", n)
	}
	want := map[string]string{
		"/a": "matches=f:1, f:2; timeouts=f:1, f:2", "/a/": "matches=f:1, f:2; timeouts=f:1, f:2",
		"/bb": "matches=f:4, f:3; timeouts=f:4, f:3", "/bb/": "matches=f:4, f:3; timeouts=f:4, f:3", "/": "",
	}
	policytest.Equal(t, "places", want, placesOf(t, m, Client{}, "s"))
}
