package site

import (
	"fmt"
	"strings"

	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/anypb"

	_ "github.com/dynxds/dynxds" // the filters and policies that a client has
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// clientTypes are the types that clients decode.
var clientTypes = map[string]*xdsclient.ResourceType{
	meshroute.ListenerType:           xdsresource.ListenerType,
	meshroute.RouteConfigurationType: xdsresource.RouteConfigurationType,
	meshroute.ClusterType:            xdsresource.ClusterType,
	meshroute.EndpointsType:          xdsresource.EndpointsType,
	dynparam.MapTypeURL:              xdsresource.DynamicParameterConstraintsType,
}

// check is publish.Options.Check: it decodes a resource as a client of dynxds does.
func check(r *controlplane.Resource) (meshroute.Severity, string) {
	decode, resource := clientTypes[r.Any().GetTypeUrl()], r.Any()
	if decode == nil {
		return meshroute.Note, ""
	}
	if isServers(resource) {
		return meshroute.Warning, "it has no api_listener, so it is for a gRPC server; clients that dial it reject it"
	}
	_, err := decode.Decode(resource, xdsclient.DecodeOptions{})
	inMessage := string(decode.NameOf(resource.GetValue()))
	switch {
	case err != nil:
		return meshroute.Error, fmt.Sprintf("clients reject it: %v", err)
	case inMessage != "" && inMessage != r.Name() && !strings.HasPrefix(r.Name(), xdsname.Prefix):
		return meshroute.Error, fmt.Sprintf("clients do not find it, as the name in the message is %q; make the names equal", inMessage)
	}
	return meshroute.Note, ""
}

// isServers reports whether a resource is the Listener of a gRPC server.
func isServers(resource *anypb.Any) bool {
	var l listenerpb.Listener
	return resource.MessageIs(&l) && resource.UnmarshalTo(&l) == nil && l.GetApiListener() == nil && l.GetAddress() != nil
}
