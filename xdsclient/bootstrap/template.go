package bootstrap

import (
	"net/url"
	"strings"
)

// newStyle starts the resource names of xRFC TP1.
const newStyle = "xdstp:"

// expand puts the endpoint into a template (gRFC A47). In new-style names it is
// percent-encoded as a URI path.
func expand(template, endpoint string) string {
	if strings.HasPrefix(template, newStyle) {
		endpoint = encodePath(endpoint)
	}
	return strings.ReplaceAll(template, "%s", endpoint)
}

// encodePath percent-encodes every byte that RFC 3986, section 3.3, does not
// allow in a path. url.PathEscape is no substitute: it encodes sub-delimiters
// that are allowed, and other gRPC implementations would ask for another name.
func encodePath(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; isPathByte(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

func isPathByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	default:
		return strings.IndexByte("-._~!$&'()*+,;=:@/", c) >= 0
	}
}

// authorityPrefix is how the new-style names of an authority start.
func authorityPrefix(authority string) string {
	return newStyle + "//" + url.PathEscape(authority) + "/"
}

// authorityOf returns the authority of a new-style name. It is "" for a name
// that has none, and isNew is false for an old-style name.
func authorityOf(name string) (authority string, isNew bool) {
	rest, isNew := strings.CutPrefix(name, newStyle)
	if !isNew {
		return "", false
	}
	rest, hasAuthority := strings.CutPrefix(rest, "//")
	if !hasAuthority {
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
