package meshpolicy

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/mesh/internal/document"
)

// readMatches reads a list of matches, or, in a MeshHTTPRoute, a single match, as in the decision record's examples. The default of an
// HTTPRoute, which Kubernetes writes into it, is the prefix "/". ok is false if it can read none.
func (r *reader) readMatches(v document.Value) (matches []Match, ok bool) {
	items := []document.Value{v}
	if r.isRoute || !v.IsObject() {
		items = v.Items()
	}
	for _, item := range items {
		var match Match
		if item.Try(func() { match = r.readMatch(item) }) == "" {
			matches = append(matches, match)
		}
	}
	if ok = len(matches) > 0 || len(items) == 0; len(matches) == 0 && r.kind == HTTPRouteKind {
		matches = []Match{{Path: PathMatch{Type: Prefix, Value: "/"}}}
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
	if r.kind == GRPCRouteKind {
		m.Path = readGRPCMethod(o.Field("method"))
	} else {
		m.Path, m.Methods = r.readPathMatch(o.Field("path")), readMethods(o)
	}
	m.Headers, m.Query = r.readConditions(o.Field("headers"), true), r.readConditions(o.Field("queryParams"), false)
	return m
}

// readMethods reads a list of methods or, as in Kuma, a single one.
func readMethods(o document.Object) (methods []string) {
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
	for _, item := range items {
		methods = append(methods, item.OneOf("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"))
	}
	return methods
}

// pathTypes are the types of conditions on the path, also where they are the name of the field. Kuma and the Gateway API call a Prefix
// PathPrefix.
var pathTypes = map[string]string{
	"Exact": Exact, "Prefix": Prefix, "PathPrefix": Prefix, "RegularExpression": RegularExpression,
	"exact": Exact, "prefix": Prefix, "regularExpression": RegularExpression,
}

// readPathMatch reads {type, value}, or, in a MeshHTTPRoute, {prefix: value} and the like, as in the decision record's examples.
func (r *reader) readPathMatch(v document.Value) PathMatch {
	types, fields := []string{"Exact", "Prefix", "PathPrefix", "RegularExpression"}, []string{"type", "value", "prefix", "exact", "regularExpression"}
	if r.isRoute {
		types, fields = []string{"Exact", "PathPrefix", "RegularExpression"}, fields[:2]
	}
	o := v.Object(fields...)
	for _, name := range o.Names() {
		if short := pathTypes[name]; short != "" && len(o.Names()) > 1 {
			o.Fault("write type and value", "%s has no other field beside it", name)
			return PathMatch{}
		} else if short != "" {
			return readPath(o.Field(name), short)
		}
	}
	kind, value, m := o.Field("type"), o.Field("value"), PathMatch{Type: Prefix, Value: "/"} // the default of an HTTPRoute
	if !r.isRoute {
		kind, value, m = o.Require("type"), o.Require("value"), PathMatch{}
	}
	if kind.Present() {
		m.Type = pathTypes[kind.OneOf(types...)]
	}
	if value.Present() && m.Type != "" {
		return readPath(value, m.Type)
	}
	return m
}

// readPath reads the value of a condition on the path.
func readPath(v document.Value, kind string) PathMatch {
	if kind == RegularExpression {
		return PathMatch{Type: kind, Value: readRegex(v)}
	}
	checkPath(v)
	return PathMatch{Type: kind, Value: v.Text()}
}

// pathOnly is a path without query and fragment.
var pathOnly = regexp.MustCompile(`^/[!"$->@-~]*$`)

// checkPath reports a text that is not a path.
func checkPath(v document.Value) {
	switch {
	case !v.IsText():
	case !strings.HasPrefix(v.Text(), "/"):
		v.Fault("put a / before it", "a path starts with /, and %q does not", v.Text())
	case !pathOnly.MatchString(v.Text()):
		v.Fault("", "the path %q has a character that paths do not have", v.Text())
	}
}

// maxRegexCost bounds regular expressions, in instructions. dynxds rejects resources with ones that are more than twice as large.
const maxRegexCost = 20_000

// readRegex reads a regular expression.
func readRegex(v document.Value) string {
	if v.IsText() {
		parseRegex(v, v.Text())
	}
	return v.Text()
}

// parseRegex parses a regular expression. It reports one that clients would reject, and returns nil.
func parseRegex(v document.Value, pattern string) *syntax.Regexp {
	if pattern == "" || len(pattern) > matching.MaxRegexLength {
		v.Fault("", "a regular expression has from 1 to %d bytes, this one has %d", matching.MaxRegexLength, len(pattern))
		return nil
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		v.Fault("see https://github.com/google/re2/wiki/Syntax", "%q is not a regular expression of RE2: %v", pattern, err)
		return nil
	}
	if matching.RegexCost(tree) > maxRegexCost {
		v.Fault("", "the regular expression %q is too large; repetitions multiply", pattern)
		return nil
	}
	return tree
}

var parameterName = regexp.MustCompile(`^[!-~]+$`)

// readConditions reads conditions on headers or on parameters, which are Exact unless they have a type, as in Kuma. Of several of a route
// with the same name the first one applies (HTTPRouteMatch.headers).
func (r *reader) readConditions(v document.Value, onHeaders bool) (all []ValueMatch) {
	types := []string{Exact, RegularExpression}
	if onHeaders && !r.isRoute {
		types = []string{Exact, Prefix, RegularExpression, Present, Absent}
	}
	for _, item := range v.Items() {
		o := item.Object("type", "name", "value")
		m, value := ValueMatch{Type: Exact}, o.Field("value")
		if name := o.Require("name"); onHeaders {
			m.Name = ReadHeaderName(name)
		} else {
			m.Name = readText(name, parameterName, "", "%q cannot be the name of a query parameter")
		}
		if t := o.Field("type"); t.Present() {
			m.Type = t.OneOf(types...)
		}
		switch {
		case m.Type == "":
		case m.Type == Present || m.Type == Absent:
			value.Fault("leave it out", "a condition of type %s has no value", m.Type)
		case !value.Present():
			o.Fault("", "a condition of type %s needs the field \"value\"", m.Type)
		case m.Type == RegularExpression:
			m.Value = readRegex(value)
		case m.Type == Prefix && value.IsText() && value.Text() == "":
			value.Fault("use type Present", "every value starts with the empty prefix")
		default:
			if m.Value = value.Text(); onHeaders && !headerValue.MatchString(m.Value) {
				value.Fault("", "%q has a character that values of headers do not have", m.Value)
			}
		}
		if !r.isRoute || !slices.ContainsFunc(all, func(o ValueMatch) bool { return o.Name == m.Name }) {
			all = append(all, m)
		}
	}
	checkContradiction(v, all)
	return all
}

// checkContradiction finds contradictory conditions on one name.
func checkContradiction(v document.Value, all []ValueMatch) {
	for i, a := range all {
		for _, b := range all[:i] {
			if a.Name == b.Name && ((a.Type == Absent) != (b.Type == Absent) || a.Type == Exact && b.Type == Exact && a.Value != b.Value) {
				v.Fault("use two matches if either will do", "nothing can match both %q and %q", b, a)
			}
		}
	}
}

// anySegment matches a service or a method.
const anySegment = "[^/]+"

// grpcName matches the name of a service, with its package, or of a method: a segment of a path.
var grpcName = regexp.MustCompile(`^[!-.0->@-~]+$`)

// readGRPCMethod reads a GRPCMethodMatch as a condition on the path, /service/method. It is zero for all
// methods.
func readGRPCMethod(v document.Value) PathMatch {
	o := v.Object("type", "service", "method")
	isRegex := o.Field("type").OneOf("Exact", "RegularExpression") == RegularExpression
	var names, patterns [2]string
	for i, part := range []string{"service", "method"} {
		field := o.Field(part)
		names[i] = field.Text()
		patterns[i] = regexp.QuoteMeta(names[i])
		switch {
		case !field.IsText():
			patterns[i] = anySegment
		case names[i] == "":
			field.Fault("leave it out to match all", "an empty name matches nothing")
		case isRegex:
			patterns[i] = "(?:" + readNameRegex(field) + ")"
		case !grpcName.MatchString(names[i]):
			field.Fault("", "%q cannot be the name of a %s of gRPC", names[i], part)
		}
	}
	service, method := o.Field("service").Present(), o.Field("method").Present()
	switch {
	case !service && !method:
		o.Fault("leave out the condition to match all", "service or method is needed")
		return PathMatch{}
	case isRegex || !service:
		whole := "/" + patterns[0] + "/" + patterns[1]
		parseRegex(v, whole)
		return PathMatch{RegularExpression, whole, len(names[0]) - 1}
	case !method:
		return PathMatch{Type: Prefix, Value: "/" + names[0]}
	default:
		return PathMatch{Type: Exact, Value: "/" + names[0] + "/" + names[1]}
	}
}

// readNameRegex reads an expression for the whole name of a service or method, without the anchors that it would not match with
// inside of one for a path. It is empty if there is an error.
func readNameRegex(v document.Value) string {
	tree := parseRegex(v, v.Text())
	if tree == nil {
		return ""
	}
	before := tree.String()
	switch anchored := dropAnchors(tree, true, true); {
	case !anchored:
		v.Fault("leave ^ and $ out, as the expression is for the whole name", "%q has an anchor where no name begins or ends", v.Text())
		return ""
	case tree.String() != before:
		return tree.String()
	}
	return v.Text()
}

// dropAnchors drops the anchors at the begin and the end of a text, where re stands if begin and end are set, and reports whether
// there are no others.
func dropAnchors(re *syntax.Regexp, begin, end bool) (ok bool) {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpBeginText:
		*re = syntax.Regexp{Op: syntax.OpEmptyMatch}
		return begin
	case syntax.OpEndLine, syntax.OpEndText:
		*re = syntax.Regexp{Op: syntax.OpEmptyMatch}
		return end
	case syntax.OpStar, syntax.OpPlus, syntax.OpRepeat:
		begin, end = false, false // it stands there only once
	}
	ok = true
	for i, sub := range re.Sub {
		first := re.Op != syntax.OpConcat || !slices.ContainsFunc(re.Sub[:i], hasWidth)
		last := re.Op != syntax.OpConcat || !slices.ContainsFunc(re.Sub[i+1:], hasWidth)
		ok = dropAnchors(sub, begin && first, end && last) && ok
	}
	return ok
}

// hasWidth reports whether an expression may match text.
func hasWidth(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpBeginText, syntax.OpEndLine, syntax.OpEndText:
		return false
	}
	return true
}
