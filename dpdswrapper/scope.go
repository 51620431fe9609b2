package dpdswrapper

import (
	"strings"

	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

var logger = boundlog.Component("dynxds")

// scopePhase is the state of a scope, see the package documentation.
type scopePhase int

const (
	scopeAsking scopePhase = iota
	scopeAnswered
	scopeClosed
)

// scope has the watches that depend on one DPDS resource, or on none. It is the watcher of
// that resource. Guarded by wrapper.mu.
type scope struct {
	wrapper     *wrapper
	resource    string // the name of the DPDS resource, or ""
	phase       scopePhase
	constraints dynparam.ByType // of the DPDS resource
	warned      string          // the last logged warning
	leave       func()          // stops the watch of the DPDS resource
	groups      []*group        // by type, in the order of their first watches
	watches     int
}

// group is the watches of one type in a scope, which share their constraints. Guarded by
// wrapper.mu.
type group struct {
	scope       *scope
	typ         *xdsclient.ResourceType
	constraints dynparam.Constraints
	watches     []*watch
}

func newScope(w *wrapper, resource string) *scope {
	s := &scope{wrapper: w, resource: resource}
	s.leave = w.below.ForTarget(resource).Watch(xdsresource.DynamicParameterConstraintsType, resource, s)
	return s
}

// add adds a watch and starts it, unless it has to wait.
func (s *scope) add(t *xdsclient.ResourceType, x *watch) {
	g := s.group(t)
	x.group, x.index = g, len(g.watches)
	g.watches = append(g.watches, x)
	s.watches++
	if s.phase == scopeAnswered {
		x.start()
	}
}

func (s *scope) group(t *xdsclient.ResourceType) *group {
	for _, g := range s.groups {
		if g.typ == t {
			return g
		}
	}
	g := &group{scope: s, typ: t}
	g.constraints = g.wanted()
	s.groups = append(s.groups, g)
	return g
}

// wanted returns the current constraints of the type.
func (g *group) wanted() dynparam.Constraints {
	return g.scope.wrapper.own.For(g.typ.TypeURL).Merge(g.scope.constraints.For(g.typ.TypeURL))
}

// remove removes a watch that has stopped. A scope closes with its last watch.
func (s *scope) remove(x *watch) {
	g := x.group
	last := len(g.watches) - 1
	g.watches[x.index] = g.watches[last]
	g.watches[x.index].index = x.index
	g.watches[last] = nil
	g.watches = g.watches[:last]
	if s.watches--; s.watches == 0 && s.leave != nil {
		s.phase = scopeClosed
		delete(s.wrapper.scopes, s.resource)
		s.leave()
	}
}

// review updates the constraints of the types, and returns the types whose watches have to be
// moved.
func (s *scope) review() (changed []*group) {
	for _, g := range s.groups {
		c := g.wanted()
		if c.Equal(g.constraints) {
			continue
		}
		g.constraints = c
		if s.phase == scopeAnswered && len(g.watches) > 0 {
			changed = append(changed, g)
		}
	}
	return changed
}

// ResourceChanged implements xdsclient.Watcher for the DPDS resource. An error means no
// constraints (TP2, "Server-Specified Constraints").
func (s *scope) ResourceChanged(value any, err error, done func()) {
	defer done()
	var constraints dynparam.ByType
	if err == nil {
		constraints = value.(*xdsresource.DynamicParameterConstraintsMap).Constraints
	}
	strange := strangeTypes(constraints)
	moved, warn := s.answer(constraints, strange)
	if warn {
		logger.Warningf("DPDS resource %q has constraints without effect: %s", s.resource, strange)
	}
	if err != nil {
		logger.Warningf("Resources are requested without the constraints of DPDS resource %q: %v", s.resource, err)
	}
	if moved != "" {
		logger.Infof("DPDS resource %q changed the constraints of %s", s.resource, moved)
	}
}

// AmbientError implements xdsclient.Watcher for the DPDS resource.
func (s *scope) AmbientError(err error, done func()) {
	defer done()
	logger.Warningf("DPDS resource %q keeps its constraints: %v", s.resource, err)
}

// answer sets the constraints of the DPDS resource, and the warning about their types. It
// returns the types whose constraints changed, with the new ones, and whether the warning
// has to be logged.
func (s *scope) answer(constraints dynparam.ByType, strange string) (moved string, warn bool) {
	w := s.wrapper
	w.mu.Lock()
	defer w.mu.Unlock()
	warn, s.warned = strange != "" && strange != s.warned, strange
	first := s.phase == scopeAsking
	if s.phase == scopeClosed || !first && s.constraints.Equal(constraints) {
		return "", warn
	}
	s.phase, s.constraints = scopeAnswered, constraints
	changed := s.review()
	var b strings.Builder
	for i, g := range changed {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(g.typ.Name + " to " + g.constraints.String())
	}
	if first {
		changed = s.groups
	}
	w.apply(changed)
	return b.String(), warn
}
