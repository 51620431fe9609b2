package checkup

import (
	"fmt"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/internal/doctor"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/routestatus"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// Service examines a Service, NAMESPACE/NAME: its ports, endpoints and routes, and what clients would get. reports are what
// validation says of the whole cluster.
func Service(r *doctor.Report, name string, s cluster.ServiceState, reports []meshroute.Report) {
	namespace, _, _ := strings.Cut(name, "/")
	if s.Object == nil {
		r.Add(doctor.Failed, "correct the name, SERVICE.NAMESPACE; kubectl get services -n "+namespace+" lists them", "Service", name, "there is none")
		return
	}
	if !ports(r, name, s) {
		return
	}
	if s.Object.Spec.Type != corev1.ServiceTypeExternalName {
		endpoints(r, name, s)
	}
	good := map[string]bool{}
	for _, of := range s.Routes {
		good[of.Object.GetKind()+"/"+of.Name()] = route(r, of)
	}
	served(r, name, s, good, reports)
}

// ports examines the Service alone. It reports whether clients can dial it.
func ports(r *doctor.Report, name string, s cluster.ServiceState) bool {
	const step = "Service"
	if len(s.Services) == 0 {
		r.Add(doctor.Failed, "add a port with the protocol TCP", step, name, "it has no TCP port")
		return false
	}
	r.Add(doctor.OK, "", step, name, "type %s, %s", s.Object.Spec.Type, faults.Count(len(s.Services), "TCP port"))
	for i, p := range cluster.Ports(s.Object) {
		service := s.Services[i]
		text := "no appProtocol"
		if p.AppProtocol != nil {
			text = "appProtocol " + *p.AppProtocol
		}
		if p.Name != "" {
			text = "name " + p.Name + ", " + text
		}
		switch {
		case i > 0:
			r.Add(doctor.OK, "", "port", service.Name, "%s", text)
		case len(s.Services) > 1 && !cluster.IsGRPC(p):
			r.Add(doctor.Warning, "set appProtocol: grpc at the port for gRPC, or dial with :PORT", "port", service.Name, "%s; it is the default as the first, as none is for gRPC", text)
		default:
			r.Add(doctor.OK, "", "port", service.Name, "%s; the default", text)
		}
	}
	return true
}

// endpoints examines the EndpointSlices.
func endpoints(r *doctor.Report, name string, s cluster.ServiceState) {
	const step = "endpoints"
	selector := labels.SelectorFromSet(s.Object.Spec.Selector).String()
	pods := "kubectl get pods -n " + s.Object.Namespace + " -l '" + selector + "' shows whether pods run, and are ready"
	if selector == "" {
		pods = "the Service has no selector: write an EndpointSlice with the label kubernetes.io/service-name: " + s.Object.Name
	}
	listed := 0
	for _, slice := range s.Slices {
		listed += len(slice.Endpoints)
	}
	if listed == 0 {
		r.Add(doctor.Failed, pods, step, name, "%s, without endpoints", faults.Count(len(s.Slices), "EndpointSlice"))
		return
	}
	for _, problem := range s.Problems {
		r.Add(doctor.Failed, "correct the EndpointSlice; its ports come from the containerPort and targetPort", step, name, "%s", problem)
	}
	for _, service := range s.Services {
		number := map[corepb.HealthStatus]int{}
		for i := range service.Endpoints {
			number[service.Endpoints[i].Health]++
		}
		ready, draining, unready := number[corepb.HealthStatus_UNKNOWN], number[corepb.HealthStatus_DRAINING], number[corepb.HealthStatus_UNHEALTHY]
		text := fmt.Sprintf("%d ready, %d terminating, %d not ready", ready, draining, unready)
		switch {
		case len(service.Endpoints) == 0 && len(s.Problems) == 0:
			r.Add(doctor.Failed, "name a targetPort that the pods have; kubectl get endpointslices -n "+s.Object.Namespace+" shows their ports", step, service.Name,
				"none of the %d endpoints has this port", listed)
		case ready == 0:
			r.Add(doctor.Failed, pods, step, service.Name, "%s", text)
		default:
			r.Add(doctor.OK, "", step, service.Name, "%s", text)
		}
	}
}

// fixes are what to do about the reasons of conditions.
var fixes = map[string]string{
	"UnsupportedValue":      "correct the route; docs/reference/policies.md has what is supported",
	"NoMatchingParent":      "correct parentRefs or spec.to, or create the Service or port",
	"Conflicted":            "delete one of the two routes, or give them different ports",
	cluster.InvalidKind:     "name Services as backends",
	cluster.RefNotPermitted: "create a ReferenceGrant in the namespace of the backend",
	cluster.BackendNotFound: "correct the name, or create the Service or port",
	"Refused":               "dynxds-kubernetes validate says which clients reject it",
}

// route examines a route by the conditions that it has for its parents. It reports whether these are good.
func route(r *doctor.Report, of *cluster.Route) (good bool) {
	step, name := of.Object.GetKind(), of.Name()
	good = true
	seen := map[string]bool{}
	for _, p := range of.Parents {
		for _, c := range routestatus.ConditionsOf(of, p, "") {
			text := fmt.Sprintf("%s=%s, %s: %s", c["type"], c["status"], c["reason"], c["message"])
			if c["status"] == "True" && (c["type"] == "Accepted" || c["type"] == "ResolvedRefs") || seen[text] {
				continue
			}
			good, seen[text] = false, true
			reason, _ := c["reason"].(string)
			r.Add(doctor.Failed, fixes[reason], step, name, "%s", text)
		}
	}
	_, status := of.Status()
	current := false
	for _, c := range cluster.Conditions(status) {
		if c["type"] == routestatus.Refused && c["status"] == "True" {
			good = false
			r.Add(doctor.Failed, fixes["Refused"], step, name, "clients refuse it: %v", c["message"])
		}
		current = current || c["type"] == "Accepted" && c["observedGeneration"] == of.Object.GetGeneration()
	}
	if good {
		r.Add(doctor.OK, "", step, name, "%s", strings.Join(append([]string{"Accepted and ResolvedRefs are True"}, of.Ignored...), "; without effect: "))
	}
	if !current {
		r.Add(doctor.Warning, "see whether dynxds-kubernetes serve runs, and may hold its Lease", step, name, "no control plane has written the status of generation %d", of.Object.GetGeneration())
	}
	return good
}

// served says what clients would get. good has the routes that are accepted: the reports on others say the same once more, and those on parents that are missing
// are about other Services.
func served(r *doctor.Report, name string, s cluster.ServiceState, good map[string]bool, reports []meshroute.Report) {
	const step = "resources"
	results := map[meshroute.Severity]doctor.Result{meshroute.Error: doctor.Failed, meshroute.Warning: doctor.Warning}
	for _, report := range reports {
		of := report.Policy
		concerns := good[of] && (report.LeftOut || report.Severity != meshroute.Error || report.Path != "spec.parentRefs")
		if of == "" {
			of, concerns = name, report.Source.File == name && !slices.Contains(s.Problems, report.Message)
		}
		result, counts := results[report.Severity]
		if !concerns || !counts {
			continue
		}
		text := report.Message
		if report.Clients != "" {
			text = report.Clients + ": " + text
		}
		if report.LeftOut {
			text = "left out: " + text
		}
		r.Add(result, "dynxds-kubernetes validate has the place", step, of, "%s", text)
	}
	for _, service := range s.Services {
		text := "Listener, RouteConfiguration, Cluster and endpoints"
		if service.ExternalName != "" {
			text = "Listener, RouteConfiguration and a Cluster of " + service.ExternalName
		}
		r.Add(doctor.OK, "", step, "xds:///"+service.Name, "%s", text)
	}
}
