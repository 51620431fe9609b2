package meshroute

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// The policies of one author cost nobody else anything, however many kinds of clients they tell apart: clients whom they are not
// for get what they got without them, and so do clients of the author's own services from older policies.
func TestKinds(t *testing.T) {
	t.Parallel()
	var serial int
	policy := func(author, service string, tags map[string]string) *Policy {
		serial++
		name := fmt.Sprint(author, serial)
		rule := meshpolicy.Rule{Matches: policytest.On(policytest.Exact("/p.S/" + name)), Filters: []meshpolicy.Filter{policytest.SetHeader("x", name)}}
		tags[meshpolicy.NamespaceTag] = author
		p := *policytest.New(name, TargetRef{Tags: tags}, policytest.To(service, rule))
		p.Author, p.Created = author, int64(serial)
		return meshpolicy.New(p)
	}
	in := Input{Services: services("s", "t"), Separate: true}
	for i := range 30 {
		for _, author := range []string{"a", "b"} {
			in.Policies = append(in.Policies, policy(author, "s", map[string]string{"zone": fmt.Sprint(i)}))
		}
	}
	before := mustBuild(t, in, nil)
	hostile := in.clone()
	for i := range 40 {
		for _, key := range []string{"zone", "node", "pod"} {
			hostile.Policies = append(hostile.Policies, policy("a", []string{"s", ""}[i%2], map[string]string{key: fmt.Sprint("x", i)}))
		}
	}
	after := mustBuild(t, hostile, before)
	for i := range 30 {
		for _, author := range []string{"", "a", "b", "c"} {
			for _, service := range []string{"s", "t"} {
				c := Client{Tags: map[string]string{meshpolicy.NamespaceTag: author, "zone": fmt.Sprint(i)}}
				want := before.Routes(c, service)
				if got := after.Routes(c, service); describe(got) != describe(want) {
					t.Fatalf("%v gets %v of %s, want %v", c, got, service, want)
				}
				xdstest.Equal(t, "what is chosen by constraints", describe(want), describe(choose(t, c, after.Keys(), routesOf(after, service))))
			}
		}
	}
	reports := slices.DeleteFunc(after.Reports(), func(r Report) bool { return !r.LeftOut })
	if len(reports) == 0 || slices.ContainsFunc(reports, func(r Report) bool { return r.Policy[0] != 'a' }) {
		t.Errorf("what is left out is %v", reports)
	}
	xdstest.Equal(t, "reports of a build from nothing", mustBuild(t, hostile, nil).Reports(), after.Reports())
}

// The kinds of clients are counted as they are made.
func TestKinds_Count(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		k := noKinds()
		var parts []*meshpolicy.To
		for _, p := range policytest.Policies(r, 6) {
			for to := range p.To {
				if parts = append(parts, &p.To[to]); !k.add(&p.To[to], bound{1 << 20, 1 << 20}) {
					t.Fatal("the bound is not that large")
				}
			}
		}
		rules := make(map[string]int) // by the kinds
		for _, c := range policytest.Clients() {
			tags, n := make(map[string]string), 0
			for _, p := range parts {
				if p.Clients.Selects(c) {
					n += len(p.Rules)
					maps.Copy(tags, conditionOf(p.Clients).tags())
				}
			}
			rules[meshpolicy.FormatTags(tags)] = n
		}
		got := make(map[string]int)
		for _, one := range k.list {
			got[one.String()] = one.rules
		}
		xdstest.Equal(t, "rules by kinds", rules, got)
	}
}
