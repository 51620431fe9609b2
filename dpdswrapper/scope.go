package dpdswrapper

import (
	"strings"

	"google.golang.org/grpc/grpclog"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

var logger = grpclog.Component("dynxds")

// scopePhase says how a scope stands with its DPDS resource; see the package's
// documentation.
type scopePhase int

const (
	scopeAsking scopePhase = iota
	scopeAnswered
	scopeClosed
)

// scope is what has the constraints of one DPDS resource, or of none. It is the
// watcher of that resource. Guarded by Wrapper.mu.
type scope struct {
	wrapper *Wrapper
	// resource is the name of the DPDS resource. It is empty if there is none.
	resource string
	phase    scopePhase
	// constraints are those of the DPDS resource.
	constraints dynparam.ByType
	// warned is what the log said last of the types of constraints.
	warned string
	// leave stops to watch the DPDS resource.
	leave func()
	// groups are the types in the order of their first watches, which is that of
	// their dependencies.
	groups  []*group
	watches int
}

// group is the watches of one type in a scope, which have the same constraints.
// Guarded by Wrapper.mu.
type group struct {
	scope       *scope
	typ         *xdsclient.ResourceType
	constraints dynparam.Constraints
	watches     []*watch
}

func newScope(w *Wrapper, resource string) *scope {
	s := &scope{wrapper: w, resource: resource}
	s.leave = w.below.ForTarget(resource).Watch(xdsresource.DynamicParameterConstraintsType, resource, s)
	return s
}

// add takes a watch in and starts it, if it does not have to wait.
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

// wanted returns the constraints that a type has to have.
func (g *group) wanted() dynparam.Constraints {
	return g.scope.wrapper.own.For(g.typ.TypeURL).Merge(g.scope.constraints.For(g.typ.TypeURL))
}

// remove lets go of a watch that has stopped. With its last watch a scope closes.
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

// review brings the constraints of the types up to date and returns those whose
// watches have to be started or moved for it.
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

// ResourceChanged implements xdsclient.Watcher for the DPDS resource. If there is
// none, its constraints are none (TP2, "Server-Specified Constraints").
func (s *scope) ResourceChanged(value any, err error, done func()) {
	defer done()
	var constraints dynparam.ByType
	if err == nil {
		constraints = value.(*xdsresource.DynamicParameterConstraintsMap).Constraints
	}
	strange := strangeTypes(constraints)
	moved, news := s.answer(constraints, strange)
	if news && strange != "" {
		logger.Warningf("DPDS resource %q has constraints that choose nothing: %s", s.resource, strange)
	}
	if err != nil {
		logger.Warningf("Resources are asked for without the constraints of DPDS resource %q: %v", s.resource, err)
	}
	if moved != "" {
		logger.Infof("DPDS resource %q changed the constraints of %s", s.resource, moved)
	}
}

// AmbientError implements xdsclient.Watcher for the DPDS resource.
func (s *scope) AmbientError(err error, done func()) {
	defer done()
	logger.Warningf("The constraints of DPDS resource %q stay as they were: %v", s.resource, err)
}

// answer takes the constraints of the DPDS resource, and what is to be said of their
// types. It returns the types whose constraints changed, with the new ones, and whether
// there is something else to be said than the last time.
func (s *scope) answer(constraints dynparam.ByType, strange string) (moved string, news bool) {
	w := s.wrapper
	w.mu.Lock()
	defer w.mu.Unlock()
	news, s.warned = strange != s.warned, strange
	first := s.phase == scopeAsking
	if s.phase == scopeClosed || !first && s.constraints.Equal(constraints) {
		return "", news
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
	return b.String(), news
}
