// Package typeurl is the one home of the type URLs of xDS: of the resources that clients
// ask for, and of what wraps a resource on the wire. Only v3 of the xDS API is known.
package typeurl

import "strings"

// Prefix starts every type URL; the full name of the message follows.
const Prefix = "type.googleapis.com/"

// The type URLs of the resources whose place in the protocol both ends must know.
const (
	Listener           = Prefix + "envoy.config.listener.v3.Listener"
	RouteConfiguration = Prefix + "envoy.config.route.v3.RouteConfiguration"
	Cluster            = Prefix + "envoy.config.cluster.v3.Cluster"
	// Endpoints is that of ClusterLoadAssignments.
	Endpoints = Prefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// Wrapper is the type URL of a Resource of the discovery service, which carries another
// resource with its name, version and dynamic parameters.
const Wrapper = Prefix + "envoy.service.discovery.v3.Resource"

// Name returns the full name of the message of a type URL. A name without a prefix is
// returned as it is.
func Name(typeURL string) string { return typeURL[strings.LastIndexByte(typeURL, '/')+1:] }

// Short returns the last part of the name of the message, such as "Cluster".
func Short(typeURL string) string { return typeURL[strings.LastIndexAny(typeURL, "./")+1:] }
