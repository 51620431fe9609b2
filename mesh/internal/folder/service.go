package folder

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// readService reads a service:
//
//	kind: Service
//	name: backend
//	endpoints:
//	- address: 10.0.0.1:8080
//	  tags: {version: v1}
//	filters:
//	- name: fault
//	  typed_config: {"@type": …}
//	tls: {mode: mutual, subjectAltNames: [spiffe://example.com/backend]}
func readService(doc document.Value) *meshroute.Service {
	o := doc.Object(append([]string{"kind", "name", "endpoints", "filters", "tls"}, settingFields...)...)
	s := &meshroute.Service{Name: meshpolicy.ReadServiceName(o.Require("name")), Source: source(doc)}
	for _, item := range o.Field("endpoints").Items() {
		s.Endpoints = append(s.Endpoints, readEndpoint(item))
	}
	filters := o.Field("filters")
	s.FiltersSource = source(filters)
	for _, item := range filters.Items() {
		filter := &hcmpb.HttpFilter{}
		readMessage(item, filter)
		s.Filters = append(s.Filters, filter)
	}
	s.TLS = readTLS(o.Field("tls"))
	readSettings(o, s)
	return s
}

// faultOfKubernetesService reports a Service of Kubernetes, which has a kind of the same name and does not name endpoints.
func faultOfKubernetesService(doc document.Value) bool {
	metadata := doc.Peek("metadata")
	if !metadata.Present() && !doc.Peek("apiVersion").Present() {
		return false
	}
	name, namespace := "NAME", ""
	for field, to := range map[string]*string{"name": &name, "namespace": &namespace} {
		if v := metadata.Peek(field); v.IsText() {
			*to = v.Text()
		}
	}
	doc.Fault(fmt.Sprintf("replace it by \"kind: Service\" with \"name: %s\" and \"endpoints: [{address: HOST:PORT}]\", or run dynxds-kubernetes, which finds them in the cluster",
		meshpolicy.KubernetesName(name, namespace)), "this is a Service of Kubernetes, which does not say where its endpoints are")
	return true
}

const maxWeight = 1<<32 - 1

// maxPriority is the bound in Envoy's LocalityLbEndpoints.
const maxPriority = 128

func readEndpoint(v document.Value) meshroute.Endpoint {
	o := v.Object("address", "hostname", "locality", "priority", "weight", "health", "tags")
	e := meshroute.Endpoint{
		Address:  readAddress(o.Require("address")),
		Hostname: o.Field("hostname").Text(),
		Locality: localityOf(o.Field("locality").Object("region", "zone", "subZone")),
		Priority: uint32(o.Field("priority").Uint(0, maxPriority)),
		Weight:   uint32(o.Field("weight").Uint(1, maxWeight)),
		Health:   readHealth(o.Field("health"), "Healthy", "Unhealthy", "Draining"),
		Source:   source(v),
	}
	if tags := o.Field("tags"); tags.Present() {
		e.Tags = meshpolicy.ReadTags(tags)
	}
	return e
}

// readHealth reads one of some states, whose names are those of xDS in other letters; it is UNKNOWN if it is not given.
func readHealth(v document.Value, states ...string) corepb.HealthStatus {
	return corepb.HealthStatus(corepb.HealthStatus_value[strings.ToUpper(v.OneOf(states...))])
}

func localityOf(o document.Object) meshroute.Locality {
	return meshroute.Locality{
		Region: o.Field("region").Text(), Zone: o.Field("zone").Text(), SubZone: o.Field("subZone").Text(),
	}
}

// readAddress reads host:port. An address has one form, however it is written: it identifies endpoints, and
// servers name their Listener by it. Service.Check has the error of a text that is none.
func readAddress(v document.Value) string {
	text := v.Text()
	host, port, err := meshroute.ParseAddress(text)
	if err != nil {
		return text
	}
	return net.JoinHostPort(host, strconv.FormatUint(uint64(port), 10))
}
