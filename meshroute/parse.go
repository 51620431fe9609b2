package meshroute

import (
	"regexp"

	"github.com/dynxds/dynxds/internal/document"
)

// PolicyKind is the kind (or type) of a document that is a policy.
const PolicyKind = "MeshHTTPRoute"

// Parse reads the policies in a file of YAML documents or JSON. The error is a
// *[Faults] with all that is wrong, each with file, line, path and, where there is
// one, a suggestion; policies without a fault are returned all the same. A document
// without a kind is a policy too.
//
// name is for faults and for the Source of the policies.
func Parse(name string, data []byte) ([]*Policy, error) {
	var faults Faults
	var policies []*Policy
	for _, doc := range document.Parse(name, data, &faults) {
		if p := ParseDocument(doc, &faults); p != nil {
			policies = append(policies, p)
		}
	}
	return policies, faults.Err()
}

// ParseDocument is Parse for one document of a file, which was read with these
// faults. It returns nil if the document has any.
func ParseDocument(doc document.Value, faults *Faults) *Policy {
	before := faults.Total()
	p := readPolicy(doc)
	if faults.Total() > before {
		return nil
	}
	p.seal()
	return p
}

// readPolicy reads a policy in either of the forms that Kuma has: with its name at
// the top, or in metadata.
func readPolicy(doc document.Value) *Policy {
	o := doc.Object("apiVersion", "kind", "type", "mesh", "name", "metadata", "spec")
	for _, field := range []string{"kind", "type"} {
		o.Field(field).OneOf(PolicyKind)
	}
	o.Field("apiVersion").OneOf("kuma.io/v1alpha1")
	o.Field("mesh").OneOf("default")
	spec := o.Require("spec").Object("targetRef", "to")
	p := &Policy{Name: readName(o), Source: Source{doc.File(), doc.Line()}}
	if ref := spec.Field("targetRef"); ref.Present() {
		p.TargetRef = ReadTargetRef(ref)
	}
	seen := make(map[string]int)
	to := spec.Require("to")
	for _, item := range to.Items() {
		t := readTo(item)
		key := keyOf(t.TargetRef)
		if first, twice := seen[key]; twice {
			item.Fault("join their rules", "the destination is that of to[%d]", first)
		}
		seen[key] = len(p.To)
		p.To = append(p.To, t)
	}
	if to.IsList() && len(p.To) == 0 {
		to.Fault("", "a policy needs at least one destination")
	}
	return p
}

// readName reads the name, which stands at the top or in metadata. Labels and
// annotations are for tools of the user's.
func readName(o document.Object) string {
	metadata := o.Field("metadata").Object("name", "namespace", "labels", "annotations")
	metadata.Field("namespace").Text()
	metadata.Field("labels").Texts()
	metadata.Field("annotations").Texts()
	top, inner := o.Field("name"), metadata.Field("name")
	switch {
	case top.Present() && inner.Present() && top.Text() != inner.Text():
		inner.Fault("keep one of the two", "the name differs from that at the top, %q", top.Text())
		return ""
	case top.Present():
		return readWord(top, "a name")
	case inner.Present():
		return readWord(inner, "a name")
	case o.IsObject():
		o.Fault("add metadata: {name: …}", "the policy has no name")
	}
	return ""
}

var word = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// maxWord bounds names and the values of tags, in bytes.
const maxWord = 253

const wordRule = "use letters, digits and, inside, - _ ."

// readWord reads a name of a policy or service.
func readWord(v document.Value, what string) string {
	if !v.IsText() {
		return v.Text()
	}
	text := v.Text()
	switch {
	case len(text) > maxWord:
		v.Fault("", "this has %d bytes, and %s at most %d", len(text), what, maxWord)
	case !word.MatchString(text):
		v.Fault(wordRule, "%q cannot be %s", text, what)
	}
	return text
}

// ReadServiceName reads the name of a service.
func ReadServiceName(v document.Value) string { return readWord(v, "the name of a service") }

// ReadTargetRef reads a targetRef of clients.
func ReadTargetRef(v document.Value) TargetRef {
	return readRef(v, MeshAll, MeshSubset, MeshService, MeshServiceSubset)
}

// ReadDestination reads a targetRef of destinations.
func ReadDestination(v document.Value) TargetRef {
	return readRef(v, MeshAll, MeshService)
}

func readRef(v document.Value, kinds ...Kind) TargetRef {
	o := v.Object("kind", "name", "tags")
	ref, ok := refFields(o, kinds...)
	if ok {
		checkRef(o, ref.Kind)
	}
	return ref
}

// refFields reads the fields of a reference to things of some kinds. It reports
// whether its kind is one of them.
func refFields(o document.Object, kinds ...Kind) (TargetRef, bool) {
	kind, ok := readKind(o.Require("kind"), kinds)
	ref := TargetRef{Kind: kind}
	if name := o.Field("name"); name.Present() {
		ref.Name = ReadServiceName(name)
	}
	if tags := o.Field("tags"); tags.Present() {
		ref.Tags = ReadTags(tags)
	}
	return ref, ok
}

// checkRef reports fields that the kind needs, or cannot have.
func checkRef(o document.Object, kind Kind) {
	name, tags := o.Field("name"), o.Field("tags")
	wantName, wantTags := kind == MeshService || kind == MeshServiceSubset, kind == MeshSubset || kind == MeshServiceSubset
	switch {
	case wantName && !name.Present():
		o.Fault("", "a %s needs the field \"name\"", kind)
	case !wantName && name.Present():
		name.Fault("leave it out, or use kind MeshService", "a %s has no name", kind)
	}
	switch {
	case wantTags && !tags.Present():
		o.Fault("", "a %s needs the field \"tags\"", kind)
	case wantTags && tags.IsObject() && len(tags.Object().Names()) == 0:
		tags.Fault("", "a %s needs at least one tag", kind)
	case !wantTags && tags.Present():
		tags.Fault("use kind MeshServiceSubset or MeshSubset", "a %s has no tags", kind)
	}
}

func readKind(v document.Value, kinds []Kind) (Kind, bool) {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.String()
	}
	name := v.OneOf(names...)
	for i, n := range names {
		if n == name {
			return kinds[i], true
		}
	}
	return MeshAll, false
}

var tagKey = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?$`)

// ReadTags reads the tags of clients or endpoints.
func ReadTags(v document.Value) map[string]string {
	o := v.Object()
	tags := make(map[string]string)
	for _, key := range o.Names() {
		field := o.Field(key)
		if !tagKey.MatchString(key) || len(key) > maxWord {
			field.Fault(wordRule+" /", "%q cannot be the name of a tag", key)
		}
		switch key {
		case SpecificityKey:
			field.Fault("rename the tag", "%q is what variants of resources are ordered by, and cannot be a tag", key)
		case RoutesKey, AddressesKey:
			field.Fault("rename the tag", "%q says what a client's implementation takes, and cannot be a tag", key)
		case ServiceKey:
			field.Fault("use kind MeshService or MeshServiceSubset with a name", "%q is the service itself, and cannot be a tag", key)
		}
		tags[key] = readWord(field, "the value of a tag")
	}
	return tags
}

// readTo reads a destination with its rules: to[].rules, or to[].default.rules as in
// the decision record.
func readTo(v document.Value) To {
	o := v.Object("targetRef", "rules", "default")
	t := To{TargetRef: ReadDestination(o.Require("targetRef"))}
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
	seen := make(map[string]int)
	for i, item := range rules.Items() {
		rule := readRule(item)
		key := keyOf(rule.Matches)
		if first, twice := seen[key]; twice {
			item.Fault("join the two", "the matches are those of rules[%d]", first)
		}
		seen[key] = i
		t.Rules = append(t.Rules, rule)
	}
	if rules.IsList() && len(t.Rules) == 0 {
		rules.Fault("", "a destination needs at least one rule")
	}
	return t
}
