package main

import (
	"encoding/csv"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// pairs is a repeatable flag of comma-separated key=value pairs. Pairs with a comma are in double
// quotes. pflag's own type reads "a=b,c" as one pair.
type pairs struct{ of *map[string]string }

// String returns the pairs in the order of their keys.
func (p pairs) String() string {
	if p.of == nil {
		return ""
	}
	var list []string
	for _, key := range slices.Sorted(maps.Keys(*p.of)) {
		list = append(list, key+"="+(*p.of)[key])
	}
	return strings.Join(list, ",")
}

// Set adds pairs.
func (p pairs) Set(text string) error {
	if text == "" {
		return nil
	}
	fields, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil {
		return fmt.Errorf("want key=value pairs with commas between them: %w", err)
	}
	if *p.of == nil {
		*p.of = make(map[string]string)
	}
	for _, field := range fields {
		key, value, found := strings.Cut(field, "=")
		if !found || key == "" {
			return fmt.Errorf("%q is not of the form key=value", field)
		}
		(*p.of)[key] = value
	}
	return nil
}

// Type is the name of the value in the help.
func (p pairs) Type() string { return "key=value,…" }
