package controlplane

import (
	"slices"
	"strings"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// slot has the variants stored under one name, in the order of their keys. Store.mu guards it.
type slot struct {
	entries []*entry
	// parameters are those of the entries.
	parameters []dynparam.Parameters
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
		return strings.Compare(e.parameters().Key(), key)
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

// clone returns a copy that apply does not change.
func (s *slot) clone() *slot {
	if s == nil {
		return nil
	}
	return &slot{slices.Clone(s.entries), slices.Clone(s.parameters)}
}

// apply carries out the changes of a draft.
func (s *slot) apply(changes []variantChange) {
	for _, c := range changes {
		i, found := s.search(c.key)
		switch {
		case c.now == nil:
			s.entries, s.parameters = slices.Delete(s.entries, i, i+1), slices.Delete(s.parameters, i, i+1)
		case found:
			s.entries[i] = c.now
		default:
			s.entries = slices.Insert(s.entries, i, c.now)
			s.parameters = slices.Insert(s.parameters, i, c.now.parameters())
		}
	}
}

// variantChange is the change of one variant. One of old and now may be nil.
type variantChange struct {
	key      string
	old, now *entry
}

// touches reports whether the change is visible to a subscription with the constraints.
func (c variantChange) touches(constraints dynparam.Constraints) bool {
	of := c.now
	if of == nil {
		of = c.old
	}
	return constraints.Match(of.parameters())
}

// draft is the change that an update makes to one name.
type draft struct {
	// replaced is set if variants that the update does not set are deleted.
	replaced bool
	// variants are by the key of their parameters, nil for deleted ones.
	variants map[string]*entry
}

// set stores a variant. It ends an error that replaces all variants.
func (d *draft) set(e *entry) {
	if none := d.variants[""]; none != nil && none.whole {
		delete(d.variants, "")
		d.replaced = true
	}
	d.variants[e.parameters().Key()] = e
}

func (d *draft) delete(parameters string) { d.variants[parameters] = nil }

// replace replaces all variants by e, which may be nil.
func (d *draft) replace(e *entry) {
	d.replaced = true
	clear(d.variants)
	if e != nil {
		d.variants[e.parameters().Key()] = e
	}
}

// sets reports whether the draft sets a variant.
func (d *draft) sets() bool {
	for _, e := range d.variants {
		if e != nil {
			return true
		}
	}
	return false
}

// changes returns the difference of the draft to what is stored, in the order of the keys.
func (d *draft) changes(s *slot) []variantChange {
	var changes []variantChange
	add := func(key string, old, now *entry) {
		if !old.sameBytes(now) {
			changes = append(changes, variantChange{key, old, now})
		}
	}
	for key, now := range d.variants {
		add(key, s.variant(key), now)
	}
	ended := s.inError() && d.sets()
	if s != nil && (d.replaced || ended) {
		for _, old := range s.entries {
			key := old.parameters().Key()
			if _, ok := d.variants[key]; !ok {
				add(key, old, nil)
			}
		}
	}
	slices.SortFunc(changes, func(a, b variantChange) int { return strings.Compare(a.key, b.key) })
	return changes
}
