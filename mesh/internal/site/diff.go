package site

import (
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/publish"
)

// Diff writes a unified diff of the resources that two contents make, of all variants, Listeners first. Resources are as
// PrintYAML prints them. The files and lines at which documents stand make no difference, nor do the numbers that order
// variants. It returns how many resources differ. An error is one of Publish.
func Diff(w io.Writer, before, after *folder.Content) (differ int, err error) {
	var sides [2]map[reference][]Item // by type, and by name and parameters
	keys := make(map[reference]bool)
	for i, content := range []*folder.Content{before, after} {
		loaded, err := loadContent(content, publish.Options{NoSources: true})
		if err != nil {
			return 0, err
		}
		sides[i] = make(map[reference][]Item)
		for _, one := range loaded.all {
			delete(one.Parameters, meshpolicy.SpecificityKey)
			key := reference{one.TypeURL, strings.TrimSpace(one.Name + " " + meshpolicy.FormatTags(one.Parameters))}
			sides[i][key] = append(sides[i][key], one)
			keys[key] = true
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(keys), reference.compare) {
		old, now := sides[0][key], sides[1][key]
		if slices.EqualFunc(old, now, areEqual) {
			continue
		}
		written, err := writeDiff(w, typeurl.ShortName(key.typeURL)+" "+faults.Printable(key.name, ""), old, now)
		if err != nil {
			return differ, err
		}
		if written {
			differ++
		}
	}
	return differ, nil
}

func areEqual(a, b Item) bool {
	if a.Err != nil || b.Err != nil {
		return a.Err.String() == b.Err.String()
	}
	return a.Resource.Version() == b.Resource.Version()
}

// writeDiff writes the difference of one resource, if its text differs.
func writeDiff(w io.Writer, name string, old, now []Item) (written bool, err error) {
	diff := difflib.UnifiedDiff{FromFile: "store: " + name, ToFile: "folder: " + name, Context: 3}
	if diff.A, err = linesOf(old); err != nil {
		return false, err
	}
	if diff.B, err = linesOf(now); err != nil {
		return false, err
	}
	if len(old) == 0 {
		diff.FromFile = "/dev/null"
	}
	if len(now) == 0 {
		diff.ToFile = "/dev/null"
	}
	text, err := difflib.GetUnifiedDiffString(diff)
	if err == nil {
		_, err = io.WriteString(w, text) // at once: a terminal needs whole characters
	}
	return !slices.Equal(diff.A, diff.B), err
}

// linesOf returns what PrintYAML prints, in lines.
func linesOf(variants []Item) ([]string, error) {
	if len(variants) == 0 {
		return nil, nil // of which the encoder knows no YAML
	}
	var b strings.Builder
	err := PrintYAML(&b, variants)
	return slices.Collect(strings.Lines(b.String())), err
}
