package controlplane

import (
	"strings"

	"github.com/dynxds/dynxds/internal/xdsname"
)

// wildcardName subscribes to every resource of a type.
const wildcardName = "*"

// nameKey is a name as names are compared: new-style names (xRFC TP1) in canonical form, all
// others byte by byte. A new-style name that is malformed or has processing directives is one of
// the others, as no resource can have it.
type nameKey struct {
	// collection is the glob collection of a new-style name, or the glob itself: the
	// canonical name with "*" as the last part of its path. It is empty for other names.
	collection string
	// leaf is the last part of a new-style name's path, or the whole of any other name.
	leaf string
}

// glob returns the key of the collection that the name is a member of: for an old-style name, the wildcard.
func (k nameKey) glob() nameKey { return nameKey{k.collection, wildcardName} }

// isGlob reports whether the name is that of a glob collection (TP1, "Glob").
func (k nameKey) isGlob() bool { return k.collection != "" && k.leaf == wildcardName }

func keyOf(name string) nameKey {
	n, err := xdsname.Parse(name)
	if err != nil || !n.NewStyle {
		return nameKey{leaf: name}
	}
	path, _, _ := strings.Cut(n.Text, "?")
	return nameKey{collection: xdsname.CollectionOf(n.Text), leaf: path[strings.LastIndexByte(path, '/')+1:]}
}
