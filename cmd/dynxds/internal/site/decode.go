package site

import (
	"fmt"
	"slices"
	"strings"

	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/types/known/anypb"

	_ "github.com/dynxds/dynxds" // the filters and policies that a client has
	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// decoder finds resources of a store that clients reject, by decoding them as a client of dynxds does.
// It is for one goroutine.
type decoder struct {
	store *controlplane.Store
	// verdicts are those of the last run: unchanged resources are not decoded again.
	verdicts map[*controlplane.Resource]verdict
}

type verdict struct {
	severity meshroute.Severity
	// message is "" for a resource that clients accept.
	message string
}

// clientTypes are the types that clients decode.
var clientTypes = map[string]*xdsclient.ResourceType{
	meshroute.ListenerType:           xdsresource.ListenerType,
	meshroute.RouteConfigurationType: xdsresource.RouteConfigurationType,
	meshroute.ClusterType:            xdsresource.ClusterType,
	meshroute.EndpointsType:          xdsresource.EndpointsType,
	dynparam.MapTypeURL:              xdsresource.DynamicParameterConstraintsType,
}

// all decodes everything in the store.
func (d *decoder) all(content *folder.Content, mesh *meshroute.Mesh) []meshroute.Report {
	return d.reports(origins(content, mesh), func(string, string) bool { return true })
}

// written decodes the resources of the folder, and the Listeners of services with filters. It leaves out
// what is made from policies, so that the cost of an update does not grow with these.
func (d *decoder) written(content *folder.Content, mesh *meshroute.Mesh) []meshroute.Report {
	names := make(map[[2]string]bool)
	for _, r := range content.Resources {
		names[[2]string{r.Any.GetTypeUrl(), r.Name}] = true
	}
	for _, s := range content.Services {
		if len(s.Filters) > 0 {
			names[[2]string{meshroute.ListenerType, mesh.ListenerName(s.Name)}] = true
		}
	}
	if len(names) == 0 {
		d.verdicts = nil
		return nil
	}
	return d.reports(origins(content, mesh), func(typeURL, name string) bool { return names[[2]string{typeURL, name}] })
}

// origin identifies a resource of the folder: its type, its name, and the key of its dynamic
// parameters.
type origin struct{ typeURL, name, parameters string }

func origins(content *folder.Content, mesh *meshroute.Mesh) map[origin]meshroute.Source {
	from := make(map[origin]meshroute.Source, len(content.Resources)+2*len(content.Services))
	for _, s := range content.Services {
		from[origin{typeURL: meshroute.ListenerType, name: s.Name}] = s.Source
		from[origin{typeURL: meshroute.ListenerType, name: mesh.ListenerName(s.Name)}] = s.Source
	}
	for _, r := range content.Resources {
		// Invalid parameters are a fault, which was reported before.
		parameters, _ := dynparam.NewParameters(r.Parameters)
		from[origin{r.Any.GetTypeUrl(), r.Name, parameters.Key()}] = r.Source
	}
	return from
}

// reports decodes the wanted resources.
func (d *decoder) reports(from map[origin]meshroute.Source, wanted func(typeURL, name string) bool) []meshroute.Report {
	var reports []meshroute.Report
	verdicts := make(map[*controlplane.Resource]verdict)
	for typeURL, decode := range clientTypes {
		for _, r := range d.store.Resources(typeURL) {
			at := origin{typeURL, r.Name(), r.Parameters().Key()}
			if _, known := from[at]; !wanted(typeURL, r.Name()) || !known && isServers(r.Any()) {
				continue
			}
			v, known := d.verdicts[r]
			if !known {
				v = judge(decode, r.Name(), r.Any())
			}
			verdicts[r] = v
			if v.message != "" {
				reports = append(reports, meshroute.Report{
					Severity: v.severity, Source: from[at],
					Message: describe(decode.Name, r) + ": " + v.message,
				})
			}
		}
	}
	d.verdicts = verdicts
	slices.SortFunc(reports, func(a, b meshroute.Report) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(reports)
}

func describe(typeName string, r *controlplane.Resource) string {
	text := typeName + " " + r.Name()
	if !r.Parameters().IsZero() {
		text += " " + r.Parameters().String()
	}
	return text
}

// judge decodes one resource.
func judge(decode *xdsclient.ResourceType, name string, resource *anypb.Any) verdict {
	if isServers(resource) {
		return verdict{meshroute.Warning, "it has no api_listener, so it is for a gRPC server; clients that dial it reject it"}
	}
	inMessage, _, err := decode.Decode(resource, xdsclient.DecodeOptions{})
	switch {
	case err != nil:
		return verdict{meshroute.Error, fmt.Sprintf("clients reject it: %v", err)}
	case inMessage != "" && inMessage != name && !strings.HasPrefix(name, xdsname.Prefix):
		return verdict{meshroute.Error, fmt.Sprintf("clients do not find it, as the name in the message is %q; make the names equal", inMessage)}
	}
	return verdict{}
}

// isServers reports whether a resource is the Listener of a gRPC server.
func isServers(resource *anypb.Any) bool {
	var l listenerpb.Listener
	return resource.MessageIs(&l) && resource.UnmarshalTo(&l) == nil && l.GetApiListener() == nil && l.GetAddress() != nil
}
