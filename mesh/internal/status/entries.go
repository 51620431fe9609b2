//lint:file-ignore SA1019 Older processes still answer in the deprecated form.

package status

import (
	adminpb "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dynxds/dynxds/internal/typeurl"
)

// entry is one resource of a client.
type entry = statuspb.ClientConfig_GenericXdsConfig

// olderEntries returns the resources of a client in the older form of the status, which has a message for each type.
func olderEntries(c *statuspb.ClientConfig) (all []*entry) {
	for _, old := range c.GetXdsConfig() {
		for _, l := range old.GetListenerConfig().GetDynamicListeners() {
			active := l.GetActiveState()
			all = append(all, older(typeurl.Listener, l.GetName(), active.GetVersionInfo(), active.GetListener(), active.GetLastUpdated(), l))
		}
		for _, r := range old.GetRouteConfig().GetDynamicRouteConfigs() {
			all = append(all, older(typeurl.RouteConfiguration, "", r.GetVersionInfo(), r.GetRouteConfig(), r.GetLastUpdated(), r))
		}
		for _, r := range old.GetClusterConfig().GetDynamicActiveClusters() {
			all = append(all, older(typeurl.Cluster, "", r.GetVersionInfo(), r.GetCluster(), r.GetLastUpdated(), r))
		}
		for _, r := range old.GetEndpointConfig().GetDynamicEndpointConfigs() {
			all = append(all, older(typeurl.Endpoints, "", r.GetVersionInfo(), r.GetEndpointConfig(), r.GetLastUpdated(), r))
		}
	}
	return all
}

// older returns an entry of the older form in the form of today. The name may be only in the resource.
func older(typeURL, name, version string, resource *anypb.Any, updated *timestamppb.Timestamp, state interface {
	GetErrorState() *adminpb.UpdateFailureState
	GetClientStatus() adminpb.ClientResourceStatus
}) *entry {
	if name == "" {
		name = nameIn(resource)
	}
	return &entry{
		TypeUrl: typeURL, Name: name, VersionInfo: version, XdsConfig: resource, LastUpdated: updated,
		ErrorState: state.GetErrorState(), ClientStatus: state.GetClientStatus(),
	}
}

// nameIn returns the name in a resource, which is field 1 in each of the four types, or "".
func nameIn(resource *anypb.Any) string {
	if resource == nil {
		return ""
	}
	m, err := resource.UnmarshalNew()
	if err != nil {
		return ""
	}
	r := m.ProtoReflect()
	field := r.Descriptor().Fields().ByNumber(1)
	if field == nil || field.Kind().String() != "string" || field.IsList() {
		return ""
	}
	return r.Get(field).String()
}
