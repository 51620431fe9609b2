// Package xdsname parses, writes and compares the names of resources, old-style ones and
// those of xRFC TP1 ("xdstp:"), and of resource types. Every package that reads or makes
// names uses it (the bootstrap, constraints by type, the cache, the resolver, the control
// plane, meshroute), so that all agree on when two names are the same. It does not know
// what a name stands for, nor which servers have the resource.
package xdsname

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
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
// name and for one in canonical spelling. An error says what is wrong with the
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
	raw, err := splitParts(name)
	if err != nil {
		return Name{}, err
	}
	if !raw.canonical() {
		if raw, err = raw.normalize(); err != nil {
			return Name{}, err
		}
		if name = raw.String(); len(name) > MaxLength {
			return Name{}, errNameTooLong
		}
	}
	n := Name{Text: name, NewStyle: true}
	// What is canonical can be decoded.
	n.Authority, _ = url.PathUnescape(raw.authority)
	n.Type, _ = url.PathUnescape(raw.typeName)
	return n, nil
}

var errNameTooLong = fmt.Errorf("the name is longer than %d bytes", MaxLength)

// nameParts are the parts of a new-style name, percent-encoded.
type nameParts struct {
	authority, typeName, id, context string
	// hasContext says that there is a "?", even with nothing behind it.
	hasContext bool
	// bare says that there is no authority at all, which is the same as an
	// empty one.
	bare bool
}

// String puts the parts together again.
func (p nameParts) String() string {
	name := Prefix + "//" + p.authority + "/" + p.typeName + "/" + p.id
	if p.hasContext {
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
	rest, p.context, p.hasContext = strings.Cut(rest, "?")
	rest, hasAuthority := strings.CutPrefix(rest, "//")
	p.bare = !hasAuthority
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

// canonical reports whether all parts are in canonical spelling.
func (p *nameParts) canonical() bool {
	return !p.bare && isCanonical(partAuthority, p.authority) && isCanonical(partType, p.typeName) && isCanonical(partID, p.id) &&
		(!p.hasContext || isCanonicalContext(p.context))
}

// isCanonical reports whether encode makes the text again of what decodePart makes of it. It allocates nothing for
// texts of usual length, for which the buffer is enough.
func isCanonical(part namePart, text string) bool {
	var buffer [64]byte
	decoded := buffer[:0]
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '%' {
			if i+2 >= len(text) {
				return false
			}
			high, low := strings.IndexByte(hex, text[i+1]), strings.IndexByte(hex, text[i+2])
			if high < 0 || low < 0 || part.plain(byte(high<<4|low)) {
				return false
			}
			c = byte(high<<4 | low)
			i += 2
		} else if !part.plain(c) {
			return false
		} else if len(decoded) == 0 {
			continue // What is before the first escape is ASCII.
		}
		decoded = append(decoded, c)
	}
	return utf8.Valid(decoded)
}

// isCanonicalContext reports whether context parameters are in canonical
// spelling and order. It may err on the side of caution.
func isCanonicalContext(context string) bool {
	last := ""
	for parameter := range strings.SplitSeq(context, "&") {
		key, value, ok := strings.Cut(parameter, "=")
		// The order is that of decoded keys.
		if !ok || key <= last || strings.IndexByte(key, '%') >= 0 || !isCanonical(partContext, key) || !isCanonical(partContext, value) {
			return false
		}
		last = key
	}
	return true
}

// normalize returns the parts in canonical spelling. An error says what is wrong
// with each of them.
func (p nameParts) normalize() (nameParts, error) {
	var faults []string
	must := func(text string, err error) string {
		if err != nil {
			faults = append(faults, err.Error())
		}
		return text
	}
	p.authority = must(recode(partAuthority, p.authority))
	p.typeName = must(recode(partType, p.typeName))
	p.id = must(recode(partID, p.id))
	p.context = must(normalizeContext(p.context))
	p.hasContext = p.context != ""
	if len(faults) > 0 {
		return nameParts{}, errors.New(strings.Join(faults, "; "))
	}
	return p, nil
}

// normalizeContext sorts the context parameters by their keys. Of several with one key the last counts.
func normalizeContext(context string) (string, error) {
	values := make(map[string]string)
	for text := range strings.SplitSeq(context, "&") {
		if text == "" {
			continue
		}
		rawKey, rawValue, _ := strings.Cut(text, "=")
		key, err := decodePart(partContext, rawKey)
		if err != nil {
			return "", err
		}
		if key == "" {
			return "", fmt.Errorf("%s: there is one without a key", partContext)
		}
		if values[key], err = decodePart(partContext, rawValue); err != nil {
			return "", err
		}
	}
	var parameters []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		parameters = append(parameters, encode(partContext, key)+"="+encode(partContext, values[key]))
	}
	return strings.Join(parameters, "&"), nil
}

// recode brings a part into canonical spelling.
func recode(part namePart, text string) (string, error) {
	decoded, err := decodePart(part, text)
	return encode(part, decoded), err
}

func decodePart(part namePart, text string) (string, error) {
	decoded, err := url.PathUnescape(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", part, err)
	}
	if !utf8.ValidString(decoded) {
		return "", fmt.Errorf("%s: not valid UTF-8", part)
	}
	return decoded, nil
}

// hex has the digits of escapes.
const hex = "0123456789ABCDEF"

// encode percent-encodes a part as far as RFC 3986 asks for.
func encode(part namePart, text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf || !part.plain(byte(r)) }) {
		return text
	}
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; part.plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// PluginPrefix starts the name that routes have for the clusters that a cluster specifier plugin chooses from.
const PluginPrefix = "cluster_specifier_plugin:"

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
