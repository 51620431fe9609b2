package bootstrap

import (
	"encoding/json"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/jsondoc"
)

// clientFeatures is what Node.client_features announces. A server relies on every entry, so
// one is added only together with the code that makes it true:
//
//   - envoy.lb.does_not_support_overprovisioning: a priority fails over when it has no
//     endpoint left, not when it has less than 1/1.4 of them (gRFC A27);
//   - xds.config.resource-in-sotw: SotW responses may have resources wrapped in
//     envoy.service.discovery.v3.Resource;
//   - [ClientFeature].
var clientFeatures = []string{
	"envoy.lb.does_not_support_overprovisioning",
	"xds.config.resource-in-sotw",
	ClientFeature,
}

// ClientFeature in Node.client_features marks a client of dynxds: it evaluates conditions on
// the method and the query of a request, supports what routes have beyond gRFC A28
// (redirects, mirrors, rewrites, header edits), and resolves host names of endpoints. Other
// gRPC clients reject some of that and ignore the rest, so "dynxds serve" does not send it
// to clients without the feature.
const ClientFeature = dialect.ClientFeature

// userAgentName and UserAgentVersion identify the client's software in the node.
const (
	userAgentName    = "dynxds"
	UserAgentVersion = "0.1.0"
)

// maxMetadataDepth bounds how deeply objects in metadata nest. Servers in C++ refuse messages nested more than 100 deep, and a level
// takes three of these, as in Go: the Struct, an entry of its map, and the Value.
const maxMetadataDepth = 32

// parseNode reads node, which may be missing (gRFC A27 does not require it). User agent and
// client features describe the client itself and are not taken from the document.
func parseNode(v jsondoc.Value) *corev3.Node {
	node := &corev3.Node{
		UserAgentName:        userAgentName,
		UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: UserAgentVersion},
		ClientFeatures:       append([]string(nil), clientFeatures...),
	}
	o := v.Object("id", "cluster", "locality", "metadata")
	node.Id = o.Field("id").Text()
	node.Cluster = o.Field("cluster").Text()
	node.Locality = parseLocality(o.Optional("locality"))
	node.Metadata = parseMetadata(o.Optional("metadata"))
	return node
}

// parseLocality returns nil for an empty locality.
func parseLocality(v jsondoc.Value) *corev3.Locality {
	o := v.Object("region", "zone", "sub_zone")
	l := &corev3.Locality{
		Region:  o.Field("region").Text(),
		Zone:    o.Field("zone").Text(),
		SubZone: o.Field("sub_zone").Text(),
	}
	if l.Region == "" && l.Zone == "" && l.SubZone == "" {
		return nil
	}
	return l
}

func parseMetadata(v jsondoc.Value) *structpb.Struct {
	switch {
	case !v.Present():
		return nil
	case !v.IsObject():
		v.Expected("an object")
		return nil
	}
	var fields map[string]any
	if err := json.Unmarshal(v.Raw(), &fields); err != nil {
		v.Fault("", "expected numbers that fit a double, found one that does not")
		return nil
	}
	metadata, _ := structpb.NewStruct(fields) // of what JSON has, which is UTF-8
	wire, _ := proto.Marshal(metadata)        // of texts that are UTF-8
	if (proto.UnmarshalOptions{RecursionLimit: 3 * maxMetadataDepth}).Unmarshal(wire, new(structpb.Struct)) != nil {
		v.Fault("", "expected at most %d levels of nesting, found more", maxMetadataDepth)
		return nil
	}
	return metadata
}
