package controlplane

import (
	"slices"
	"strings"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// slot has the variants stored under one name, in the order of their keys. A slot in the store is replaced, and never changed.
type slot struct {
	entries []*entry
	// parameters are those of the entries.
	parameters []dynparam.Parameters
}

// slotOf returns a slot with those of the entries that are not nil.
func slotOf(entries ...*entry) *slot {
	s := new(slot)
	for _, e := range entries {
		if e != nil {
			s.set(e)
		}
	}
	return s
}

// inError reports whether an error replaces all variants.
func (s *slot) inError() bool { return s != nil && len(s.entries) == 1 && s.entries[0].whole }

func (s *slot) variant(parameters string) *entry {
	if i, ok := s.search(parameters); ok {
		return s.entries[i]
	}
	return nil
}

func (s *slot) search(parameters string) (int, bool) {
	if s == nil {
		return 0, false
	}
	return slices.BinarySearchFunc(s.entries, parameters, func(e *entry, key string) int {
		return strings.Compare(e.key(), key)
	})
}

// choose returns the entry for a subscription to the name, nil if none matches, and whether TP2
// leaves the choice open.
func (s *slot) choose(c dynparam.Constraints) (chosen *entry, ambiguous bool) {
	if s == nil {
		return nil, false
	}
	choice := c.Choose(s.parameters)
	if choice.Index < 0 {
		return nil, false
	}
	return s.entries[choice.Index], choice.Rival >= 0
}

// clone returns a copy to be changed.
func (s *slot) clone() *slot {
	if s == nil {
		return new(slot)
	}
	return &slot{slices.Clone(s.entries), slices.Clone(s.parameters)}
}

// set stores a variant, in place of an error that replaces all variants.
func (s *slot) set(e *entry) {
	if s.inError() {
		*s = slot{}
	}
	i, found := s.search(e.key())
	if found {
		s.entries[i] = e
		return
	}
	s.entries, s.parameters = slices.Insert(s.entries, i, e), slices.Insert(s.parameters, i, e.parameters())
}

func (s *slot) delete(parameters string) {
	if i, found := s.search(parameters); found {
		s.entries, s.parameters = slices.Delete(s.entries, i, i+1), slices.Delete(s.parameters, i, i+1)
	}
}

// variantChange is the change of one variant. One of old and now may be nil.
type variantChange struct{ old, now *entry }

// changes returns what differs from a slot, which may be nil, that this one replaces. Variants that do not differ stay the old ones.
func (s *slot) changes(old *slot) (changes []variantChange) {
	var was []*entry
	if old != nil {
		was = old.entries
	}
	for i, now := range s.entries {
		if len(was) > 0 && was[0] == now { // as most are, of many: their keys need not be compared
			was = was[1:]
			continue
		}
		for len(was) > 0 && was[0].key() < now.key() {
			changes, was = append(changes, variantChange{old: was[0]}), was[1:]
		}
		var before *entry
		if len(was) > 0 && was[0].key() == now.key() {
			before, was = was[0], was[1:]
		}
		if before.sameBytes(now) {
			s.entries[i] = before
		} else {
			changes = append(changes, variantChange{before, now})
		}
	}
	for _, gone := range was {
		changes = append(changes, variantChange{old: gone})
	}
	return changes
}
