package site

import (
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"go.yaml.in/yaml/v3"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/publish"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Diff writes a unified diff of the resources that two contents make, of all variants, Listeners first. Resources are as
// PrintYAML prints them. The files and lines at which documents stand make no difference, nor do the numbers that order
// variants. It returns how many resources differ. An error is one of Publish.
func Diff(w io.Writer, before, after *folder.Content) (differ int, err error) {
	var sides [2]map[string][]rendered
	var types []string
	for i, content := range []folder.Content{*before, *after} {
		content.Dir = "" // so that resources do not say where they were written
		loaded, err := loadContent(&content, publish.Options{})
		if err != nil {
			return 0, err
		}
		sides[i] = loaded.rendered()
		for _, typeURL := range loaded.types() {
			if !slices.Contains(types, typeURL) {
				types = append(types, typeURL)
			}
		}
	}
	for _, typeURL := range types {
		old, now := byKey(sides[0][typeURL]), byKey(sides[1][typeURL])
		keys := maps.Clone(old)
		maps.Copy(keys, now)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if slices.EqualFunc(old[key], now[key], rendered.equal) {
				continue
			}
			written, err := writeDiff(w, typeurl.ShortName(typeURL)+" "+faults.Printable(key, ""), old[key], now[key])
			if err != nil {
				return differ, err
			}
			if written {
				differ++
			}
		}
	}
	return differ, nil
}

// rendered is a variant of a resource.
type rendered struct {
	Item
	// tags are its parameters without the one that only orders variants.
	tags map[string]string
}

func (r rendered) equal(other rendered) bool {
	if r.Err != nil || other.Err != nil {
		return r.Err.String() == other.Err.String()
	}
	return r.Resource.Version() == other.Resource.Version()
}

// rendered returns all variants of all resources, and the errors in their places, by type.
func (l *loaded) rendered() map[string][]rendered {
	all := make(map[string][]rendered)
	add := func(item Item, parameters dynparam.Parameters) {
		tags := parameters.Map()
		delete(tags, meshpolicy.SpecificityKey)
		all[item.TypeURL] = append(all[item.TypeURL], rendered{item, tags})
	}
	for _, typeURL := range l.types() {
		for _, r := range l.store.Resources(typeURL) {
			add(Item{TypeURL: typeURL, Name: r.Name(), Resource: r}, r.Parameters())
		}
		for _, r := range l.publisher.Errors(typeURL) {
			add(Item{TypeURL: typeURL, Name: r.Name, Err: r.Err}, r.Parameters)
		}
	}
	return all
}

// byKey returns variants by name and tags.
func byKey(variants []rendered) map[string][]rendered {
	all := make(map[string][]rendered)
	for _, v := range variants {
		key := strings.TrimSpace(v.Name + " " + meshpolicy.FormatTags(v.tags))
		all[key] = append(all[key], v)
	}
	return all
}

// writeDiff writes the difference of one resource, if its text differs.
func writeDiff(w io.Writer, name string, old, now []rendered) (written bool, err error) {
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
	return !slices.Equal(diff.A, diff.B), difflib.WriteUnifiedDiff(w, diff)
}

// linesOf returns what PrintYAML prints, in lines.
func linesOf(variants []rendered) ([]string, error) {
	if len(variants) == 0 {
		return nil, nil // of which the encoder knows no YAML
	}
	var b strings.Builder
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	for _, v := range variants {
		d, err := manifestOf(v.Item)
		if err != nil {
			return nil, err
		}
		d.Parameters = v.tags
		if err := encode(encoder, d); err != nil {
			return nil, err
		}
	}
	if err := encoder.Close(); err != nil {
		return nil, err
	}
	return slices.Collect(strings.Lines(b.String())), nil
}
