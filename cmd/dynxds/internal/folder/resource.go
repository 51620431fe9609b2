package folder

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/strictyaml"
)

// readResource reads a raw xDS resource:
//
//	kind: Resource
//	dynamicParameters: {env: prod}
//	resource:
//	  "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
//	  name: payments
//
// Its name is the field name, or what the message says.
func readResource(document strictyaml.Value) *Resource {
	o := document.Object("kind", "name", "dynamicParameters", "resource")
	r := &Resource{Source: source(document), Parameters: o.Field("dynamicParameters").Texts(), Any: &anypb.Any{}}
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
		document.Fault("add the field \"name\"", "the resource has no name")
	}
	return r
}

// nameOf returns what a resource says that its name is: in its field name, or in
// cluster_name, as ClusterLoadAssignments do.
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
