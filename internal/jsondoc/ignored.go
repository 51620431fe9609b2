package jsondoc

import (
	"fmt"
	"slices"

	"github.com/dynxds/dynxds/internal/faults"
)

// maxIgnored bounds the unknown keys that are compared with known ones.
const maxIgnored = 100

// ignoredKey is an unknown key. like is the known key that it looks like, as if that was misspelt,
// or empty.
type ignoredKey struct{ path, name, like string }

func (d *document) ignore(path, name string, known []string) {
	if len(d.ignored) < maxIgnored {
		d.ignored = append(d.ignored, ignoredKey{path, name, faults.Nearest(name, known)})
	}
}

// misspelt returns how the key at a path seems to be misspelt, or "".
func (d *document) misspelt(path string) string {
	for _, i := range d.ignored {
		if i.like != "" && faults.Join(i.path, i.like) == path {
			return i.name
		}
	}
	return ""
}

// Know is for an object whose fields another reader reads: Ignored then has those of its keys that
// look like known ones.
func (v Value) Know(known ...string) {
	for name := range v.members() {
		if !slices.Contains(known, name) {
			v.from.ignore(v.path, name, known)
		}
	}
}

// Ignored returns the keys that were ignored so far in the document although they look like known
// ones, a line each with the suggestion. Only the first 100 unknown keys are looked at.
func (v Value) Ignored() (lines []string) {
	if v.from == nil {
		return nil
	}
	for _, i := range v.from.ignored {
		if i.like != "" {
			lines = append(lines, faults.Fault{Path: i.path, Problem: "the key " + faults.Quote(i.name) + " is ignored",
				Suggestion: fmt.Sprintf("did you mean %q?", i.like)}.String())
		}
	}
	return lines
}
