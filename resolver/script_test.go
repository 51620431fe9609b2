package resolver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/xdsclient"
)

// keys are the types of resources in the script.
var keys = map[string]string{"lds": "Listener", "rds": "RouteConfiguration", "cds": "Cluster", "eds": "ClusterLoadAssignment"}

// script is a fixture that testdata/graph.txt leads.
type script struct {
	*fixture
	before []string // the watches before the step
}

// TestScript runs the cases of testdata/graph.txt, which describes its steps.
func TestScript(t *testing.T) {
	t.Parallel()
	const file = "testdata/graph.txt"
	head, cases, _ := strings.Cut(golden.Read(t, file), "== ")
	got := head
	for _, c := range strings.Split(cases, "\n== ") {
		title, steps, _ := strings.Cut(c, "\n")
		t.Run(title, func(t *testing.T) {
			s := &script{fixture: newFixture(t)}
			defer s.graph.close()
			got += "== " + title + "\n"
			for line := range strings.Lines(steps) {
				step, _, _ := strings.Cut(strings.TrimSpace(line), "->")
				if step = strings.TrimSpace(step); step == "" {
					continue
				}
				got += strings.TrimRight(fmt.Sprintf("%-30s -> %s", step, s.run(strings.Fields(step))), " ") + "\n"
			}
			got += "\n"
		})
	}
	golden.Check(t, file, strings.TrimRight(got, "\n")+"\n")
}

// run makes a step and returns what follows.
func (s *script) run(words []string) string {
	s.t.Helper()
	if words[0] == "obeys" {
		s.graph.usesXDS = true
		return ""
	}
	name, args := words[1], words[2:]
	s.before = s.watched()
	s.answer(keys[words[0]]+" "+name, s.resource(words[0], name, args))
	var parts []string
	if s.see() {
		parts = append(parts, strings.ReplaceAll(s.describe(), "\n", " "))
	}
	after := s.watched()
	parts = append(parts, onlyIn("+", after, s.before)...)
	parts = append(parts, onlyIn("-", s.before, after)...)
	return strings.Join(parts, "  ")
}

// onlyIn lists the watches that a has and b has not.
func onlyIn(sign string, a, b []string) (list []string) {
	for _, key := range a {
		if slices.Contains(b, key) {
			continue
		}
		for short, typ := range keys {
			if rest, ok := strings.CutPrefix(key, typ+" "); ok {
				list = append(list, sign+short+" "+rest)
			}
		}
	}
	return list
}

// resource returns what a step answers a watch with.
func (s *script) resource(typ, name string, args []string) any {
	switch args[0] {
	case "deleted", "broken":
		return errors.New(args[0])
	case "missing":
		return &xdsclient.Error{Kind: xdsclient.KindDoesNotExist, Resource: name, Err: errors.New("missing")}
	case "invalid":
		return failure(xdsclient.KindInvalid, "invalid")
	case "unreachable":
		return unreachable(name)
	case "late", "late-but-there":
		return late(name, args[0] != "late")
	}
	switch {
	case typ == "lds" && args[0] == "inline":
		return &xdsresource.Listener{Name: "L", RouteConfig: routes("inline", args[1:]...)}
	case typ == "lds":
		return toRDS(args[0])
	case typ == "rds" && args[0] == "elsewhere":
		rc := routes(name, args[1:]...)
		rc.VirtualHosts[0].Domains = args[:1]
		return rc
	case typ == "rds":
		return routes(name, args...)
	case typ == "eds":
		return endpoints(name, args[0])
	}
	switch rest := args[1:]; args[0] {
	case "static":
		return inlined(name, static, rest...)
	case "aggregate":
		return aggregate(rest...)
	case "tls":
		return securedEDS(rest[0])
	case "accepts":
		return accepting(s.t.(*testing.T), rest[0], rest[1:]...)
	default:
		return eds(rest[0])
	}
}
