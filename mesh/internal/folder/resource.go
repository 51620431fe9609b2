package folder

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/meshroute"
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

// bareFields are fields, in both spellings, that only one type of resource has.
var bareFields = map[string]string{
	"filter_chains": meshroute.ListenerType, "filterChains": meshroute.ListenerType,
	"api_listener": meshroute.ListenerType, "apiListener": meshroute.ListenerType,
	"virtual_hosts": meshroute.RouteConfigurationType, "virtualHosts": meshroute.RouteConfigurationType,
	"eds_cluster_config": meshroute.ClusterType, "edsClusterConfig": meshroute.ClusterType,
	"load_assignment": meshroute.ClusterType, "loadAssignment": meshroute.ClusterType,
	"connect_timeout": meshroute.ClusterType, "connectTimeout": meshroute.ClusterType,
	"lb_policy": meshroute.ClusterType, "lbPolicy": meshroute.ClusterType,
	"cluster_name": meshroute.EndpointsType, "clusterName": meshroute.EndpointsType,
}

// faultOfBareResource reports an xDS resource, or Envoy's list of them, without the wrapper that it
// needs, and suggests that.
func faultOfBareResource(doc document.Value) bool {
	const wrapper = `write {kind: Resource, resource: {"@type": %s, …}}`
	if list := doc.Peek("resources"); list.IsList() {
		doc.Fault(fmt.Sprintf(wrapper, "its type")+", a document for each",
			"the document is a list of xDS resources without kind")
		return true
	}
	typeURL := ""
	if packed := doc.Peek("@type"); packed.IsText() {
		typeURL = packed.Text()
	}
	for field, of := range bareFields {
		if typeURL == "" && doc.Peek(field).Present() {
			typeURL = of
		}
	}
	if typeURL == "" {
		return false
	}
	doc.Fault(fmt.Sprintf(wrapper, typeURL), "the document is an xDS resource without kind")
	return true
}
