package meshpolicy

import (
	"cmp"
	"slices"
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

// NoGrant is what follows the name of a backend that no ReferenceGrant allows. No service has such a name, so that RPCs fail.
const NoGrant = ";no-reference-grant"

func (r *reader) note(v document.Value, text string) {
	note := v.Position()
	note.Problem = text
	r.notes = append(r.notes, note)
}

// readRoute reads a route of the Gateway API. ok is false if what stands before its rules has an error.
func (r *reader) readRoute(doc document.Value) (p Policy, ok bool) {
	var spec document.Object
	problem := doc.Try(func() { spec = r.readRouteHead(doc) })
	rules := r.readRules(spec.Field("rules").Items())
	if len(spec.Field("rules").Items()) == 0 { // it is the default of an HTTPRoute, which Kubernetes writes into it
		matches, _ := r.readMatches(document.Value{})
		rules = []Rule{{Matches: matches, NoBackends: true}} // for all requests
	}
	at := doc.Position()
	p = Policy{Kind: r.kind, Name: r.kind + "/" + routeName(r.name, r.namespace), Source: Source{at.File, at.Line}}
	p.To = r.parents(spec.Require("parentRefs"), rules)
	return p, problem == ""
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

// parents returns the rules for the parents: for all clients as those of a producer route, or as those of a consumer route.
func (r *reader) parents(v document.Value, rules []Rule) (list []To) {
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
		home := r.serviceName(name, namespace, readPort(o))
		if seen[home] {
			r.note(item, "an earlier parent is the same service, and ports make no difference")
			continue
		}
		seen[home] = true
		to := To{TargetRef: TargetRef{Name: home}, Rules: slices.Clone(rules)}
		if KubernetesName(name, namespace) != KubernetesName(name, r.namespace) {
			to.Clients.Tags = map[string]string{NamespaceTag: cmp.Or(r.namespace, "default")}
		}
		list = append(list, to)
	}
	if v.IsList() && len(list) == 0 {
		v.Fault("add {group: \"\", kind: Service, name: …}", "no parent is a Service; routes of gateways are not for the mesh")
	}
	return list
}

// isService reports whether group and kind are those of a Service, or absent. The group is "" in Kubernetes; folders know it as
// "core", too.
func (r *reader) isService(o document.Object) bool {
	group, kind := o.Field("group").Text(), o.Field("kind")
	return (group == "" || r.inFolder && group == "core") && (!kind.Present() || kind.Text() == "Service")
}

// readRouteBackend reads a backendRef of a route.
func (r *reader) readRouteBackend(v document.Value) BackendRef {
	o := v.Object("group", "kind", "name", "namespace", "port", "weight", "filters")
	namespace, name := cmp.Or(o.Field("namespace").Text(), r.namespace), ReadServiceName(o.Require("name"))
	ref := BackendRef{Name: r.serviceName(name, namespace, readPort(o)), Weight: readWeight(o, 1_000_000)}
	switch {
	case r.isService(o):
	case r.inFolder:
		v.Fault("name a Service", "a backend of the mesh is a Service")
	default:
		kind := strings.TrimSuffix(o.Field("kind").Text()+"."+o.Field("group").Text(), ".")
		ref.Name = kind + "/" + name + "." + namespace + UnknownKind
	}
	for _, f := range r.readFilters(o.Field("filters")) {
		if f.Headers == nil {
			o.Field("filters").Fault("write it as a filter of the rule", "a %s of a single backend is not supported", f.Type)
		}
		ref.Filters = append(ref.Filters, f)
	}
	return ref
}
