package xdsname

import (
	"net/url"
	"strings"
)

// New returns the canonical name of a resource of an authority. The authority, which may
// be empty, the type and the id are given decoded.
func New(authority, typeName, id string) string {
	return nameParts{
		authority: encode(partAuthority, authority), typeName: encode(partType, typeName), id: EncodeID(id),
	}.String()
}

// AuthorityPrefix returns the prefix that the canonical names of an authority share, such
// as "xdstp://a/".
func AuthorityPrefix(authority string) string {
	return Prefix + "//" + encode(partAuthority, authority) + "/"
}

// EncodeID percent-encodes the id of a name, as far as RFC 3986, section 3.3, requires.
// Slashes are kept.
func EncodeID(id string) string { return encode(partID, id) }

// Authority returns the authority, decoded, of a new-style name in any spelling, or of a
// template of such names. What follows the authority is not looked at. newStyle is
// false for an old-style name, which has no authority.
func Authority(name string) (authority string, newStyle bool) {
	rest, newStyle := strings.CutPrefix(name, Prefix)
	if !newStyle {
		return "", false
	}
	rest, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return "", true
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	if decoded, err := url.PathUnescape(rest); err == nil {
		return decoded, true
	}
	return rest, true
}

// SameAuthority reports whether two names belong to one authority, however they are
// spelled. All old-style names belong together.
func SameAuthority(a, b string) bool {
	authorityA, newA := Authority(a)
	authorityB, newB := Authority(b)
	return authorityA == authorityB && newA == newB
}

// HasAuthority reports whether a name, or a template of names, begins with
// xdstp://AUTHORITY/ for this authority, in any spelling.
func HasAuthority(name, authority string) bool {
	rest, ok := strings.CutPrefix(name, Prefix+"//")
	raw, _, hasPath := strings.Cut(rest, "/")
	decoded, err := url.PathUnescape(raw)
	return ok && hasPath && err == nil && decoded == authority
}
