package bootstrap

import (
	"encoding/json"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// clientFeatures is what Node.client_features announces. A server relies on
// every entry, so one is added only together with the code that makes it true:
//
//   - envoy.lb.does_not_support_overprovisioning: priorities fail over when no
//     endpoint is left, not when less than 1/1.4 of them are (gRFC A27);
//   - xds.config.resource-in-sotw: resources wrapped in
//     envoy.service.discovery.v3.Resource are understood in SotW responses.
var clientFeatures = []string{
	"envoy.lb.does_not_support_overprovisioning",
	"xds.config.resource-in-sotw",
}

// maxMetadataDepth bounds how deeply metadata nests. Servers in C++ refuse
// messages nested more than 100 deep, and a level of metadata costs three.
const maxMetadataDepth = 32

// parseNode reads node, which may be missing (gRFC A27 does not require it, and
// other implementations do without). What the client alone can know, user agent
// and client features, is not taken from the document.
func parseNode(v value) *corev3.Node {
	node := &corev3.Node{
		UserAgentName:        UserAgentName,
		UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: UserAgentVersion},
		ClientFeatures:       append([]string(nil), clientFeatures...),
	}
	if v.absent() {
		return node
	}
	o, ok := v.object("id", "cluster", "locality", "metadata")
	if !ok {
		return node
	}
	node.Id = o.get("id").text()
	node.Cluster = o.get("cluster").text()
	node.Locality = parseLocality(o.get("locality"))
	node.Metadata = parseMetadata(o.get("metadata"))
	return node
}

// parseLocality returns nil for a locality that says nothing.
func parseLocality(v value) *corev3.Locality {
	if v.absent() {
		return nil
	}
	o, ok := v.object("region", "zone", "sub_zone")
	if !ok {
		return nil
	}
	l := &corev3.Locality{
		Region:  o.get("region").text(),
		Zone:    o.get("zone").text(),
		SubZone: o.get("sub_zone").text(),
	}
	if l.Region == "" && l.Zone == "" && l.SubZone == "" {
		return nil
	}
	return l
}

func parseMetadata(v value) *structpb.Struct {
	if v.absent() || !v.isObject() {
		return nil
	}
	var fields map[string]any
	if err := json.Unmarshal(v.raw, &fields); err != nil {
		v.fail("expected numbers that fit a double, found one that does not")
		return nil
	}
	if depth := depthOf(fields); depth > maxMetadataDepth {
		v.fail("expected at most %d levels of nesting, found %d", maxMetadataDepth, depth)
		return nil
	}
	metadata, err := structpb.NewStruct(fields)
	if err != nil {
		v.fail("expected a google.protobuf.Struct: %v", err)
		return nil
	}
	return metadata
}

// depthOf counts the levels of objects and lists. Its recursion is bounded, as
// encoding/json refuses documents nested more than 10,000 deep.
func depthOf(v any) int {
	deepest := 0
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			deepest = max(deepest, depthOf(member))
		}
	case []any:
		for _, element := range v {
			deepest = max(deepest, depthOf(element))
		}
	default:
		return 0
	}
	return deepest + 1
}
