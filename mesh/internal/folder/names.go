package folder

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// checkNames reports names that are used twice.
func checkNames(c *Content, faults *document.Faults) {
	seen := map[string]meshroute.Source{}
	add := func(what string, at meshroute.Source) {
		first, twice := seen[what]
		if !twice {
			seen[what] = at
			return
		}
		faults.Add(document.Fault{
			File: at.File, Line: at.Line, Other: first.File,
			Problem:    fmt.Sprintf("duplicate %s; the first is at %s", what, first),
			Suggestion: "rename or delete one",
		})
	}
	for _, s := range c.Services {
		add("service "+s.Name, s.Source)
	}
	for _, p := range c.Policies {
		add("policy "+p.Name, p.Source)
	}
	for _, r := range c.Resources {
		add(r.Key(), r.Source)
	}
}

// Key is the same for resources of which a folder can have only one.
func (r *Resource) Key() string {
	canonical := *r // the same name may be spelled in several ways
	canonical.Name = xdsname.Canonical(r.Name)
	return canonical.String()
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
