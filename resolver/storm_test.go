package resolver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// storm gives the watches of a graph answers at random, and remembers the last answers.
type storm struct {
	*fixture
	random *rand.Rand
	last   map[string]any
	events []string
}

func (s *storm) pick(names ...string) string { return names[s.random.IntN(len(names))] }

// answerTo returns an answer for a resource, and what it is in a word.
func (s *storm) answerTo(key string) (any, string) {
	typ, name, _ := strings.Cut(key, " ")
	n := s.random.IntN(12)
	switch {
	case n == 0 && typ != "Listener":
		return failure(xdsclient.KindDoesNotExist, "missing"), "missing"
	case n == 1 && typ != "Listener":
		return unreachable(name), "unreachable"
	}
	switch typ {
	case "Listener":
		r := s.pick("R1", "R2")
		return toRDS(r), r
	case "RouteConfiguration":
		to := []string{s.pick("a", "b", "c"), s.pick("a", "b", "c", "top")}
		slices.Sort(to)
		return routes(name, slices.Compact(to)...), fmt.Sprint(to)
	case "Cluster":
		service := s.pick(name, "x", "y")
		switch {
		case name == "top" && n < 10:
			under := []string{s.pick("a", "b"), s.pick("b", "c")}
			slices.Sort(under)
			under = slices.Compact(under)
			return aggregate(under...), fmt.Sprint(under)
		case n < 7:
			return securedEDS(service), "secured, " + service
		default:
			return eds(service), "plain, " + service
		}
	default:
		return endpoints(name, s.pick("1", "2")), "endpoints"
	}
}

func (s *storm) step() {
	watched := s.watched()
	key := watched[s.random.IntN(len(watched))]
	answer, word := s.answerTo(key)
	s.events = append(s.events, key+": "+word)
	s.last[key] = answer
	s.answer(key, answer)
}

// plaintext returns the clusters that RPCs reach without security although their last Cluster
// asks for it.
func (s *storm) plaintext() (names []string) {
	check := func(name string, c *balancer.ClusterState) {
		asks, _ := s.last["Cluster "+name].(*xdsresource.Cluster)
		if c.Endpoints != nil && c.Cluster.Security == nil && asks != nil && asks.Security != nil && len(s.watches["Cluster "+name]) > 0 {
			names = append(names, name)
		}
	}
	snapshot := s.graph.snapshot(false)
	for name, c := range snapshot.clusters.All {
		check(name, c)
		if c.Underlying != nil {
			for under, u := range c.Underlying.States.All {
				check(name+"/"+under, u)
				check(under, u)
			}
		}
	}
	return names
}

// settle gives every watch a good answer.
func (s *storm) settle() {
	answered := map[xdsclient.Watcher]bool{}
	for again := true; again; {
		again = false
		for _, key := range s.watched() {
			fresh := false
			for _, w := range s.watches[key] {
				fresh = fresh || !answered[w]
				answered[w] = true
			}
			if !fresh {
				continue
			}
			again = true
			typ, name, _ := strings.Cut(key, " ")
			var answer any
			switch {
			case typ == "Listener":
				answer = toRDS("R1")
			case typ == "RouteConfiguration":
				answer = routes(name, "a", "top")
			case name == "top" && typ == "Cluster":
				answer = aggregate("a", "b")
			case name == "a" && typ == "Cluster":
				answer = securedEDS("x")
			case typ == "Cluster":
				answer = eds(name)
			default:
				answer = endpoints(name, name+"9")
			}
			s.answer(key, answer)
		}
	}
}

// In whatever order answers arrive: no RPC goes in plaintext to a cluster that asks for security, as
// far as the channel knows; a build of all clusters finds nothing that one of the touched clusters has missed; and what good answers
// lead to in the end does not depend on those before.
func TestAnswersInAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		f := newFixture(t)
		s := &storm{fixture: f, random: rand.New(rand.NewPCG(seed, 1)), last: map[string]any{}}
		s.graph.usesXDS = true
		for range 60 {
			s.step()
			if names := s.plaintext(); len(names) > 0 {
				t.Fatalf("seed %d: plaintext to %q in %s after\n%s", seed, names, s.describe(), strings.Join(s.events, "\n"))
			}
			watched, built := s.watched(), s.graph.snapshot(false)
			s.graph.whole = s.graph.whole || s.random.IntN(3) == 0
			if s.graph.snapshot(false) != built || !slices.Equal(s.watched(), watched) {
				t.Fatalf("seed %d: %q, not %q, or another snapshot, after\n%s", seed, s.watched(), watched, strings.Join(s.events, "\n"))
			}
		}
		s.settle()
		got := s.describe()
		f.graph.close()
		if got != "R1: a=x9 top=[a=x9 b=b9]" {
			t.Fatalf("seed %d: got %s after\n%s", seed, got, strings.Join(s.events, "\n"))
		}
	}
}
