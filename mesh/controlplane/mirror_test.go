package controlplane_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dynxds/dynxds/mesh/controlplane"
)

// mirror is a source that answers from another store: half of the demands at once, the others when it
// is notified of the next.
type mirror struct {
	t           *testing.T
	front, back *controlplane.Store

	mu sync.Mutex
	// untold are changes of back that front does not have.
	untold []func(*controlplane.Tx)
	live   map[*controlplane.Demand]struct{}
	told   int
}

// update changes back.
func (m *mirror) update(changes []func(*controlplane.Tx)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.untold = append(m.untold, changes...)
	_, err := m.back.Update(func(tx *controlplane.Tx) { apply(tx, changes) })
	return err
}

// demand brings front up to date.
func (m *mirror) demand(begun, ended []*controlplane.Demand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	late := map[*controlplane.Demand]bool{}
	for _, d := range begun {
		m.live[d] = struct{}{}
		m.told++
		late[d] = d.TypeURL != custom && m.told%2 == 0
	}
	for _, d := range ended {
		delete(m.live, d)
	}
	if _, err := m.front.Update(func(tx *controlplane.Tx) {
		apply(tx, m.untold)
		for d := range m.live {
			if !late[d] {
				m.answer(tx, d)
			}
		}
	}); err != nil {
		m.t.Error(err)
	}
	m.untold = nil
}

func (m *mirror) answer(tx *controlplane.Tx, d *controlplane.Demand) {
	if d.Collection() {
		if st := m.back.Error(d.TypeURL, d.Name); st != nil {
			tx.AnswerError(d, st)
		} else {
			tx.Answer(d, nil)
		}
		return
	}
	r, st := m.back.Choose(d.TypeURL, d.Name, d.Constraints)
	if st != nil {
		tx.AnswerError(d, st)
		return
	}
	tx.Answer(d, r)
}

// inWildcard reports whether wildcards cover a name: with a source, not those of globs.
func (s *testServer) inWildcard(name string) bool {
	return s.mirror == nil || !strings.HasPrefix(name, "xdstp:")
}

// hasOther reports whether the client subscribes to a name, or to its collection.
func (c *variantClient) hasOther(typeURL, name string) bool {
	return slices.ContainsFunc(c.subscribed(), func(h *holding) bool {
		return h.ask.typeURL == typeURL && h.ask.name != "*" && (h.ask.name == name || h.ask.covers(name))
	})
}
