package dpdswrapper_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// script is a fixture that testdata/watches.txt leads.
type script struct {
	*fixture
	above map[string]*crowd // the watchers of the layer above, by type and name
	stops map[string]func()
	below map[string][]*fakeWatch // all that there were
}

// TestScript runs the cases of testdata/watches.txt, which describes its steps.
func TestScript(t *testing.T) {
	golden.Scripts(t, "testdata/watches.txt", 36, func(t testing.TB) func(string) string {
		s := &script{above: map[string]*crowd{}, stops: map[string]func(){}, below: map[string][]*fakeWatch{}}
		return func(step string) string {
			if s.fixture == nil {
				s.fixture = newFixture(t, bootstraps[step]...)
			}
			return s.run(strings.Fields(step))
		}
	})
}

// bootstraps are what the bootstrap has, by the first step.
var bootstraps = map[string][]string{
	"bootstrap with dpds":         {authorities},
	"bootstrap with dpds and own": {authorities, ownConstraints},
}

const ownConstraints = `
	"node": {"metadata": {"env": "prod", "zone": "z1", "other": "x"}},
	"node_metadata_constraints": ["env", "zone"],
	"dynamic_parameter_constraints": {
		"*": {"key_constraints": {"zone": {"constraints": [{"value": "z2"}]}}},
		"` + clusterType + `": {"key_constraints": {"shard": {"constraints": [{"value": "1"}]}}}
	}`

var types = map[string]*xdsclient.ResourceType{"Listener": xdsresource.ListenerType, "Cluster": xdsresource.ClusterType}

// long returns the name that a step means: "a/l" is one of authority a.
func long(typ, short string) string {
	if authority, id, ok := strings.Cut(short, "/"); ok && !strings.Contains(short, ":") {
		return "xdstp://" + authority + "/" + types[typ].TypeURL[strings.LastIndexByte(types[typ].TypeURL, '/')+1:] + "/" + id
	}
	return short
}

// answers are what may come from below in place of a value.
var answers = map[string]error{
	"missing": errDoesNotExist, "not-found": errNotFound, "denied": errDenied, "internal": errInternal, "invalid": errInvalid,
	"unreachable": errUnreachable, "timeout": errTimeout, "refused": errRefused,
}

// run makes a step and returns what follows: the calls of the client below, and, behind "|", those of the watchers above.
func (s *script) run(words []string) string {
	s.t.Helper()
	s.act(words)
	for _, w := range s.live {
		if key := w.typ.Name + " " + w.name; len(s.below[key]) == 0 || s.below[key][len(s.below[key])-1] != w {
			s.below[key] = append(s.below[key], w)
		}
	}
	parts := s.log
	s.log = nil
	for key, w := range s.above {
		for _, call := range w.calls {
			parts = append(parts, "| "+key+": "+call)
		}
		w.calls = nil
	}
	return strings.NewReplacer("/"+listenerType+"/", "/", "/"+clusterType+"/", "/", "xdstp://", "").Replace(strings.Join(parts, "  "))
}

// act makes a step.
func (s *script) act(words []string) {
	s.t.Helper()
	switch words[0] {
	case "bootstrap":
	case "target":
		s.Client = s.wrapper.ForTarget(words[1])
	case "hold":
		s.held = true
	case "program":
		s.wrapper.SetConstraints(constraints(words[1:]))
	case "dpds":
		s.answerDPDS(words[1], words[2:])
	default:
		s.step(words[0], words[1], words[2], words[3:])
	}
}

// constraints of several types, each followed by keys with exact values.
func constraints(words []string) dynparam.ByType {
	all := map[string]dynparam.Constraints{}
	typ := ""
	for _, word := range words {
		key, value, pair := strings.Cut(word, "=")
		switch {
		case !pair && word == "*":
			typ = word
		case !pair:
			typ = map[string]string{"Listener": listenerType, "Cluster": clusterType}[word]
		default:
			all[typ] = all[typ].Merge(exact(key, value))
		}
	}
	return byType(all)
}

func (s *script) answerDPDS(id string, words []string) {
	s.t.Helper()
	if words[0] == "late" {
		for key, all := range s.below {
			if strings.HasSuffix(key, "/"+id) {
				all[len(all)-1].change(&xdsresource.DynamicParameterConstraintsMap{}, nil)
			}
		}
		return
	}
	w := s.find("DPDS " + id)
	err, failed := answers[words[0]]
	switch {
	case failed:
		w.change(nil, err)
	case words[0] == "ambient":
		w.ambient(answers[words[1]])
	default:
		s.dpds(id, constraints(words))
	}
}

// step makes a step for a resource or collection of the given type and name.
func (s *script) step(what, typ, short string, args []string) {
	s.t.Helper()
	key := typ + " " + long(typ, short)
	what, old := strings.CutPrefix(what, "late-")
	var below *fakeWatch
	if all := s.below[key]; old {
		below = all[len(all)-2]
	} else if len(all) > 0 {
		below = all[len(all)-1]
	}
	switch what {
	case "watch":
		s.above[key] = new(crowd)
		s.above[key].held = &s.held
		if strings.HasSuffix(short, "*") {
			s.stops[key] = s.WatchCollection(types[typ], long(typ, short), s.above[key])
		} else {
			s.stops[key] = s.Watch(types[typ], long(typ, short), (*above)(s.above[key]))
		}
	case "stop":
		s.stops[key]()
	case "then":
		s.above[key].after = func() { s.act(args) }
	case "done":
		i, err := strconv.Atoi(args[0])
		xdstest.NoError(s.t, err)
		s.above[key].dones[i]()
	case "answer":
		if err, failed := answers[args[0]]; failed {
			below.change(nil, err)
		} else {
			below.change(args[0], nil)
		}
	case "ambient":
		below.ambient(answers[args[0]])
	case "whole":
		below.collectionChanged(answers[args[0]])
	case "member":
		s.answerMember(below, args)
	}
}

// answerMember answers for a member: its ID, its parameters, and a value, an error or an ambient error.
func (s *script) answerMember(below *fakeWatch, args []string) {
	s.t.Helper()
	answer := args[len(args)-1]
	var pairs []string
	for _, word := range args[1:] {
		if key, value, ok := strings.Cut(word, "="); ok {
			pairs = append(pairs, key, value)
		}
	}
	m := member(args[0], pairs...)
	switch err, failed := answers[answer]; {
	case args[len(args)-2] == "ambient":
		below.once(func(done func()) { below.collection.AmbientError(m, err, done) })
	case failed:
		below.memberChanged(m, nil, err)
	default:
		below.memberChanged(m, answer, nil)
	}
}
