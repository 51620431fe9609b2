package meshpolicy

import (
	"regexp"
	"slices"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

func (r *reader) readClients(v document.Value) TargetRef {
	return r.readRef(v, everything, meshSubset, meshService, meshServiceSubset)
}

func (r *reader) readDestination(v document.Value) TargetRef {
	return r.readRef(v, everything, meshService)
}

// refNames are the fields of references, including the ones that only Kuma has.
var refNames = []string{"kind", "name", "tags", "namespace", "labels", "sectionName"}

func (r *reader) readRef(v document.Value, kinds ...kind) TargetRef {
	o := v.Object(append(slices.Clone(refNames), "proxyTypes")...)
	for _, item := range o.Field("proxyTypes").Items() {
		item.OneOf("Sidecar", "Gateway")
	}
	ref, kind, ok := r.refFields(o, kinds...)
	if ok {
		checkRef(o, kind)
	}
	return ref
}

// kumaKinds are the kinds of Kuma that the decision record does not have.
var kumaKinds = map[string]kind{"MeshMultiZoneService": meshService, "MeshExternalService": meshService, "Dataplane": meshSubset}

// Labels of Kuma that have the meaning of fields elsewhere.
const (
	kumaNameLabel      = "kuma.io/display-name"
	kumaNamespaceLabel = "k8s.kuma.io/namespace"
	kumaServiceTag     = "kuma.io/service"
	kumaMeshLabel      = "kuma.io/mesh"
)

// refFields reads the fields of a reference, and reports whether its kind is one of these.
func (r *reader) refFields(o document.Object, kinds ...kind) (ref TargetRef, k kind, ok bool) {
	k, ok = readKind(o.Require("kind"), kinds)
	ref.Name = ReadServiceName(o.Field("name"))
	if tags := o.Field("tags"); tags.Present() {
		ref.Tags = ReadTags(tags)
	}
	namespace := o.Field("namespace").Text()
	port := readPortAndSection(o)
	switch labels := o.Field("labels"); {
	case !labels.Present():
	case k.hasName():
		ref.Name, namespace = readServiceLabels(labels, o.Field("name").Present())
	default:
		ref.Tags = ReadTags(labels)
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
	return ref, k, ok
}

// readKind reads one of the kinds, or one of Kuma's that amounts to one of them.
func readKind(v document.Value, kinds []kind) (k kind, ok bool) {
	if v.IsText() {
		if k, known := kumaKinds[v.Text()]; known && slices.Contains(kinds, k) {
			return k, true
		}
	}
	return readOneOf(v, kinds...)
}

// readServiceLabels reads the labels by which Kuma names a service.
func readServiceLabels(v document.Value, named bool) (name, namespace string) {
	o := v.Object(kumaNameLabel, kumaNamespaceLabel)
	if named {
		v.Fault("keep one of the two", "name and labels both name the service")
	}
	return ReadServiceName(o.Require(kumaNameLabel)), o.Field(kumaNamespaceLabel).Text()
}

// KubernetesName is the name in the mesh of a service of Kubernetes: its own, followed, if the namespace is
// neither empty nor "default", by a dot and the namespace, as in Kubernetes' DNS.
func KubernetesName(name, namespace string) string {
	if namespace == "" || namespace == "default" {
		return name
	}
	return name + "." + namespace
}

// checkRef reports fields that the kind requires or does not allow.
func checkRef(o document.Object, k kind) {
	name, tags, labels := o.Field("name"), o.Field("tags"), o.Field("labels")
	switch {
	case k.hasName() && !name.Present() && !labels.Present():
		o.Fault("", "a %s needs the field \"name\"", k)
	case !k.hasName() && name.Present():
		name.Fault("leave it out, or use kind MeshService", "a %s has no name", o.Field("kind").Text())
	}
	if o.Field("kind").Text() == "Dataplane" {
		tags = labels // which may be absent: then all clients are meant
		k = everything
		if tags.Present() {
			k = meshSubset
		}
	} else if k == everything && labels.Present() {
		labels.Fault("use kind Dataplane", "a %s has no labels", k)
	}
	switch {
	case k.hasTags() && !tags.Present():
		o.Fault("", "a %s needs the field \"tags\"", k)
	case k.hasTags() && tags.IsObject() && len(tags.Object().Names()) == 0:
		tags.Fault("", "a %s needs at least one tag", k)
	case !k.hasTags() && tags.Present():
		tags.Fault("use kind MeshServiceSubset or MeshSubset", "a %s has no tags", k)
	}
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
