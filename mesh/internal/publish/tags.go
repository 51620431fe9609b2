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

// tags are the keys that select variants, each list in order.
type tags struct {
	// mesh are the tags in policies.
	mesh []string
	// written are the dynamic parameters of the folder's resources, by the name of their type.
	written map[string][]string
}

// tagsOf returns the tags of one state.
func tagsOf(meshes []*meshroute.Mesh, resources map[key]written) tags {
	t := tags{written: map[string][]string{}}
	for _, mesh := range meshes {
		t.mesh = append(t.mesh, mesh.Keys()...)
	}
	t.mesh = sorted(t.mesh)
	for k, r := range resources {
		for parameter := range r.Parameters.Map() {
			// Specificity is a constraint of the mesh, not a tag.
			if parameter != meshpolicy.SpecificityKey {
				name := typeurl.Name(k.typeURL)
				t.written[name] = append(t.written[name], parameter)
			}
		}
	}
	for name := range t.written {
		t.written[name] = sorted(t.written[name])
	}
	return t
}

// and returns the tags of both.
func (t tags) and(o tags) tags {
	both := tags{mesh: sorted(slices.Concat(t.mesh, o.mesh)), written: maps.Clone(t.written)}
	for name, keys := range o.written {
		if both.written == nil {
			both.written = map[string][]string{}
		}
		both.written[name] = sorted(slices.Concat(both.written[name], keys))
	}
	return both
}

func (t tags) equal(o tags) bool {
	return slices.Equal(t.mesh, o.mesh) && maps.EqualFunc(t.written, o.written, slices.Equal)
}

// check reports too many tags, as an error of the folder as a whole.
func (t tags) check() error {
	all := slices.Clone(t.mesh)
	for _, keys := range t.written {
		all = append(all, keys...)
	}
	if all = sorted(all); len(all) <= maxTags {
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
	mesh, err := meshroute.ConstraintsFor(c, t.mesh)
	if err != nil || len(t.written) == 0 {
		return mesh, err
	}
	written := make(map[string]dynparam.Constraints, len(t.written))
	for name, keys := range t.written {
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
	byType, err := dynparam.NewByType(written)
	return byType.Merge(mesh), err
}

// sorted sorts keys and removes duplicates.
func sorted(keys []string) []string {
	slices.Sort(keys)
	return slices.Compact(keys)
}
