// Package xdsmsg builds xDS messages tersely: the resources that tests and the
// demo put into a control plane.
//
// Every function returns a fresh message that the caller may go on editing, for example with With, so
// that a rare field is set where it matters and needs no helper here. The
// package checks nothing: tests build faulty messages with it as well.
//
// It knows messages only. Serving them is package controlplane's work, reading
// them package xdsresource's.
package xdsmsg

import (
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/typeurl"
)

// The type URLs of the resources that this package builds.
const (
	ListenerType = typeurl.Listener
	RouteType    = typeurl.RouteConfiguration
	ClusterType  = typeurl.Cluster
	EndpointType = typeurl.Endpoints
)

// Any packs m. It panics if m cannot be marshalled, which no message built
// from valid UTF-8 does.
func Any(m proto.Message) *anypb.Any {
	packed := new(anypb.Any)
	if err := anypb.MarshalFrom(packed, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic("xdsmsg: " + err.Error())
	}
	return packed
}

// ADS is the ConfigSource that says: ask for it on the ADS stream.
func ADS() *corepb.ConfigSource {
	return &corepb.ConfigSource{
		ConfigSourceSpecifier: &corepb.ConfigSource_Ads{Ads: &corepb.AggregatedConfigSource{}},
		ResourceApiVersion:    corepb.ApiVersion_V3,
	}
}
