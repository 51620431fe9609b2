package folder

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

// readResource reads a raw xDS resource:
//
//	kind: Resource
//	dynamicParameters: {env: prod}
//	override: true
//	resource:
//	  "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
//	  name: payments
//
// Its name is the field name, or that in the message.
func readResource(doc document.Value) *Resource {
	o := doc.Object("kind", "name", "dynamicParameters", "override", "resource")
	r := &Resource{Source: source(doc), Parameters: o.Field("dynamicParameters").Texts(), Override: o.Field("override").Bool(), Any: &anypb.Any{}}
	body := o.Require("resource")
	if !readMessage(body, r.Any) {
		return r
	}
	m, err := r.Any.UnmarshalNew()
	if err != nil {
		body.Fault("", "%v", err)
		return r
	}
	if name := o.Field("name"); name.Present() {
		r.Name = name.Text()
	} else {
		r.Name = nameOf(m)
	}
	if r.Name == "" {
		doc.Fault("add the field \"name\"", "the resource has no name")
	}
	return r
}

// nameOf returns the name in a resource: its field name, or cluster_name in a
// ClusterLoadAssignment.
func nameOf(m proto.Message) string {
	reflected := m.ProtoReflect()
	fields := reflected.Descriptor().Fields()
	for _, field := range []protoreflect.Name{"name", "cluster_name"} {
		if d := fields.ByName(field); d != nil && d.Kind() == protoreflect.StringKind && !d.IsList() {
			return reflected.Get(d).String()
		}
	}
	return ""
}
