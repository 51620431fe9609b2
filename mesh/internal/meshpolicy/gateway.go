package meshpolicy

import (
	"cmp"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

// The kinds of documents of the Kubernetes Gateway API that are policies, if their parents are services
// (GEP-1294, "xRoutes Mesh Binding").
const (
	GRPCRouteKind = "GRPCRoute"
	HTTPRouteKind = "HTTPRoute"
)

// NamespaceTag is the tag of clients with their namespace, to which consumer routes apply.
const NamespaceTag = "namespace"

// UnknownKind is what follows the name of a backend that is no Service, which begins with its kind. No service has such a name, so
// that RPCs fail.
const UnknownKind = ";unknown-kind"

func (r *reader) note(v document.Value, text string) {
	at := v.Position()
	r.notes = append(r.notes, Note{at.Line, at.Path, text})
}

// readRoute reads a route of the Gateway API.
func (r *reader) readRoute(doc document.Value) []*Policy {
	var spec document.Object
	problem := doc.Try(func() { spec = r.readRouteHead(doc) })
	rules := r.readRules(spec.Field("rules").Items())
	if len(spec.Field("rules").Items()) == 0 { // it is the default of an HTTPRoute, which Kubernetes writes into it
		matches, _ := r.readMatches(document.Value{})
		rules = []Rule{{Matches: matches, NoBackends: true}} // for all requests
	}
	at := doc.Position()
	all := Policy{Kind: r.kind, Name: r.kind + "/" + routeName(r.name, r.namespace), Source: Source{at.File, at.Line}}
	producer, consumer := r.parents(spec.Require("parentRefs"), rules)
	if problem != "" {
		return nil
	}
	var policies []*Policy
	if len(producer) > 0 {
		p := all
		p.To = producer
		policies = append(policies, &p)
	}
	if len(consumer) > 0 {
		p := all
		p.TargetRef, p.To = TargetRef{Tags: map[string]string{NamespaceTag: cmp.Or(r.namespace, "default")}}, consumer
		if len(producer) > 0 {
			p.Name += "/consumer"
		}
		policies = append(policies, &p)
	}
	if len(policies) > 0 {
		policies[0].Notes = r.notes
	}
	for i := range policies {
		policies[i] = New(*policies[i])
	}
	return policies
}

// readRouteHead reads what stands before the spec, and the hostnames.
func (r *reader) readRouteHead(doc document.Value) (spec document.Object) {
	o := doc.Object("apiVersion", "kind", "metadata", "spec", "status")
	o.Require("apiVersion").OneOf("gateway.networking.k8s.io/v1", "gateway.networking.k8s.io/v1beta1")
	metadata := readMetadata(o.Require("metadata"))
	r.name = readWord(metadata.Require("name"), "a name")
	r.namespace = metadata.Field("namespace").Text()
	spec = o.Require("spec").Object("parentRefs", "hostnames", "rules")
	if hosts := spec.Field("hostnames"); len(hosts.Items()) > 0 {
		r.note(hosts, "a route of the mesh is for its services under all names, so hostnames makes no difference")
	}
	return spec
}

// routeName is the unique name of a route: that of a service of the same name. The names of routes may have dots, where those of
// services and namespaces have none; with a dot the namespace is always written.
func routeName(name, namespace string) string {
	if strings.Contains(name, ".") {
		return name + "." + cmp.Or(namespace, "default")
	}
	return KubernetesName(name, namespace)
}

// parents returns the rules for the parents, those of a producer route and those of a consumer route.
func (r *reader) parents(v document.Value, rules []Rule) (producer, consumer []To) {
	seen := make(map[string]bool)
	for _, item := range v.Items() {
		o := item.Object("group", "kind", "namespace", "name", "sectionName", "port")
		if kind := o.Field("kind"); !r.isService(o) || !kind.Present() {
			r.note(item, "the parent is no Service, so the route is not for the mesh")
			continue
		}
		namespace, name := cmp.Or(o.Field("namespace").Text(), r.namespace), o.Require("name").Text()
		if r.inFolder {
			ReadServiceName(o.Field("name"))
		}
		home := r.serviceName(name, namespace, readPortAndSection(o))
		if seen[home] {
			r.note(item, "an earlier parent is the same service, and ports make no difference")
			continue
		}
		seen[home] = true
		to := To{TargetRef: TargetRef{Name: home}, Rules: slices.Clone(rules)}
		if KubernetesName(name, namespace) == KubernetesName(name, r.namespace) {
			producer = append(producer, to)
		} else {
			consumer = append(consumer, to)
		}
	}
	if v.IsList() && len(producer)+len(consumer) == 0 {
		v.Fault("add {group: \"\", kind: Service, name: …}", "no parent is a Service; routes of gateways are not for the mesh")
	}
	return producer, consumer
}

// readRoutePort reads the port of a reference, empty if it has none.
func readRoutePort(o document.Object) string {
	if port := o.Field("port"); !port.Absent() {
		return strconv.FormatUint(port.Uint(1, 65535), 10)
	}
	return ""
}

// readPortAndSection reads the port of a reference for a ServiceNaming.
func readPortAndSection(o document.Object) string {
	return JoinPort(readRoutePort(o), o.Field("sectionName").Text())
}

// JoinPort returns the port for a ServiceNaming of a reference that has a number, the name of a section, both or none.
func JoinPort(number, section string) string {
	return strings.Trim(number+":"+section, ":")
}

// isService reports whether group and kind are those of a Service, or absent. The group is "" in Kubernetes; folders know it as
// "core", too.
func (r *reader) isService(o document.Object) bool {
	group, kind := o.Field("group").Text(), o.Field("kind")
	return (group == "" || r.inFolder && group == "core") && (!kind.Present() || kind.Text() == "Service")
}

// anySegment matches a service or a method.
const anySegment = "[^/]+"

// grpcName matches the name of a service, with its package, or of a method: a segment of a path.
var grpcName = regexp.MustCompile(`^[!-.0->@-~]+$`)

// readGRPCMethod reads a GRPCMethodMatch as a condition on the path, /service/method. It is zero for all
// methods.
func readGRPCMethod(v document.Value) PathMatch {
	if !v.Present() {
		return PathMatch{}
	}
	o := v.Object("type", "service", "method")
	service, method := o.Field("service"), o.Field("method")
	expression := o.Field("type").OneOf("Exact", "RegularExpression") == RegularExpression.String()
	for i, field := range []document.Value{service, method} {
		if !field.IsText() {
			continue
		}
		switch name := field.Text(); {
		case name == "":
			field.Fault("leave it out to match all", "an empty name matches nothing")
		case !expression && !grpcName.MatchString(name):
			field.Fault("", "%q cannot be the name of a %s of gRPC", name, []string{"service", "method"}[i])
		}
	}
	valid := true
	part := func(v document.Value) string {
		switch {
		case !v.Present():
			return anySegment
		case expression:
			text, ok := readNameRegex(v)
			valid = valid && ok
			return "(?:" + text + ")"
		default:
			return regexp.QuoteMeta(v.Text())
		}
	}
	switch {
	case !service.Present() && !method.Present():
		o.Fault("leave out the condition to match all", "service or method is needed")
		return PathMatch{}
	case expression || !service.Present():
		whole := "/" + part(service) + "/" + part(method)
		if valid {
			checkRegex(v, whole)
		}
		return PathMatch{RegularExpression, whole}
	case !method.Present():
		return PathMatch{Prefix, "/" + service.Text()}
	default:
		return PathMatch{Exact, "/" + service.Text() + "/" + method.Text()}
	}
}

// readNameRegex reads an expression for the whole name of a service or method, without the anchors that it would not match with
// inside of one for a path. ok is false if there is an error.
func readNameRegex(v document.Value) (pattern string, ok bool) {
	if pattern = v.Text(); !checkRegex(v, pattern) {
		return "", false
	}
	tree, _ := syntax.Parse(pattern, syntax.Perl) // checkRegex found it to be valid
	before := tree.String()
	if !dropAnchors(tree, true, true) {
		v.Fault("leave ^ and $ out, as the expression is for the whole name", "%q has an anchor where no name begins or ends", pattern)
		return "", false
	}
	if after := tree.String(); after != before {
		return after, true
	}
	return pattern, true
}

// dropAnchors drops the anchors at the begin and the end of a text, where re stands if begin and end are set, and reports whether
// there are no others.
func dropAnchors(re *syntax.Regexp, begin, end bool) (ok bool) {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpBeginText:
		ok = begin
		*re = syntax.Regexp{Op: syntax.OpEmptyMatch}
		return ok
	case syntax.OpEndLine, syntax.OpEndText:
		ok = end
		*re = syntax.Regexp{Op: syntax.OpEmptyMatch}
		return ok
	case syntax.OpStar, syntax.OpPlus, syntax.OpRepeat:
		begin, end = false, false // it stands there only once
	}
	ok = true
	for i, sub := range re.Sub {
		concat := re.Op == syntax.OpConcat
		first := !concat || !slices.ContainsFunc(re.Sub[:i], hasWidth)
		last := !concat || !slices.ContainsFunc(re.Sub[i+1:], hasWidth)
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

// readRouteBackend reads a backendRef of a route.
func (r *reader) readRouteBackend(v document.Value, weighted bool) BackendRef {
	o := v.Object("group", "kind", "name", "namespace", "port", "weight", "filters")
	namespace, name := cmp.Or(o.Field("namespace").Text(), r.namespace), ReadServiceName(o.Require("name"))
	ref := BackendRef{Name: r.serviceName(name, namespace, readRoutePort(o)), Weight: 1}
	switch {
	case r.isService(o):
	case r.inFolder:
		v.Fault("name a Service", "a backend of the mesh is a Service")
	default:
		kind := strings.TrimSuffix(o.Field("kind").Text()+"."+o.Field("group").Text(), ".")
		ref.Name = kind + "/" + name + "." + namespace + UnknownKind
	}
	if w := o.Field("weight"); w.Present() {
		ref.Weight = uint32(w.Uint(0, 1_000_000))
	}
	for _, f := range r.readFilters(o.Field("filters")) {
		if f.Type == RequestHeaderModifier || f.Type == ResponseHeaderModifier {
			ref.Filters = append(ref.Filters, f)
		} else {
			o.Field("filters").Fault("write it as a filter of the rule", "a %s of a single backend is not supported", f.Type)
		}
	}
	if !weighted {
		ref.Weight = 0
	}
	return ref
}
