package meshpolicy

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

// The kinds of references to destinations and to backends; kinds are those of references to clients. A kind of services has a name, and one
// of a subset has tags.
var (
	destinationKinds = []string{"Mesh", "MeshService"}
	backendKinds     = []string{"MeshService", "MeshServiceSubset"}
)

// kumaKinds are the kinds of Kuma that the decision record does not have.
var kumaKinds = map[string]string{"MeshMultiZoneService": "MeshService", "MeshExternalService": "MeshService", "Dataplane": "MeshSubset"}

// Labels of Kuma that have the meaning of fields elsewhere.
const (
	kumaNameLabel      = "kuma.io/display-name"
	kumaNamespaceLabel = "k8s.kuma.io/namespace"
	kumaServiceTag     = "kuma.io/service"
	kumaMeshLabel      = "kuma.io/mesh"
)

// readRef reads a reference of one of the kinds, in the decision record's form or in Kuma's. The object is for fields of its own (more).
func (r *reader) readRef(v document.Value, kinds []string, more ...string) (ref TargetRef, o document.Object) {
	o = v.Object(append([]string{"kind", "name", "tags", "namespace", "labels", "sectionName"}, more...)...)
	for _, item := range o.Field("proxyTypes").Items() {
		item.OneOf("Sidecar", "Gateway")
	}
	kind, written := readKind(o.Require("kind"), kinds)
	name, tags, labels := o.Field("name"), o.Field("tags"), o.Field("labels")
	namespace, port := o.Field("namespace").Text(), readPort(o)
	isService := strings.HasPrefix(kind, "MeshService")
	ref.Name = ReadServiceName(name)
	switch {
	case written == "Dataplane": // its labels are tags
		if labels.Present() {
			tags, labels = labels, document.Value{}
		}
		if !tags.Present() {
			kind = "Mesh"
		}
	case isService && labels.Present():
		service := labels.Object(kumaNameLabel, kumaNamespaceLabel)
		if name.Present() {
			labels.Fault("keep one of the two", "name and labels both name the service")
		}
		ref.Name, namespace = ReadServiceName(service.Require(kumaNameLabel)), service.Field(kumaNamespaceLabel).Text()
	}
	if tags.Present() {
		ref.Tags = ReadTags(tags)
		if kind == "MeshService" && !slices.Contains(kinds, "Mesh") { // an example of the decision record has a backend so
			kind = "MeshServiceSubset"
		}
	}
	if kind != "" {
		checkRef(o, kind, written, tags, labels)
	}
	if service := ref.Tags[kumaServiceTag]; service != "" && ref.Name == "" {
		ref.Name = service
		if delete(ref.Tags, kumaServiceTag); len(ref.Tags) == 0 {
			ref.Tags = nil
		}
	}
	if ref.Name != "" {
		ref.Name = r.serviceName(ref.Name, namespace, port)
	}
	return ref, o
}

// readKind reads one of the kinds, or one of Kuma's that amounts to one of them.
func readKind(v document.Value, kinds []string) (kind, written string) {
	if v.IsText() && slices.Contains(kinds, kumaKinds[v.Text()]) {
		return kumaKinds[v.Text()], v.Text()
	}
	kind = v.OneOf(kinds...)
	return kind, kind
}

// checkRef reports fields that the kind requires or does not allow.
func checkRef(o document.Object, kind, written string, tags, labels document.Value) {
	name, isService, isSubset := o.Field("name"), strings.HasPrefix(kind, "MeshService"), strings.HasSuffix(kind, "Subset")
	switch {
	case isService && !name.Present() && !labels.Present():
		o.Fault("", "a %s needs the field \"name\"", kind)
	case !isService && name.Present():
		name.Fault("leave it out, or use kind MeshService", "a %s has no name", written)
	}
	if !isService && labels.Present() {
		labels.Fault("use kind Dataplane", "a %s has no labels", kind)
	}
	switch {
	case isSubset && !tags.Present():
		o.Fault("", "a %s needs the field \"tags\"", kind)
	case isSubset && tags.IsObject() && len(tags.Object().Names()) == 0:
		tags.Fault("", "a %s needs at least one tag", kind)
	case !isSubset && tags.Present():
		tags.Fault("use kind MeshServiceSubset or MeshSubset", "a %s has no tags", kind)
	}
}

// KubernetesName is the name in the mesh of a service of Kubernetes: its own, followed, if the namespace is
// neither empty nor "default", by a dot and the namespace, as in Kubernetes' DNS.
func KubernetesName(name, namespace string) string {
	if namespace == "" || namespace == "default" {
		return name
	}
	return name + "." + namespace
}

// readPort reads the port of a reference for a ServiceNaming.
func readPort(o document.Object) string {
	number := ""
	if port := o.Field("port"); port.Present() {
		number = strconv.FormatUint(port.Uint(1, 65535), 10)
	}
	return JoinPort(number, o.Field("sectionName").Text())
}

// JoinPort returns the port for a ServiceNaming of a reference that has a number, the name of a section, both or none.
func JoinPort(number, section string) string {
	return strings.Trim(number+":"+section, ":")
}

// readBackendRef reads one destination, whose weight is 1 if it is not given. One of a MeshHTTPRoute has a weight only if that is among
// the fields (more).
func (r *reader) readBackendRef(v document.Value, more ...string) BackendRef {
	if r.isRoute {
		return r.readRouteBackend(v)
	}
	ref, o := r.readRef(v, backendKinds, append([]string{"port"}, more...)...)
	to := BackendRef{Name: ref.Name, Tags: ref.Tags, TagLines: make(map[string]int, len(ref.Tags)), Weight: readWeight(o, math.MaxUint32)}
	for key := range ref.Tags {
		to.TagLines[key] = o.Field("tags").Peek(key).Position().Line
	}
	return to
}

func readWeight(o document.Object, highest uint64) uint32 {
	if weight := o.Field("weight"); weight.Present() {
		return uint32(weight.Uint(0, highest))
	}
	return 1
}

var tagKey = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?$`)

// ReadTags reads the tags of clients or endpoints.
func ReadTags(v document.Value) map[string]string {
	o := v.Object()
	tags := make(map[string]string)
	for _, key := range o.Names() {
		field := o.Field(key)
		if !tagKey.MatchString(key) || len(key) > maxWord {
			field.Fault(NameRule+" /", "%q cannot be the name of a tag", key)
		}
		switch key {
		case SpecificityKey:
			field.Fault("rename the tag", "%q is what variants of resources are ordered by, and cannot be a tag", key)
		case RoutesKey, AddressesKey:
			field.Fault("rename the tag", "%q says what a client's implementation takes, and cannot be a tag", key)
		case NamespaceKey, ZoneKey, NodeKey:
			field.Fault("use the tag "+placeTags[key], "%q selects variants by where a client runs, and cannot be a tag", key)
		case ServiceKey:
			field.Fault("use kind MeshService or MeshServiceSubset with a name", "%q is the service itself, and cannot be a tag", key)
		}
		tags[key] = readWord(field, "the value of a tag")
	}
	return tags
}
