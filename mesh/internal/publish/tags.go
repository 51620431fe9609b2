package publish

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// maxTags bounds the tags that select variants, so that constraints stay within the bounds of
// dynparam.
const maxTags = 120

// tags are the keys that select variants, in order: under "" those in policies, and under the name of a type the dynamic parameters of
// the folder's resources of that type.
type tags map[string][]string

// tagsOf returns the tags of one state.
func tagsOf(meshes []*meshroute.Mesh, resources map[string]written) tags {
	t := tags{}
	for _, mesh := range meshes {
		t[""] = append(t[""], mesh.Keys()...)
	}
	for _, r := range resources {
		for parameter := range r.Parameters.Map() {
			// Specificity is a constraint of the mesh, not a tag.
			if parameter != meshpolicy.SpecificityKey {
				name := typeurl.Name(r.TypeURL)
				t[name] = append(t[name], parameter)
			}
		}
	}
	return t.and(nil)
}

// and returns the tags of both, each once.
func (t tags) and(o tags) tags {
	both := tags{}
	for _, of := range []tags{t, o} {
		for name, keys := range of {
			if len(keys) > 0 {
				both[name] = sorted(slices.Concat(both[name], keys))
			}
		}
	}
	return both
}

// check reports too many tags, as an error of the folder as a whole.
func (t tags) check() error {
	all := sorted(slices.Concat(slices.Collect(maps.Values(t))...))
	if len(all) <= maxTags {
		return nil
	}
	var faults document.Faults
	faults.Add(document.Fault{
		Problem: fmt.Sprintf("policies and dynamic parameters distinguish clients by %d tags, more than %d", len(all), maxTags),
	})
	return faults.Err()
}

// constraints returns the constraints of a client. They have every tag of policies, as a client without
// a tag differs from those with it. They have a dynamic parameter of the folder's resources only if
// the client has that tag: it may have constraints of its own instead.
func (t tags) constraints(c meshroute.Client) (dynparam.ByType, error) {
	mesh, err := meshroute.ConstraintsFor(c, t[""])
	if err != nil {
		return mesh, err
	}
	written := map[string]dynparam.Constraints{}
	for name, keys := range t {
		if name == "" {
			continue
		}
		values := map[string]string{}
		for _, key := range keys {
			if value := c.Tag(key); value != "" {
				values[key] = value
			}
		}
		if written[name], err = dynparam.Exact(values); err != nil {
			return dynparam.ByType{}, err
		}
	}
	if len(written) == 0 {
		return mesh, nil
	}
	byType, err := dynparam.NewByType(written)
	return byType.Merge(mesh), err
}

// sorted sorts keys and removes duplicates.
func sorted(keys []string) []string {
	slices.Sort(keys)
	return slices.Compact(keys)
}
