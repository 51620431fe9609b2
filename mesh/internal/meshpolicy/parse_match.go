package meshpolicy

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

// readMatches reads a list of matches, or, in a MeshHTTPRoute, a single match, as in the decision record's examples. The default of an
// HTTPRoute, which Kubernetes writes into it, is the prefix "/". ok is false if it can read none.
func (r *reader) readMatches(v document.Value) (matches []Match, ok bool) {
	items := []document.Value{v}
	if r.isRoute || !v.IsObject() {
		items = v.Items()
	}
	matches, ok = readSound(items, r.readMatch)
	if len(matches) == 0 && r.kind == HTTPRouteKind {
		matches = []Match{{Path: PathMatch{Prefix, "/"}}}
	}
	return NormalizeMatches(matches), ok
}

// matchFields are the fields of matches by the kind of the document.
var matchFields = map[string][]string{
	DocumentKind:  {"methods", "method", "path", "headers", "queryParams"},
	GRPCRouteKind: {"method", "headers"},
	HTTPRouteKind: {"path", "headers", "queryParams", "method"},
}

func (r *reader) readMatch(v document.Value) Match {
	o := v.Object(matchFields[r.kind]...)
	m := Match{Line: v.Position().Line}
	switch path := o.Field("path"); {
	case r.kind == GRPCRouteKind:
		m.Path = readGRPCMethod(o.Field("method"))
	case r.isRoute:
		m.Path = readHTTPPath(path)
	case path.Present():
		m.Path = readPathMatch(path)
	}
	if r.kind != GRPCRouteKind {
		m.Methods = readMethods(o)
	}
	m.Headers, m.Query = r.readConditions(o.Field("headers"), header), r.readConditions(o.Field("queryParams"), parameter)
	return m
}

// readConditions reads conditions on headers or parameters. Of several of a route with the same name the first one
// applies (HTTPRouteMatch.headers).
func (r *reader) readConditions(v document.Value, on condition) (all []ValueMatch) {
	types := on.types
	if r.isRoute {
		types = parameter.types
	}
	for _, item := range v.Items() {
		m := readValueMatch(item, on, types...)
		if !r.isRoute || !slices.ContainsFunc(all, func(o ValueMatch) bool { return o.Name == m.Name }) {
			all = append(all, m)
		}
	}
	checkContradiction(v, all)
	return all
}

// readMethods reads a list of methods or, as in Kuma, a single one.
func readMethods(o document.Object) []string {
	list, single := o.Field("methods"), o.Field("method")
	items := list.Items()
	switch {
	case list.Present() && single.Present():
		single.Fault("keep one of the two", "method and methods say the same thing")
	case single.Present():
		items = []document.Value{single}
	case list.IsList() && len(items) == 0:
		list.Fault("leave the field out to match every method", "no method is in the list")
	}
	var methods []string
	for _, item := range items {
		methods = append(methods, item.OneOf("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"))
	}
	return methods
}

// checkContradiction finds contradictory conditions on one name.
func checkContradiction(v document.Value, all []ValueMatch) {
	for i, a := range all {
		for _, b := range all[:i] {
			if a.Name != b.Name {
				continue
			}
			if (a.Type == Absent) != (b.Type == Absent) || a.Type == Exact && b.Type == Exact && a.Value != b.Value {
				v.Fault("use two matches if either will do", "nothing can match both %q and %q", b, a)
			}
		}
	}
}

// pathTypes are the types of conditions on the path. Kuma and the Gateway API call a Prefix PathPrefix.
var pathTypes = map[string]MatchType{"Exact": Exact, "Prefix": Prefix, "PathPrefix": Prefix, "RegularExpression": RegularExpression}

// readPathMatch reads {type, value}, or {prefix: value} and the like, as in the decision record's
// examples.
func readPathMatch(v document.Value) PathMatch {
	o := v.Object("type", "value", "prefix", "exact", "regularExpression")
	for _, name := range o.Names() {
		t, short := map[string]MatchType{"exact": Exact, "prefix": Prefix, "regularExpression": RegularExpression}[name]
		switch {
		case !short:
		case len(o.Names()) > 1:
			o.Fault("write type and value", "%s has no other field beside it", name)
			return PathMatch{}
		default:
			return readPath(o.Field(name), t)
		}
	}
	t, ok := pathTypes[o.Require("type").OneOf("Exact", "Prefix", "PathPrefix", "RegularExpression")]
	value := o.Require("value")
	if !ok {
		return PathMatch{}
	}
	return readPath(value, t)
}

// readHTTPPath reads an HTTPPathMatch.
func readHTTPPath(v document.Value) PathMatch {
	o := v.Object("type", "value")
	m := PathMatch{Prefix, "/"}
	if t := o.Field("type"); t.Present() {
		m.Type = pathTypes[t.OneOf("Exact", "PathPrefix", "RegularExpression")]
	}
	if value := o.Field("value"); value.Present() {
		m = readPath(value, m.Type)
	}
	return m
}

// readPath reads the value of a condition on the path.
func readPath(v document.Value, t MatchType) PathMatch {
	m := PathMatch{t, v.Text()}
	switch {
	case !v.IsText():
	case t == RegularExpression:
		checkRegex(v, m.Value)
	default:
		checkPath(v, m.Value)
	}
	return m
}

// pathOnly is a path without query and fragment.
var pathOnly = regexp.MustCompile(`^/[!"$->@-~]*$`)

// checkPath reports a text that is not a path.
func checkPath(v document.Value, path string) {
	switch {
	case !strings.HasPrefix(path, "/"):
		v.Fault("put a / before it", "a path starts with /, and %q does not", path)
	case !pathOnly.MatchString(path):
		v.Fault("", "the path %q has a character that paths do not have", path)
	}
}

// Bounds of regular expressions, in bytes and, roughly, in instructions. dynxds rejects resources with
// larger ones.
const (
	maxRegexLength = 8 << 10
	maxRegexSize   = 20_000
)

// checkRegex reports a pattern that clients would reject, and returns whether they would take it.
func checkRegex(v document.Value, pattern string) bool {
	if pattern == "" || len(pattern) > maxRegexLength {
		v.Fault("", "a regular expression has from 1 to %d bytes, this one has %d", maxRegexLength, len(pattern))
		return false
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		v.Fault("see https://github.com/google/re2/wiki/Syntax", "%q is not a regular expression of RE2: %v", pattern, err)
		return false
	}
	if regexSize(tree) > maxRegexSize {
		v.Fault("", "the regular expression %q is too large; repetitions multiply", pattern)
		return false
	}
	return true
}

func regexSize(re *syntax.Regexp) int {
	size := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		size = min(size+regexSize(sub), maxRegexSize+1)
	}
	size *= max(re.Min, re.Max, 1) // both are 0 if re is no repetition
	return min(size, maxRegexSize+1)
}

var parameterName = regexp.MustCompile(`^[!-~]+$`)

// readParameterName reads the name of a query parameter.
func readParameterName(v document.Value) string {
	name := v.Text()
	if v.IsText() && !v.Fits(parameterName, 0) {
		v.Fault("", "%q cannot be the name of a query parameter", name)
	}
	return name
}

// condition is what is particular about conditions on headers, or on parameters.
type condition struct {
	readName func(document.Value) string
	// value matches the values that there can be.
	value *regexp.Regexp
	// types are those that there can be in a MeshHTTPRoute.
	types []MatchType
}

var (
	header    = condition{ReadHeaderName, headerValue, []MatchType{Exact, Prefix, RegularExpression, Present, Absent}}
	parameter = condition{readParameterName, regexp.MustCompile(""), []MatchType{Exact, RegularExpression}}
)

// readValueMatch reads a condition on a header or a parameter. The default type is Exact, as in Kuma.
func readValueMatch(v document.Value, on condition, types ...MatchType) ValueMatch {
	o := v.Object("type", "name", "value")
	m := ValueMatch{Name: on.readName(o.Require("name"))}
	ok := true
	if t := o.Field("type"); t.Present() {
		m.Type, ok = readOneOf(t, types...)
	}
	value := o.Field("value")
	switch {
	case !ok:
	case m.Type == Present || m.Type == Absent:
		if value.Present() {
			value.Fault("leave it out", "a condition of type %s has no value", m.Type)
		}
	case !value.Present():
		o.Fault("", "a condition of type %s needs the field \"value\"", m.Type)
	default:
		m.Value = value.Text()
		checkValue(value, m, on.value)
	}
	return m
}

func checkValue(v document.Value, m ValueMatch, possible *regexp.Regexp) {
	switch {
	case !v.IsText():
	case m.Type == RegularExpression:
		checkRegex(v, m.Value)
	case m.Type == Prefix && m.Value == "":
		v.Fault("use type Present", "every value starts with the empty prefix")
	case !possible.MatchString(m.Value):
		v.Fault("", "%q has a character that values of headers do not have", m.Value)
	}
}
