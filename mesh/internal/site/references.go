package site

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// reference is a name that one resource has of another.
type reference struct{ typeURL, name string }

// order is that in which resources refer to each other. Others come behind them.
var order = map[string]int{meshroute.ListenerType: -4, meshroute.RouteConfigurationType: -3, meshroute.ClusterType: -2, meshroute.EndpointsType: -1}

func (r reference) compare(o reference) int {
	return cmp.Or(cmp.Compare(order[r.typeURL], order[o.typeURL]), cmp.Compare(r.typeURL, o.typeURL), cmp.Compare(r.name, o.name))
}

// refer are the fields that name other resources, by the types of these.
var refer = map[protoreflect.FullName]string{
	"envoy.extensions.filters.network.http_connection_manager.v3.Rds.route_config_name": meshroute.RouteConfigurationType,
	"envoy.config.route.v3.RouteAction.cluster":                                         meshroute.ClusterType,
	"envoy.config.route.v3.WeightedCluster.ClusterWeight.name":                          meshroute.ClusterType,
	"envoy.config.route.v3.RouteAction.RequestMirrorPolicy.cluster":                     meshroute.ClusterType,
	"envoy.extensions.clusters.aggregate.v3.ClusterConfig.clusters":                     meshroute.ClusterType,
	"envoy.config.cluster.v3.Cluster.EdsClusterConfig.service_name":                     meshroute.EndpointsType,
}

// references returns those of a resource, in order: none if it cannot be read, which is reported elsewhere.
func references(resource *anypb.Any, name string) (all []reference) {
	_ = protorange.Range(resource.ProtoReflect(), func(at protopath.Values) error { // no step fails
		step := at.Index(-1)
		text, isText := step.Value.Interface().(string)
		if step.Step.Kind() == protopath.ListIndexStep {
			step = at.Index(-2)
		}
		if isText && step.Step.Kind() == protopath.FieldAccessStep {
			if typeURL, ok := refer[step.Step.FieldDescriptor().FullName()]; ok {
				all = append(all, reference{typeURL, text})
			}
		}
		return nil
	})
	var cluster clusterpb.Cluster
	if resource.MessageIs(&cluster) && resource.UnmarshalTo(&cluster) == nil && cluster.GetType() == clusterpb.Cluster_EDS && cluster.GetEdsClusterConfig().GetServiceName() == "" {
		all = append(all, reference{meshroute.EndpointsType, cmp.Or(cluster.GetName(), name)})
	}
	slices.SortFunc(all, reference.compare)
	return slices.Compact(all)
}

// reachable keeps the Listener, and the resources that it refers to.
func reachable(items []Item, listener string) []Item {
	wanted := map[reference]bool{{meshroute.ListenerType, listener}: true}
	isWanted := func(i Item) bool { return wanted[reference{i.TypeURL, i.Name}] }
	for known := 0; known < len(wanted); {
		known = len(wanted)
		for _, item := range items {
			if isWanted(item) && item.Resource != nil {
				for _, to := range references(item.Resource.Any(), item.Name) {
					wanted[to] = true
				}
			}
		}
	}
	return slices.DeleteFunc(items, func(i Item) bool { return !isWanted(i) })
}

// dangling reports what the resources of the folder refer to and the folder does not have. Names of other authorities are not
// reported, as other control planes may have them.
func (l *loaded) dangling(authority string) (reports []meshroute.Report) {
	existing := make(map[string][]string)
	for _, one := range l.all {
		existing[one.TypeURL] = append(existing[one.TypeURL], xdsname.Canonical(one.Name))
	}
	for _, names := range existing {
		slices.Sort(names)
	}
	for _, r := range l.content.Resources {
		for _, to := range references(r.Any, r.Name) {
			_, exists := slices.BinarySearch(existing[to.typeURL], xdsname.Canonical(to.name))
			if exists || strings.HasPrefix(to.name, xdsname.Prefix) && !xdsname.HasAuthority(to.name, authority) {
				continue
			}
			text := fmt.Sprintf("%s %s: there is no %s %q", typeurl.ShortName(r.Any.GetTypeUrl()), r.Name, typeurl.ShortName(to.typeURL), to.name)
			if nearest := faults.Nearest(to.name, existing[to.typeURL]); nearest != "" {
				text += fmt.Sprintf("; did you mean %q?", nearest)
			}
			reports = append(reports, meshroute.Report{Severity: meshroute.Warning, Source: r.Source, Message: text})
		}
	}
	return reports
}
