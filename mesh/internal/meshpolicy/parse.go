package meshpolicy

import (
	"cmp"
	"regexp"
	"slices"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

// DocumentKind is the kind (or type) of a document that is a policy.
const DocumentKind = "MeshHTTPRoute"

// APIVersion is that of policies as resources of Kubernetes, which a folder takes as well as Kuma's.
const APIVersion = "dynxds.io/v1alpha1"

// Parse reads the policies in a file of YAML documents or JSON. A document without a kind is a policy
// too. The error is a *[document.Faults]; policies without an error are returned even so. name is the
// file name in errors and in the Source of the policies.
func Parse(name string, data []byte) (policies []*Policy, err error) {
	var faults document.Faults
	for _, doc := range document.Parse(name, data, &faults) {
		if p := Read(doc, DocumentKind, nil); p != nil {
			policies = append(policies, p)
		}
	}
	return policies, faults.Err()
}

// ServiceNaming makes the name in the mesh of a service of Kubernetes, or of one of its ports. port is a number or the port's name,
// or NUMBER:NAME if a reference has both, and both must be those of the port; empty: none was named.
type ServiceNaming func(name, namespace, port string) string

// Read reads a document of a kind: a MeshHTTPRoute, or a route of the Gateway API, whose producer routes, which are in the namespace of
// their service, are for all clients, and whose consumer routes are for those of their own namespace.
//
// naming is for a cluster, where an object stays that has errors: a rule with an error fails its requests, and so does a backend of a route
// that is no Service, whose name ends with UnknownKind. The other rules and backends are used, unless nobody can say for which requests
// they are: then there is no policy (nil). A naming of nil is for a folder: services have no ports there, and a document with an error is
// no policy.
func Read(doc document.Value, kind string, naming ServiceNaming) *Policy {
	r := reader{kind: kind, isRoute: kind != DocumentKind, serviceName: naming}
	if naming == nil {
		r.inFolder, r.serviceName = true, func(name, namespace, _ string) string { return KubernetesName(name, namespace) }
	}
	read := r.readPolicy
	if r.isRoute {
		read = r.readRoute
	}
	var p Policy
	ok := false
	problem := doc.Try(func() { p, ok = read(doc) })
	if !ok || len(p.To) == 0 || r.inFolder && problem != "" {
		return nil
	}
	p.Notes = r.notes
	return New(p)
}

// reader reads one document.
type reader struct {
	kind string
	// isRoute says that it is of the Gateway API.
	isRoute     bool
	serviceName ServiceNaming
	// inFolder says that nobody but the reader looks whether references are to Services that there can be.
	inFolder bool
	// name and namespace are those of a route, and notes are on it.
	name, namespace string
	notes           []document.Fault
}

// readPolicy reads a MeshHTTPRoute. ok is false if what stands before its destinations has an error.
func (r *reader) readPolicy(doc document.Value) (p Policy, ok bool) {
	var clients TargetRef
	var to []document.Value
	problem := doc.Try(func() { p, clients, to = r.readHead(doc) })
	p.To = r.readDestinations(to, clients)
	return p, problem == ""
}

// readHead reads a policy in either form of Kuma, but for its destinations: with its name at the top, or in metadata. What Kuma
// and Kubernetes add when they print it is ignored.
func (r *reader) readHead(doc document.Value) (p Policy, clients TargetRef, to []document.Value) {
	o := doc.Object("apiVersion", "kind", "type", "mesh", "name", "metadata", "spec", "labels", "status", "kri", "creationTime", "modificationTime")
	for _, field := range []string{"kind", "type"} {
		o.Field(field).OneOf(DocumentKind)
	}
	o.Field("apiVersion").OneOf("kuma.io/v1alpha1", APIVersion)
	o.Field("mesh").OneOf("default")
	o.Field("labels").Texts()
	for _, labels := range []document.Value{o.Field("labels"), o.Field("metadata").Peek("labels")} {
		labels.Peek(kumaMeshLabel).OneOf("default")
	}
	spec := o.Require("spec").Object("targetRef", "to")
	at := doc.Position()
	p = Policy{Name: readName(o), Source: Source{at.File, at.Line}}
	clients, _ = r.readRef(spec.Field("targetRef"), kinds, "proxyTypes")
	return p, clients, spec.Require("to").NonEmpty("a list with at least one destination")
}

// readDestinations reads the destinations that have rules. One that is there twice has the rules of both, though it is an error.
func (r *reader) readDestinations(items []document.Value, clients TargetRef) (list []To) {
	at := make(map[string]int)
	for i, item := range items {
		t, ok := r.readTo(item)
		t.Index, t.Clients = i, clients
		first, twice := at[t.TargetRef.Name]
		switch {
		case !ok:
		case twice:
			item.Fault("join their rules", "the destination is that of to[%d]", list[first].Index)
			for _, rule := range t.Rules {
				if !slices.ContainsFunc(list[first].Rules, func(o Rule) bool { return Key(o.Matches) == Key(rule.Matches) }) {
					list[first].Rules = append(list[first].Rules, rule)
				}
			}
		default:
			at[t.TargetRef.Name] = len(list)
			list = append(list, t)
		}
	}
	return list
}

// readName reads the name at the top or in metadata.
func readName(o document.Object) string {
	top, inner := o.Field("name"), readMetadata(o.Field("metadata")).Field("name")
	if top.Present() && inner.Present() && top.Text() != inner.Text() {
		inner.Fault("keep one of the two", "the name differs from that at the top, %q", top.Text())
		return ""
	}
	name := cmp.Or(top, inner)
	if !name.Present() && o.IsObject() {
		o.Fault("add metadata: {name: …}", "the policy has no name")
	}
	return readWord(name, "a name")
}

// readMetadata reads the metadata of a document. Only name and namespace are for us: the other fields are for other
// tools, or what Kubernetes adds.
func readMetadata(v document.Value) document.Object {
	o := v.Object("name", "namespace", "labels", "annotations", "generateName", "creationTimestamp", "deletionTimestamp",
		"deletionGracePeriodSeconds", "generation", "resourceVersion", "uid", "selfLink", "managedFields", "ownerReferences", "finalizers")
	o.Field("namespace").Text()
	o.Field("labels").Texts()
	o.Field("annotations").Texts()
	return o
}

var word = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// maxWord bounds names and the values of tags, in bytes.
const maxWord = 253

// NameRule describes names and the values of tags.
const NameRule = "use letters, digits and, inside, - _ ."

// IsName reports whether a text can be the name of a service or policy, except for its length.
func IsName(text string) bool { return word.MatchString(text) }

// readWord reads a name of a policy or service.
func readWord(v document.Value, what string) string {
	text := v.Text()
	if len(text) > maxWord {
		v.Fault("", "this has %d bytes, and %s at most %d", len(text), what, maxWord)
	} else if v.IsText() && !word.MatchString(text) {
		v.Fault(NameRule, "%q cannot be %s", text, what)
	}
	return text
}

// readText reads a text that matches a pattern. problem has a %q for one that does not.
func readText(v document.Value, pattern *regexp.Regexp, suggestion, problem string) string {
	if v.IsText() && !pattern.MatchString(v.Text()) {
		v.Fault(suggestion, problem, v.Text())
	}
	return v.Text()
}

// ReadServiceName reads the name of a service.
func ReadServiceName(v document.Value) string { return readWord(v, "the name of a service") }

// readTo reads a destination with its rules: to[].rules, or to[].default.rules as in the decision
// record. ok is false if it has no rule that can be used, or no destination that can be read.
func (r *reader) readTo(v document.Value) (t To, ok bool) {
	o := v.Object("targetRef", "rules", "default")
	known := v.Try(func() { t.TargetRef, _ = r.readRef(o.Require("targetRef"), destinationKinds, "proxyTypes") }) == ""
	direct, inner := o.Field("rules"), o.Field("default")
	rules := direct
	switch {
	case direct.Present() && inner.Present():
		inner.Fault("keep one of the two", "rules and default.rules say the same thing")
	case inner.Present():
		rules = inner.Object("rules").Require("rules")
	case !direct.Present():
		o.Fault("", "the field \"rules\" is missing")
	}
	t.Rules = r.readRules(rules.NonEmpty("a list with at least one rule"))
	return t, known && len(t.Rules) > 0
}
