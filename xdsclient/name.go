package xdsclient

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dynxds/dynxds/internal/xdsname"
)

// newStylePrefix starts the resource names of xRFC TP1.
const newStylePrefix = xdsname.Prefix

// maxNameLength bounds a resource name, in bytes.
const maxNameLength = xdsname.MaxLength

// authorityKey identifies an authority. Old-style names belong to the zero key.
// A new-style name may have an empty authority, which is another one.
type authorityKey struct {
	newStyle bool
	name     string
}

// AuthorityOf returns the authority that a resource name gives, decoded. ok is
// false for an old-style name, which gives none, and for what cannot be a name.
func AuthorityOf(name string) (authority string, ok bool) {
	if !strings.HasPrefix(name, newStylePrefix) {
		return "", false
	}
	n, err := parseName(name)
	return n.authority.name, err == nil
}

// resourceName is a valid resource name. text is its canonical spelling, which is the key of
// the cache.
type resourceName struct {
	text      string
	authority authorityKey
	// typeName is the type that a new-style name gives.
	typeName string
}

// checkType rejects a new-style name of another type than the one it is used with.
func (n *resourceName) checkType(t *ResourceType) error {
	if want := t.TypeURL[strings.LastIndexByte(t.TypeURL, '/')+1:]; n.authority.newStyle && n.typeName != want {
		return fmt.Errorf("the type in the name is %s, want %q", quoteName(n.typeName), want)
	}
	return nil
}

// checkUse rejects a collection that is used as a resource, and the reverse.
func (n *resourceName) checkUse(collection bool) error {
	switch is := isCollection(n.text); {
	case is && !collection:
		return errors.New("this is the name of a collection; use WatchCollection")
	case !is && collection:
		return errors.New(`not the name of a collection, which starts with "xdstp:" and whose path ends in "/*"; use Watch`)
	default:
		return nil
	}
}

// sameName reports whether two names are the same but for their spelling.
func sameName(a, b string) bool { return a == b || xdsname.Canonical(a) == xdsname.Canonical(b) }

// parseName parses a resource name. It allocates nothing for an old-style name and for one in
// canonical spelling. An error says what is wrong with the name, and does not repeat it.
func parseName(name string) (resourceName, error) {
	n, err := xdsname.Parse(name)
	return resourceName{n.Text, authorityKey{n.NewStyle, n.Authority}, n.Type}, err
}

// quoteName quotes part of a name for an error, and shortens a long one.
func quoteName(text string) string { return xdsname.Quote(text) }
