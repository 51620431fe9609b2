package folder

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/meshroute"
)

// checkNames finds what has the name of something else.
func checkNames(c *Content, faults *document.Faults) {
	seen := taken{at: map[string]meshroute.Source{}, faults: faults}
	for _, s := range c.Services {
		seen.take("service "+s.Name, s.Source)
	}
	for _, p := range c.Policies {
		seen.take("policy "+p.Name, p.Source)
	}
	for _, r := range c.Resources {
		seen.take(r.String(), r.Source)
	}
}

// String names the resource with its type and parameters.
func (r *Resource) String() string {
	text := fmt.Sprintf("resource %s of type %s", r.Name, r.Any.GetTypeUrl())
	if len(r.Parameters) == 0 {
		return text
	}
	pairs := make([]string, 0, len(r.Parameters))
	for _, key := range slices.Sorted(maps.Keys(r.Parameters)) {
		pairs = append(pairs, fmt.Sprintf("%s=%q", key, r.Parameters[key]))
	}
	return text + " with " + strings.Join(pairs, ", ")
}

// taken are the names that were met.
type taken struct {
	at     map[string]meshroute.Source
	faults *document.Faults
}

func (t taken) take(what string, at meshroute.Source) {
	if first, twice := t.at[what]; twice {
		t.faults.Add(document.Fault{
			File: at.File, Line: at.Line,
			Problem:    fmt.Sprintf("there are two of %s; the first is at %s", what, first),
			Suggestion: "rename or delete one",
		})
		return
	}
	t.at[what] = at
}
