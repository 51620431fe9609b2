package statuspage

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Bounds on what a browser may ask for.
const (
	maxQuery = 16 << 10 // bytes
	maxValue = 200      // bytes of a parameter
	maxOpen  = 20       // resources with details
	maxFrom  = 1 << 30
)

// query is what a browser shows.
type query struct {
	// sections are those that are unfolded, each once.
	sections []string
	values   url.Values
	// open are the ids of the resources that are unfolded.
	open []string
}

// parseQuery reads the query of a URL. The error names the parameter.
func parseQuery(values url.Values) (*query, error) {
	q := &query{values: values, open: values["open"]}
	if len(q.open) > maxOpen {
		return nil, fmt.Errorf("open: %d resources, more than %d", len(q.open), maxOpen)
	}
	for name, list := range values {
		for _, v := range list {
			if len(v) > maxValue {
				return nil, fmt.Errorf("%.20q: %d bytes, more than %d", name, len(v), maxValue)
			}
			if !utf8.ValidString(v) {
				return nil, fmt.Errorf("%.20q: not UTF-8", name)
			}
		}
	}
	for _, name := range values["show"] {
		if _, ok := sections[name]; !ok {
			return nil, fmt.Errorf("show: there is no section %.20q", name)
		}
		if !slices.Contains(q.sections, name) {
			q.sections = append(q.sections, name)
		}
	}
	for name := range sections {
		if text := q.of(name).get("from"); text != "" {
			if n, err := strconv.Atoi(text); err != nil || n < 0 || n > maxFrom {
				return nil, fmt.Errorf("%s.from: want a number from 0 on", name)
			}
		}
	}
	return q, nil
}

// wanted is what a browser wants of one section.
type wanted struct {
	section string
	values  url.Values
}

func (q *query) of(section string) wanted { return wanted{section, q.values} }

// get returns a parameter: "q" is what the section's list is searched for, and "from" where the shown part of it begins.
func (w wanted) get(name string) string { return w.values.Get(w.section + "." + name) }

// A list is the part of a longer list that is shown.
type list[T any] struct {
	// Total is the length of the list, and Found that of what the search leaves of it.
	Total int `json:"total"`
	Found int `json:"found"`
	// From is the index of the first item among those found.
	From  int `json:"from"`
	Items []T `json:"items"`
}

// same is the item of a list whose elements are shown as they are.
func same[T any](item T) T { return item }

// listOf returns the part of a list that is wanted: of the elements that are found, at most limit items from an index on, or
// the last ones if the list has become shorter. Only these are made.
func listOf[S, T any](w wanted, all []S, limit int, isFound func(S, needle) bool, item func(S) T) list[T] {
	var found []S
	find := newNeedle(w.get("q"))
	for _, s := range all {
		if isFound(s, find) {
			found = append(found, s)
		}
	}
	from, _ := strconv.Atoi(w.get("from"))
	if from >= len(found) {
		from = max(0, (len(found)-1)/limit*limit)
	}
	l := list[T]{Total: len(all), Found: len(found), From: from, Items: []T{}}
	for _, s := range found[from:min(from+limit, len(found))] {
		l.Items = append(l.Items, item(s))
	}
	return l
}
