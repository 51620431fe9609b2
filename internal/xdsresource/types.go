// Package xdsresource is the data model of the client: it turns the bytes of
// a Listener, RouteConfiguration, Cluster or ClusterLoadAssignment into a
// validated, compiled, immutable Go value.
//
// The bytes come from xdsclient, which calls ResourceType.Decode once per
// changed resource and hands the value to the watchers. The values go to the
// resolver, which joins them into a snapshot, and from there to
// configselector (routes and filters) and balancer (clusters and endpoints).
// All work that takes time is done here, once: names are compared, regular
// expressions compiled, routes and domains indexed. An RPC only calls
// VirtualHost.Route, which takes no lock and costs the same for one route
// and for ten thousand.
//
// It does not open watches, know streams or run RPCs: what a route does to an
// RPC (retries, rewrites, header edits, mirrors) is described by values with small
// methods here, and configselector/internal/router carries it out. It reads the fields that this
// client acts on and, as gRFC A27 asks, ignores the others; [IgnoredFields] lists them.
//
// Each resource type has a decoder, and all of them embed a validator, which collects
// errors. A resource with errors is rejected with all of them, see [Faults]. Parts that
// gRPC has to ignore are left out and reported, see [xdsclient.Ignored].
package xdsresource

import (
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/xdsclient"
)

// The resource types, for xdsclient.Client.Watch. They are never written to.
var (
	// ListenerType decodes to *Listener.
	ListenerType = &xdsclient.ResourceType{
		TypeURL:         typeurl.Listener,
		Name:            "Listener",
		FullStateInSotW: true,
		Decode:          decoderOf(typeurl.Listener),
		Ignored:         func(value any) []xdsclient.Ignored { return value.(*Listener).Ignored },
	}
	// RouteConfigurationType decodes to *RouteConfiguration.
	RouteConfigurationType = &xdsclient.ResourceType{
		TypeURL: typeurl.RouteConfiguration,
		Name:    "RouteConfiguration",
		Decode:  decoderOf(typeurl.RouteConfiguration),
		Ignored: func(value any) []xdsclient.Ignored { return value.(*RouteConfiguration).Ignored },
	}
	// ClusterType decodes to *Cluster.
	ClusterType = &xdsclient.ResourceType{
		TypeURL:         typeurl.Cluster,
		Name:            "Cluster",
		FullStateInSotW: true,
		Decode:          decoderOf(typeurl.Cluster),
		Ignored:         func(value any) []xdsclient.Ignored { return value.(*Cluster).Ignored },
	}
	// EndpointsType decodes to *Endpoints.
	EndpointsType = &xdsclient.ResourceType{
		TypeURL: typeurl.Endpoints,
		Name:    "ClusterLoadAssignment",
		Decode:  decoderOf(typeurl.Endpoints),
		Ignored: func(value any) []xdsclient.Ignored { return value.(*Endpoints).Ignored },
	}
)
