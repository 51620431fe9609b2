package meshroute

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// scaleText is 2,000 policies for 1,000 services: one by the owner and one by a
// consumer for each.
func scaleText() string {
	var b strings.Builder
	for i := range 1_000 {
		fmt.Fprintf(&b, `name: owner-%[1]d
spec:
  targetRef: {kind: Mesh}
  to:
  - targetRef: {kind: MeshService, name: s%[1]d}
    rules:
    - matches: [{path: {type: Prefix, value: /p.S}}]
      filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: x-owner, value: "%[1]d"}]}}]
      backendRefs:
      - {kind: MeshServiceSubset, name: s%[1]d, tags: {version: v1}, weight: 90}
      - {kind: MeshServiceSubset, name: s%[1]d, tags: {version: v2}, weight: 10}
---
name: consumer-%[1]d
spec:
  targetRef: {kind: MeshServiceSubset, name: s%[2]d, tags: {env: dev}}
  to:
  - targetRef: {kind: MeshService, name: s%[1]d}
    default:
      rules:
      - matches: [{path: {type: Prefix, value: /p.S}, headers: [{name: env, type: Exact, value: dev}]}]
        filters: [{type: RequestHeaderModifier, requestHeaderModifier: {add: [{name: env, value: dev}]}}]
        backendRefs: [{kind: MeshServiceSubset, name: s%[1]d, tags: {version: v2}}]
---
`, i, (i+1)%1_000)
	}
	return b.String()
}

func scaleInput(b *testing.B) Input {
	in := Input{Policies: policytest.Parse(b, "scale.yaml", scaleText()), Authority: "xds.example.com"}
	for i := range 1_000 {
		s := service(fmt.Sprintf("s%d", i))
		s.Endpoints = nil
		for j := range 10 {
			s.Endpoints = append(s.Endpoints, Endpoint{Address: fmt.Sprintf("10.0.%d.%d:80", i%250, j), Tags: map[string]string{"version": fmt.Sprintf("v%d", j%2+1)}})
		}
		in.Services = append(in.Services, s)
	}
	return in
}

func BenchmarkParse_2000Policies(b *testing.B) {
	text := []byte(scaleText())
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("scale.yaml", text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBuild_1000Services2000Policies(b *testing.B) {
	in := scaleInput(b)
	b.Run("from nothing", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			mustBuild(b, in, nil)
		}
	})
	placed := in
	placed.SourceDir = "."
	b.Run("from nothing, with places", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			mustBuild(b, placed, nil)
		}
	})
	b.Run("all policies moved, with places", func(b *testing.B) {
		m := mustBuild(b, placed, nil)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			moved := policytest.Parse(b, "scale.yaml", strings.Repeat("\n", 1+i%2)+scaleText())
			placed.Policies = moved
			b.StartTimer()
			next := mustBuild(b, placed, m)
			if changed, _ := next.Changes(m); len(changed) < 2_000 {
				b.Fatalf("%d changed", len(changed))
			}
			m = next
		}
	})
}

// One service for which each of 2,000 clients has a policy of its own.
func BenchmarkBuild_2000PoliciesForOneService(b *testing.B) {
	in := Input{Services: services("s"), SourceDir: "."}
	for i := range 2_000 {
		rule := meshpolicy.Rule{Matches: policytest.On(policytest.Prefix("/p.S")), Filters: []meshpolicy.Filter{policytest.SetHeader("x", fmt.Sprint(i))}}
		in.Policies = append(in.Policies, policytest.New(fmt.Sprint("p", i), TargetRef{Name: fmt.Sprint("c", i)}, policytest.To("s", rule)))
	}
	b.ReportAllocs()
	for b.Loop() {
		if m := mustBuild(b, in, nil); len(routesOf(m, "s")) != 2_001 {
			b.Fatal("wrong number of variants")
		}
	}
}

// One Service with hundreds of routes of the Gateway API, of its own namespace and of as many others.
func BenchmarkBuild_600RoutesForOneService(b *testing.B) {
	in := Input{Services: services("s"), SourceDir: "."}
	for i := range 300 {
		rule := meshpolicy.Rule{Matches: policytest.On(policytest.Prefix(fmt.Sprint("/p", i))), Filters: []meshpolicy.Filter{policytest.SetHeader("x", fmt.Sprint(i))}}
		for name, ref := range map[string]TargetRef{"producer": {}, "consumer": {Tags: map[string]string{meshpolicy.NamespaceTag: fmt.Sprint("n", i)}}} {
			in.Policies = append(in.Policies, meshpolicy.New(meshpolicy.Policy{
				Kind: meshpolicy.HTTPRouteKind, Name: fmt.Sprint(name, i), To: []meshpolicy.To{{Clients: ref, TargetRef: TargetRef{Name: "s"}, Rules: []meshpolicy.Rule{rule}}},
			}))
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if m := mustBuild(b, in, nil); len(routesOf(m, "s")) != 301 {
			b.Fatalf("%d variants", len(routesOf(m, "s")))
		}
	}
}

// A mesh of 5,000 Services of Kubernetes, of ten endpoints each, to which one Service, or a policy for one, is added.
func BenchmarkBuildAgain_5000Services(b *testing.B) {
	in := Input{SourceDir: ".", Policies: policytest.Parse(b, "p", "name: p\nspec: {to: [{targetRef: {kind: MeshService, name: s7}, rules: [{filters: []}]}]}\n")}
	add := func(i int) {
		name := fmt.Sprint("s", i)
		s := &Service{Name: name, Source: Source{File: name}, Aliases: []Alias{{Name: name + ".svc.cluster.local"}, {Name: name, Namespace: "shop"}}}
		for j := range 10 {
			s.Endpoints = append(s.Endpoints, Endpoint{Address: fmt.Sprintf("10.0.%d.%d:80", i%256, j)})
		}
		in.Services = append(in.Services, s)
	}
	for i := range 5000 {
		add(i)
	}
	first := mustBuild(b, in, nil)
	run := func(name string) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				next := mustBuild(b, in, first)
				if changed, removed := next.Changes(first); len(changed) == 0 || len(removed) > 0 {
					b.Fatalf("%d changed, %d removed", len(changed), len(removed))
				}
			}
		})
	}
	one := in.Services[2500]
	changed := *one
	changed.Endpoints = changed.Endpoints[1:]
	in.Services[2500] = &changed
	run("an endpoint")
	in.Services[2500] = one
	add(5000)
	run("a Service")
	in.Services = in.Services[:5000]
	in.Policies = append(in.Policies, policytest.Parse(b, "q", "name: q\nspec: {to: [{targetRef: {kind: MeshService, name: s8}, rules: [{filters: []}]}]}\n")...)
	run("a policy")
}
