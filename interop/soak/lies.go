package soak

import (
	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/meshtest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// A distortion changes a response of either protocol; the other argument is empty. It returns false to drop the
// response.
type distortion func(sotw *discoverypb.DiscoveryResponse, delta *discoverypb.DeltaDiscoveryResponse) bool

// lies are the operations that distort responses, in rounds with lies.
var lies = []op{
	{"the control plane drops responses", 3, lie(silence)},
	{"the control plane sends garbage for resources", 3, lie(eachResource(func(a *anypb.Any) { a.Value = []byte("\xff\xff\xff garbage") }))},
	{"the control plane cuts resources short", 3, lie(eachResource(func(a *anypb.Any) { a.Value = cutShort(a.Value) }))},
	{"the control plane sends resources of the wrong type", 3, lie(eachResource(wrongType))},
	{"the control plane sends an unknown type", 3, lie(unknownType)},
	{"the control plane sends everything twice", 3, lie(doubled)},
	{"the control plane adds resources that were not requested", 3, lie(unasked)},
	{"the control plane contradicts itself", 3, lie(contradiction)},
	{"the control plane sends no resources", 3, lie(nothingLeft)},
}

// lie is the operation that distorts all responses of the control plane for a while.
func lie(how distortion) func(*run) bool {
	return func(r *run) bool {
		return r.lie(r.control, func() { how.begin(r.control) }, func() { r.control.OnResponse(nil) })
	}
}

// begin applies a distortion to all responses of a server.
func (d distortion) begin(f *meshtest.Server) {
	f.OnResponse(xdstest.ResponseHook(d))
	// Else it might send nothing meanwhile.
	f.BreakStreams(nil)
}

func silence(*discoverypb.DiscoveryResponse, *discoverypb.DeltaDiscoveryResponse) bool { return false }

// eachResource spoils every resource. Over delta it gets a version of its own: a relay, which decodes nothing, keeps what it
// has of a version, and a server that has two contents for one of them never sends the other.
func eachResource(spoil func(*anypb.Any)) distortion {
	return func(sotw *discoverypb.DiscoveryResponse, delta *discoverypb.DeltaDiscoveryResponse) bool {
		for _, a := range sotw.Resources {
			spoil(a)
		}
		for _, resource := range delta.Resources {
			if resource.GetResource() != nil {
				spoil(resource.Resource)
				resource.Version += "-spoilt"
			}
		}
		return true
	}
}

// cutShort returns about the first half of a message, which ends inside a field: if it
// ended between two fields, it would be a valid message.
func cutShort(message []byte) []byte {
	half := message[:len(message)/2]
	for rest := half; len(rest) > 0; {
		_, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return half
		}
		rest = rest[n:]
	}
	return half[:max(0, len(half)-1)]
}

func wrongType(a *anypb.Any) {
	a.TypeUrl = xdsmsg.ListenerType
	if proto.Unmarshal(a.Value, &clusterpb.Cluster{}) == nil {
		a.TypeUrl = "type.googleapis.com/envoy.config.core.v3.Node"
	}
}

func unknownType(sotw *discoverypb.DiscoveryResponse, delta *discoverypb.DeltaDiscoveryResponse) bool {
	sotw.TypeUrl, delta.TypeUrl = "type.googleapis.com/soak.Unknown", ""
	return true
}

func doubled(sotw *discoverypb.DiscoveryResponse, delta *discoverypb.DeltaDiscoveryResponse) bool {
	sotw.Resources = append(sotw.Resources, sotw.Resources...)
	delta.Resources = append(delta.Resources, delta.Resources...)
	return true
}

var stray = xdsmsg.Any(xdsmsg.EDSCluster("stray", ""))

func unasked(sotw *discoverypb.DiscoveryResponse, delta *discoverypb.DeltaDiscoveryResponse) bool {
	sotw.Resources = append(sotw.Resources, stray)
	delta.Resources = append(delta.Resources, &discoverypb.Resource{Name: "stray", Version: "1", Resource: stray})
	delta.RemovedResources = append(delta.RemovedResources, "never-heard-of")
	return true
}

// contradiction sends an error for what it sends as well.
func contradiction(sotw *discoverypb.DiscoveryResponse, delta *discoverypb.DeltaDiscoveryResponse) bool {
	for _, name := range namesOf(sotw.Resources) {
		sotw.ResourceErrors = append(sotw.ResourceErrors, notFound(name))
	}
	for _, resource := range delta.Resources {
		delta.ResourceErrors = append(delta.ResourceErrors, notFound(resource.GetName()))
		delta.RemovedResources = append(delta.RemovedResources, resource.GetName())
	}
	return true
}

// nothingLeft omits every resource, or removes it.
func nothingLeft(sotw *discoverypb.DiscoveryResponse, delta *discoverypb.DeltaDiscoveryResponse) bool {
	for _, resource := range delta.Resources {
		delta.RemovedResources = append(delta.RemovedResources, resource.GetName())
	}
	sotw.Resources, delta.Resources = nil, nil
	return true
}

func notFound(name string) *discoverypb.ResourceError {
	return &discoverypb.ResourceError{
		ResourceName: &discoverypb.ResourceName{Name: name},
		ErrorDetail:  &statuspb.Status{Code: int32(codes.NotFound), Message: "on purpose"},
	}
}

// namesOf are the names of resources, bare or in their wrappers.
func namesOf(resources []*anypb.Any) (names []string) {
	for _, a := range resources {
		switch m, _ := a.UnmarshalNew(); m := m.(type) { // what is garbage has no name
		case interface{ GetName() string }:
			names = append(names, m.GetName())
		case interface{ GetClusterName() string }:
			names = append(names, m.GetClusterName())
		}
	}
	return names
}
