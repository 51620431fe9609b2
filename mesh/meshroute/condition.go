package meshroute

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// condition is the tags that clients must have, ordered by key.
type condition []tag

type tag struct{ key, value string }

// conditionOf returns what a policy requires of clients.
func conditionOf(r TargetRef) condition {
	c := make(condition, 0, len(r.Tags)+1)
	for key, value := range r.Tags {
		c = append(c, tag{key, value})
	}
	if r.Name != "" {
		c = append(c, tag{meshpolicy.ServiceKey, r.Name})
	}
	slices.SortFunc(c, func(a, b tag) int { return strings.Compare(a.key, b.key) })
	return c
}

// String is equal for equal conditions only.
func (c condition) String() string { return meshpolicy.FormatTags(c.tags()) }

func (c condition) tags() map[string]string {
	all := make(map[string]string, len(c))
	for _, t := range c {
		all[t.key] = t.value
	}
	return all
}

// implies reports whether clients with the tags have those of another condition.
func (c condition) implies(o condition) bool {
	for _, t := range c {
		if len(o) > 0 && t == o[0] {
			o = o[1:]
		}
	}
	return len(o) == 0
}

// and returns the condition of clients with the tags of both, or false if there can be none.
func (c condition) and(o condition) (both condition, ok bool) {
	for len(c) > 0 && len(o) > 0 {
		switch {
		case c[0] == o[0]:
			both, c, o = append(both, c[0]), c[1:], o[1:]
		case c[0].key == o[0].key:
			return nil, false
		case c[0].key < o[0].key:
			both, c = append(both, c[0]), c[1:]
		default:
			both, o = append(both, o[0]), o[1:]
		}
	}
	return slices.Concat(both, c, o), true
}

// specificity has a bit for each key, which is set if it is in the condition.
func (c condition) specificity(keys []string) (number uint64) {
	for _, t := range c {
		number |= 1 << (len(keys) - 1 - slices.Index(keys, t.key))
	}
	return number
}

// keysOf returns the keys of conditions, in the order of their bits.
func keysOf(conditions []condition) []string {
	keys := make(map[string]bool)
	for _, c := range conditions {
		for _, t := range c {
			keys[t.key] = true
		}
	}
	return slices.SortedFunc(maps.Keys(keys), compareKeys)
}

// compareKeys puts the namespace first, and then the service.
func compareKeys(a, b string) int {
	rank := func(key string) int {
		switch key {
		case meshpolicy.NamespaceTag:
			return 0
		case meshpolicy.ServiceKey:
			return 1
		}
		return 2
	}
	return cmp.Or(rank(a)-rank(b), strings.Compare(a, b))
}
