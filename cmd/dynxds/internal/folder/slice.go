package folder

import (
	"net"
	"strconv"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// endpointSlice is an EndpointSlice of Kubernetes (discovery.k8s.io/v1): some endpoints of a service.
type endpointSlice struct {
	source meshroute.Source
	// name is that of the document, with the namespace, and service the name of the service in the mesh.
	name, service string
	// ipv6 is set for a slice of the addresses of dual-stack endpoints that IPv4 slices may have as well.
	ipv6  bool
	ports []slicePort
	// endpoints have an address without a port.
	endpoints []meshroute.Endpoint
}

type slicePort struct {
	name, protocol string
	// number is 0 if it is not restricted, which endpoints cannot be reached by.
	number uint64
}

const serviceNameLabel = "kubernetes.io/service-name"

func readSlice(doc document.Value) *endpointSlice {
	o := doc.Object("apiVersion", "kind", "metadata", "addressType", "endpoints", "ports")
	o.Require("apiVersion").OneOf("discovery.k8s.io/v1")
	metadata := meshpolicy.ReadMetadata(o.Require("metadata"))
	namespace := metadata.Field("namespace").Text()
	s := &endpointSlice{
		source: source(doc), name: meshpolicy.KubernetesName(metadata.Require("name").Text(), namespace),
		ipv6: o.Require("addressType").OneOf("IPv4", "IPv6", "FQDN") == "IPv6",
	}
	if label := metadata.Field("labels").Peek(serviceNameLabel); label.Present() {
		s.service = meshpolicy.KubernetesName(meshpolicy.ReadServiceName(label), namespace)
	} else if metadata.IsObject() {
		metadata.Fault("delete the document if it is not used", "the slice has no label %s, so it belongs to no service", serviceNameLabel)
	}
	for _, item := range itemsOf(o.Field("ports")) {
		p := item.Object("name", "protocol", "port", "appProtocol")
		s.ports = append(s.ports, slicePort{p.Field("name").Text(), p.Field("appProtocol").Text(), p.Field("port").Uint(1, 65535)})
		if p.Field("protocol").OneOf("TCP", "UDP", "SCTP") != "TCP" && p.Field("protocol").Present() {
			s.ports = s.ports[:len(s.ports)-1]
		}
	}
	for _, item := range itemsOf(o.Field("endpoints")) {
		s.endpoints = append(s.endpoints, readSliceEndpoint(item))
	}
	return s
}

// itemsOf reads a list that Kubernetes may print as null.
func itemsOf(v document.Value) []document.Value {
	if v.Absent() {
		return nil
	}
	return v.Items()
}

func readSliceEndpoint(v document.Value) meshroute.Endpoint {
	o := v.Object("addresses", "conditions", "hostname", "nodeName", "zone", "targetRef", "hints", "deprecatedTopology")
	e := meshroute.Endpoint{Source: source(v), Health: readConditions(o.Field("conditions"))}
	if zone := o.Field("zone"); !zone.Absent() {
		e.Locality.Zone = zone.Text()
	}
	// All addresses are of one endpoint, and interchangeable: consumers take the first.
	addresses := o.Require("addresses").Items()
	if len(addresses) == 0 {
		o.Fault("", "an endpoint needs at least one address")
		return e
	}
	if text := addresses[0].Text(); addresses[0].IsText() {
		e.Address = hostOf(addresses[0], text)
	}
	return e
}

// readConditions returns the health of an endpoint, UNKNOWN for one that is ready. An unknown condition counts
// as Kubernetes says: ready as true, serving as ready, terminating as false.
func readConditions(v document.Value) corepb.HealthStatus {
	if v.Absent() {
		return corepb.HealthStatus_UNKNOWN
	}
	o := v.Object("ready", "serving", "terminating")
	get := func(name string, unknown bool) bool {
		if field := o.Field(name); !field.Absent() {
			return field.Bool()
		}
		return unknown
	}
	ready := get("ready", true)
	serving, terminating := get("serving", ready), get("terminating", false)
	switch {
	case ready:
		return corepb.HealthStatus_UNKNOWN
	case serving && terminating:
		return corepb.HealthStatus_DRAINING
	default:
		return corepb.HealthStatus_UNHEALTHY
	}
}

// at returns an endpoint with its port.
func at(e meshroute.Endpoint, port uint64) meshroute.Endpoint {
	e.Address = net.JoinHostPort(e.Address, strconv.FormatUint(port, 10))
	return e
}
