// Package xdsname parses, writes and compares the names of resources, old-style ones and
// those of xRFC TP1 ("xdstp:"), and of resource types. Every package that reads or makes
// names uses it (the bootstrap, constraints by type, the cache, the resolver, the control
// plane, meshroute), so that all agree on when two names are the same. It does not know
// what a name stands for, nor which servers have the resource.
package xdsname

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dynxds/dynxds/internal/faults"
)

// Prefix starts the resource names of xRFC TP1. Every other name is an old-style one,
// which is opaque.
const Prefix = "xdstp:"

// MaxLength bounds a resource name, in bytes.
const MaxLength = 8 << 10

// Name is a valid resource name, which a client can subscribe to.
//
// A new-style name is a URI,
//
//	xdstp://[authority]/type/id[?context parameters]
//
// and two of them are the same if their parts are, context parameters in any
// order (xRFC TP1, "Normalization"; gRFC A47, "Resource Cache"). Text is the
// spelling that stands for all of them: parts are percent-decoded and encoded
// again with no more escapes than RFC 3986 asks for, parameters are sorted by
// key, and of several with one key the last counts. It is the key of the cache and
// what requests carry, as in other gRPC clients: TP1 has servers compare by parts,
// and a relay in between caches one resource, not one for each spelling.
type Name struct {
	Text string
	// NewStyle says that the name is one of xRFC TP1. Only such a name has what follows,
	// decoded; the authority may be empty.
	NewStyle        bool
	Authority, Type string
}

// IsCollection reports whether a name in canonical form is that of a glob collection:
// of the resources of a directory, and not of one of them (xRFC TP1, "Glob").
func IsCollection(name string) bool {
	path, _, _ := strings.Cut(name, "?")
	return strings.HasPrefix(name, Prefix) && strings.HasSuffix(path, "/*")
}

// CollectionOf returns the name of the glob collection that the resource of a new-style
// name in canonical form is a member of: that of its directory, with the same context
// parameters. A resource in a directory below is not a member.
func CollectionOf(name string) string {
	path, context, hasContext := strings.Cut(name, "?")
	collection := path[:strings.LastIndexByte(path, '/')+1] + "*"
	if hasContext {
		collection += "?" + context
	}
	return collection
}

// Canonical returns the canonical form of a name. Text that is not a name is returned
// unchanged.
func Canonical(name string) string {
	if n, err := Parse(name); err == nil {
		return n.Text
	}
	return name
}

// Parse takes a resource name apart. It allocates nothing for an old-style
// name and for one of usual length in canonical spelling. An error says what is wrong with the
// name; it does not repeat the name.
func Parse(name string) (Name, error) {
	switch {
	case name == "":
		return Name{}, errors.New("a resource needs a name")
	case name == "*":
		return Name{}, errors.New(`"*" asks for every resource and names none`)
	case len(name) > MaxLength:
		return Name{}, errNameTooLong
	case !strings.HasPrefix(name, Prefix):
		if !utf8.ValidString(name) {
			return Name{}, errors.New("the name is not valid UTF-8")
		}
		return Name{Text: name}, nil
	}
	parts, err := splitParts(name)
	if err != nil {
		return Name{}, err
	}
	var buffer [256]byte
	text, err := parts.appendCanonical(buffer[:0])
	switch {
	case err != nil:
		return Name{}, err
	case len(text) > MaxLength:
		return Name{}, errNameTooLong
	case string(text) != name:
		name = string(text)
	}
	n := Name{Text: name, NewStyle: true}
	n.Authority, _ = url.PathUnescape(parts.authority) // which appendCanonical has done
	n.Type, _ = url.PathUnescape(parts.typeName)
	return n, nil
}

var errNameTooLong = fmt.Errorf("the name is longer than %d bytes", MaxLength)

// nameParts are the parts of a new-style name, percent-encoded. No authority at all is the same as an empty one.
type nameParts struct {
	authority, typeName, id, context string
}

// String puts the parts together again.
func (p nameParts) String() string {
	name := Prefix + "//" + p.authority + "/" + p.typeName + "/" + p.id
	if p.context != "" {
		name += "?" + p.context
	}
	return name
}

// splitParts finds the parts of a new-style name.
func splitParts(name string) (nameParts, error) {
	var p nameParts
	rest := strings.TrimPrefix(name, Prefix)
	if !strings.HasPrefix(rest, "/") {
		return p, errors.New("expected xdstp://AUTHORITY/TYPE/ID, found no // behind the scheme")
	}
	rest, directives, hasFragment := strings.Cut(rest, "#")
	if hasFragment {
		return p, refuseDirectives(directives)
	}
	rest, p.context, _ = strings.Cut(rest, "?")
	rest = strings.TrimPrefix(rest, "//")
	var hasType bool
	if p.authority, rest, hasType = strings.Cut(rest, "/"); !hasType {
		return p, errors.New("expected xdstp://AUTHORITY/TYPE/ID, found no type")
	}
	if p.typeName, p.id, _ = strings.Cut(rest, "/"); p.typeName == "" {
		return p, errors.New("expected xdstp://AUTHORITY/TYPE/ID, found no type")
	}
	if p.id == "" {
		return p, errors.New("expected xdstp://AUTHORITY/TYPE/ID, found no id")
	}
	return p, nil
}

// refuseDirectives returns the error for a name with processing directives. These belong
// to locators; the name of a resource has none (xRFC TP1, "URI-based xDS resource names").
func refuseDirectives(directives string) error {
	for directive := range strings.SplitSeq(directives, ",") {
		switch key, _, _ := strings.Cut(directive, "="); key {
		case "alt":
			return errors.New("the directive alt is not supported, as in gRFC A47; give the authority further xds_servers in the xDS bootstrap instead")
		case "entry":
			return errors.New("the directive entry is not supported, as list collections are not; name the resource itself")
		case "":
		default:
			return fmt.Errorf("the directive %s is unknown; the name of a resource has no directives", faults.Quote(key))
		}
	}
	return errors.New("the name of a resource has no # and no directives")
}

// namePart is a part of a name. It decides which characters stand for themselves.
type namePart int

const (
	partAuthority namePart = iota
	partType
	partID
	partContext // a key or a value of a context parameter
)

// String names the part in errors.
func (p namePart) String() string {
	return [...]string{"authority", "type", "id", "context parameters"}[p]
}

// plain reports whether a character stands for itself in the part (RFC 3986,
// section 3), and is thus not percent-encoded in the canonical spelling.
func (p namePart) plain(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	switch c {
	case '-', '.', '_', '~', '!', '$', '\'', '(', ')', '*', '+', ',', ';', ':', '@':
		return true
	case '&', '=':
		return p != partContext
	case '/':
		return p == partID || p == partContext
	case '?':
		return p == partContext
	case '[', ']':
		return p == partAuthority
	default:
		return false
	}
}

// appendCanonical appends the name in canonical spelling. An error says what is wrong with each of the parts.
func (p *nameParts) appendCanonical(dst []byte) ([]byte, error) {
	var wrong []string
	dst = append(dst, Prefix+"/"...)
	for part, text := range [...]string{p.authority, p.typeName, p.id} {
		var err error
		if dst, err = appendPart(append(dst, '/'), namePart(part), text); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	dst, err := appendContext(dst, p.context)
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	if len(wrong) > 0 {
		return nil, errors.New(strings.Join(wrong, "; "))
	}
	return dst, nil
}

// appendContext appends the context parameters, sorted by their keys. Of several with one key the last counts.
func appendContext(dst []byte, context string) ([]byte, error) {
	type parameter struct{ key, text string } // the key is decoded
	var few [8]parameter
	all := few[:0]
	for text := range strings.SplitSeq(context, "&") {
		if text == "" {
			continue
		}
		key, _, _ := strings.Cut(text, "=")
		key, err := url.PathUnescape(key)
		if err != nil {
			return dst, fmt.Errorf("%s: %w", partContext, err)
		}
		if key == "" {
			return dst, fmt.Errorf("%s: there is one without a key", partContext)
		}
		all = append(all, parameter{key, text})
	}
	slices.SortStableFunc(all, func(a, b parameter) int { return cmp.Compare(a.key, b.key) })
	separator := byte('?')
	for i, p := range all {
		before := len(dst)
		key, value, _ := strings.Cut(p.text, "=")
		var err error
		if dst, err = appendPart(append(dst, separator), partContext, key); err == nil {
			dst, err = appendPart(append(dst, '='), partContext, value)
		}
		if err != nil {
			return dst, err
		}
		if i+1 < len(all) && all[i+1].key == p.key {
			dst = dst[:before]
		} else {
			separator = '&'
		}
	}
	return dst, nil
}

// appendPart appends a part in canonical spelling. It allocates nothing for texts without escapes, and for those of usual length, for which the buffer is enough.
func appendPart(dst []byte, part namePart, text string) ([]byte, error) {
	if strings.IndexByte(text, '%') < 0 && utf8.ValidString(text) {
		return appendEncoded(dst, part, text), nil
	}
	var buffer [64]byte
	decoded := buffer[:0]
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '%' {
			escaped, err := strconv.ParseUint(text[i+1:min(i+3, len(text))], 16, 8)
			if err != nil || i+2 >= len(text) {
				_, err = url.PathUnescape(text)
				return dst, fmt.Errorf("%s: %w", part, err)
			}
			c = byte(escaped)
			i += 2
		}
		decoded = append(decoded, c)
	}
	if !utf8.Valid(decoded) {
		return dst, fmt.Errorf("%s: not valid UTF-8", part)
	}
	return appendEncoded(dst, part, decoded), nil
}

// appendEncoded percent-encodes a part as far as RFC 3986 asks for.
func appendEncoded[T string | []byte](dst []byte, part namePart, text T) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(text) {
		if c := text[i]; part.plain(c) {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		}
	}
	return dst
}

// PluginPrefix starts the name that routes have for the clusters that a cluster specifier plugin chooses from.
const PluginPrefix = "cluster_specifier_plugin:"

// New returns the canonical name of a resource of an authority. The authority, which may
// be empty, the type and the id are given decoded.
func New(authority, typeName, id string) string {
	name := appendEncoded([]byte(AuthorityPrefix(authority)), partType, typeName)
	return string(appendEncoded(append(name, '/'), partID, id))
}

// AuthorityPrefix returns the prefix that the canonical names of an authority share, such
// as "xdstp://a/".
func AuthorityPrefix(authority string) string {
	return string(appendEncoded([]byte(Prefix+"//"), partAuthority, authority)) + "/"
}

// EncodeID percent-encodes the id of a name, as far as RFC 3986, section 3.3, requires.
// Slashes are kept.
func EncodeID(id string) string { return string(appendEncoded(nil, partID, id)) }

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
