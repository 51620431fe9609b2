package publish

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/internal/meshpolicy"
	"github.com/dynxds/dynxds/meshroute"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// maxTags bounds the tags that clients may be told apart by, so that their
// constraints stay within the bounds of dynparam.
const maxTags = 120

// tags are the keys that make a difference between clients, each list in order.
type tags struct {
	// mesh are those that policies and denials select clients by.
	mesh []string
	// written are the dynamic parameters of resources that somebody wrote, by the
	// name of their type.
	written map[string][]string
}

// tagsOf returns the tags of one state.
func tagsOf(meshes []*meshroute.Mesh, written map[key]*folder.Resource) tags {
	t := tags{written: map[string][]string{}}
	for _, mesh := range meshes {
		t.mesh = append(t.mesh, mesh.Keys()...)
	}
	t.mesh = sorted(t.mesh)
	for k, r := range written {
		for parameter := range r.Parameters {
			// The constraint on it is the mesh's: it is no tag.
			if parameter != meshpolicy.SpecificityKey {
				name := typeName(k.typeURL)
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

// check finds too many. The fault is that of the folder as a whole.
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
		Problem: fmt.Sprintf("policies and dynamic parameters tell clients apart by %d tags, more than %d", len(all), maxTags),
	})
	return faults.Err()
}

// constraints returns what a client subscribes with. About a tag of policies they
// always are, as a client without it is told apart from those that have it; about a
// dynamic parameter that somebody wrote they are if the client has such a tag: it
// may have constraints of its own instead.
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

// typeName returns the name of a type from its URL.
func typeName(typeURL string) string { return typeURL[strings.LastIndexByte(typeURL, '/')+1:] }

// sorted brings keys in order, each once.
func sorted(keys []string) []string {
	slices.Sort(keys)
	return slices.Compact(keys)
}
