package dpdswrapper

import (
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

var logger = boundlog.Component("dynxds")

// scope has the watches that depend on one DPDS resource, or on none. It is the watcher of
// that resource. Guarded by wrapper.mu.
type scope struct {
	wrapper  *wrapper
	answered bool     // so that watches have started; see the package documentation
	watches  []*watch // none: the scope is closed
	// all has the constraints of watches by type: the client's own, merged with the DPDS resource's.
	all dynparam.ByType

	// Of the DPDS resource, if there is one:
	resource    string // its name, or ""
	constraints dynparam.ByType
	leave       func() // stops its watch
}

func newScope(w *wrapper, resource string) *scope {
	if resource == "" {
		return &scope{wrapper: w, all: w.own, answered: true}
	}
	s := &scope{wrapper: w, all: w.own, resource: resource}
	s.leave = w.below.WatchLocator(xdsresource.DynamicParameterConstraintsType, resource, dynparam.Constraints{}, s)
	return s
}

// add adds a watch and starts it, unless it has to wait.
func (s *scope) add(x *watch) {
	x.scope, x.index = s, len(s.watches)
	s.watches = append(s.watches, x)
	if s.answered {
		x.start(s.wanted(x.typ))
	}
}

// wanted returns the current constraints of a type.
func (s *scope) wanted(t *xdsclient.ResourceType) dynparam.Constraints { return s.all.For(t.TypeURL) }

// due returns the watches that have to start or to move, after a change of constraints.
func (s *scope) due() (list []*watch) {
	s.all = s.wrapper.own.Merge(s.constraints)
	if !s.answered {
		return nil
	}
	for _, x := range s.watches {
		if x.leg == nil || !x.leg.constraints.Equal(s.wanted(x.typ)) {
			list = append(list, x)
		}
	}
	return list
}

// remove removes a watch that has stopped. A scope with a DPDS resource closes with its last watch.
func (s *scope) remove(x *watch) {
	last := len(s.watches) - 1
	s.watches[x.index] = s.watches[last]
	s.watches[x.index].index = x.index
	s.watches[last] = nil
	s.watches = s.watches[:last]
	x.index = -1
	if last == 0 && s.leave != nil {
		delete(s.wrapper.scopes, s.resource)
		s.leave()
	}
}

// ResourceChanged implements xdsclient.Watcher for the DPDS resource. An error means no
// constraints (TP2, "Server-Specified Constraints").
func (s *scope) ResourceChanged(value any, err error, done func()) {
	defer done()
	var constraints dynparam.ByType
	if err == nil {
		constraints = value.(*xdsresource.DynamicParameterConstraintsMap).Constraints
	}
	now := s.answer(constraints)
	if err != nil {
		logger.Warningf("Resources are requested without the constraints of DPDS resource %q: %v", s.resource, err)
	}
	if len(now) > 0 {
		slices.Sort(now)
		logger.Infof("DPDS resource %q: the constraints now are %s", s.resource, strings.Join(now, ", "))
	}
}

// AmbientError implements xdsclient.Watcher for the DPDS resource.
func (s *scope) AmbientError(err error, done func()) {
	defer done()
	logger.Warningf("DPDS resource %q keeps its constraints: %v", s.resource, err)
}

// answer sets the constraints of the DPDS resource. It returns the constraints of all types if watches have started or
// moved.
func (s *scope) answer(constraints dynparam.ByType) (now []string) {
	w := s.wrapper
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(s.watches) == 0 || s.answered && s.constraints.Equal(constraints) {
		return nil
	}
	s.answered, s.constraints = true, constraints
	due := s.due()
	w.start(due)
	if len(due) == 0 {
		return nil
	}
	told := make(map[*xdsclient.ResourceType]bool)
	for _, x := range s.watches {
		if !told[x.typ] {
			told[x.typ], now = true, append(now, x.typ.Name+" "+s.wanted(x.typ).String())
		}
	}
	return now
}
