package meshroute

// tagIndex has values with tags, and finds those whose tags are like others without a look at all of them.
type tagIndex[T any] struct {
	// by has the values by one of their tags, those without the tag under "".
	by map[string]map[string][]tagged[T]
}

type tagged[T any] struct {
	tags  map[string]string
	value T
}

// newTagIndex returns an index of values that have some of the keys.
func newTagIndex[T any](keys []string) tagIndex[T] {
	x := tagIndex[T]{make(map[string]map[string][]tagged[T], len(keys)+1)}
	for _, key := range append([]string{""}, keys...) { // no tag has the empty key: all values are without it
		x.by[key] = make(map[string][]tagged[T])
	}
	return x
}

func (x tagIndex[T]) add(tags map[string]string, value T) {
	for key, byValue := range x.by {
		byValue[tags[key]] = append(byValue[tags[key]], tagged[T]{tags, value})
	}
}

// within returns the values that have no tags but some of these.
func (x tagIndex[T]) within(tags map[string]string) (found []T) {
	best := x.by[""][""]
	var rest []tagged[T]
	for key, byValue := range x.by {
		without, with := byValue[""], byValue[tags[key]]
		if tags[key] == "" {
			with = nil
		}
		if len(without)+len(with) < len(best)+len(rest) {
			best, rest = without, with
		}
	}
	for _, list := range [][]tagged[T]{best, rest} {
		for _, v := range list {
			if implies(tags, v.tags) {
				found = append(found, v.value)
			}
		}
	}
	return found
}

// beside returns the values that have no other value for any of these tags.
func (x tagIndex[T]) beside(tags map[string]string) (found []T) {
	best := x.by[""][""]
	var rest []tagged[T]
	for key, value := range tags {
		if without, with := x.by[key][""], x.by[key][value]; value != "" && len(without)+len(with) < len(best)+len(rest) {
			best, rest = without, with
		}
	}
	for _, list := range [][]tagged[T]{best, rest} {
		for _, v := range list {
			if !disjoint(v.tags, tags) {
				found = append(found, v.value)
			}
		}
	}
	return found
}

// implies reports whether clients with the tags have a condition.
func implies(tags, condition map[string]string) bool {
	for key, value := range condition {
		if own, ok := tags[key]; !ok || own != value {
			return false
		}
	}
	return true
}

// disjoint reports whether no client has both conditions.
func disjoint(a, b map[string]string) bool {
	for key, value := range a {
		if other, ok := b[key]; ok && other != value {
			return true
		}
	}
	return false
}
