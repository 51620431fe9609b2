package controlplane

import (
	"maps"
	"net/url"
	"slices"
	"strings"
)

// newStylePrefix begins the names that xRFC TP1 gives a structure:
// xdstp://authority/type/id?context-parameters.
const newStylePrefix = "xdstp://"

// nameKey is a name in the form in which names are compared. Two names of xRFC
// TP1 have equal keys if their percent-decoded parts are equal, in whatever
// order their context parameters come (TP1, "Normalization"). Other names are
// compared byte by byte; so are those that begin like TP1's and are malformed
// or carry a processing directive, as no such name can be a resource's.
type nameKey struct {
	// collection is the glob collection that a TP1 name is a member of, and
	// that a glob is itself: the canonical name with "*" for the last part of
	// its path. It is empty for other names.
	collection string
	// leaf is the last part of a TP1 name's path, any other name as it is.
	leaf string
}

// glob is the key of the collection that the name is a member of.
func (k nameKey) glob() nameKey { return nameKey{k.collection, wildcardName} }

// isGlob says whether the name is that of a glob collection (TP1, "Glob").
func (k nameKey) isGlob() bool { return k.collection != "" && k.leaf == wildcardName }

func keyOf(name string) nameKey {
	if rest, ok := strings.CutPrefix(name, newStylePrefix); ok {
		if key, ok := newStyleKey(rest); ok {
			return key
		}
	}
	return nameKey{leaf: name}
}

// newStyleKey parses a TP1 name without its scheme.
func newStyleKey(name string) (key nameKey, ok bool) {
	if strings.Contains(name, "#") {
		return nameKey{}, false
	}
	path, query, _ := strings.Cut(name, "?")
	parts := strings.SplitN(path, "/", 3)
	if len(parts) < 3 || parts[1] == "" || parts[2] == "" {
		return nameKey{}, false
	}
	for i, part := range parts {
		var err error
		if parts[i], err = url.PathUnescape(part); err != nil {
			return nameKey{}, false
		}
	}
	context, ok := canonicalContext(query)
	if !ok {
		return nameKey{}, false
	}
	id := parts[2]
	leaf := strings.LastIndexByte(id, '/') + 1
	return nameKey{
		collection: newStylePrefix + partEscaper.Replace(parts[0]) + "/" + partEscaper.Replace(parts[1]) + "/" +
			pathEscaper.Replace(id[:leaf]) + wildcardName + context,
		leaf: id[leaf:],
	}, true
}

// The escapers keep decoded parts apart from each other in a canonical name.
var (
	pathEscaper    = strings.NewReplacer("%", "%25", "#", "%23", "?", "%3F")
	partEscaper    = strings.NewReplacer("%", "%25", "#", "%23", "?", "%3F", "/", "%2F")
	contextEscaper = strings.NewReplacer("%", "%25", "#", "%23", "&", "%26", "=", "%3D")
)

// canonicalContext sorts context parameters. Of several values of one key the
// last counts, as gRFC A47 proposes ("XdsClient API Changes").
func canonicalContext(query string) (string, bool) {
	if query == "" {
		return "", true
	}
	params := map[string]string{}
	for piece := range strings.SplitSeq(query, "&") {
		if piece == "" {
			continue
		}
		rawKey, rawValue, _ := strings.Cut(piece, "=")
		key, badKey := url.PathUnescape(rawKey)
		value, badValue := url.PathUnescape(rawValue)
		if badKey != nil || badValue != nil {
			return "", false
		}
		params[key] = value
	}
	var b strings.Builder
	for i, key := range slices.Sorted(maps.Keys(params)) {
		b.WriteByte("?&"[min(i, 1)])
		b.WriteString(contextEscaper.Replace(key))
		b.WriteByte('=')
		b.WriteString(contextEscaper.Replace(params[key]))
	}
	return b.String(), true
}
