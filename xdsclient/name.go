package xdsclient

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/protofield"
	"github.com/dynxds/dynxds/internal/xdsname"
)

// authorityKey identifies an authority. Old-style names belong to the zero key.
// A new-style name may have an empty authority, which is another one.
type authorityKey struct {
	newStyle bool
	name     string
	// target is the target that an authority with several servers is for; see fallback.go.
	target string
}

func authorityOf(n xdsname.Name) authorityKey {
	return authorityKey{newStyle: n.NewStyle, name: n.Authority}
}

// checkName rejects a new-style name of another type than the one it is used with, and a
// collection that is used as a resource or the reverse.
func checkName(n xdsname.Name, t *ResourceType, collection bool) error {
	var use, typ error
	switch is := isCollection(n.Text); {
	case is && !collection:
		use = errors.New("this is the name of a collection; use WatchCollection")
	case !is && collection:
		use = errors.New(`not the name of a collection, which is "*", or starts with "xdstp:" and has a path that ends in "/*"; use Watch`)
	}
	if want := t.TypeURL[strings.LastIndexByte(t.TypeURL, '/')+1:]; n.NewStyle && n.Type != want {
		typ = fmt.Errorf("the type in the name is %s, want %q", faults.Quote(n.Type), want)
	}
	return errors.Join(use, typ)
}

// NameOf returns the name in the bytes of a resource, even if they are malformed behind the name, or nil.
func (t *ResourceType) NameOf(resource []byte) (name []byte) {
	for len(resource) > 0 && !t.Nameless {
		f, rest, err := protofield.Next(resource)
		if err != nil {
			break
		}
		if f.Number == 1 && f.Kind == protowire.BytesType && utf8.Valid(f.Value) {
			name = f.Value
		}
		resource = rest
	}
	return name
}

// sameName reports whether two names are the same but for their spelling.
func sameName(a, b string) bool { return a == b || xdsname.Canonical(a) == xdsname.Canonical(b) }
