package httpfilter

import (
	"slices"

	"google.golang.org/grpc"
)

// RPC is one RPC on its way through a chain of filters. An Interceptor may
// change its fields before it hands the RPC to the next filter; after that the
// RPC belongs to the filters behind. It is not safe for concurrent use.
//
// What else a filter can see and change of an RPC is in its context: the
// outgoing metadata and the deadline. Values for later filters, and for the
// load-balancing policy that picks the endpoint (balancer.PickInfo.Ctx), travel in the
// context too: use context.WithValue with a key of a type of the filter's own.
type RPC struct {
	// Method is the full method, "/package.Service/Method". Changing it changes
	// what the backend sees, and what later filters and the route's rewrites
	// start from; the route is chosen already and stays.
	Method string
	// Authority is the ":authority" of the RPC. Changing it changes what the
	// backend sees, with two exceptions: an authority that the application
	// asked for with grpc.CallAuthority stays, and the route's own rewrites
	// come after the filters. Over TLS, gRPC fails RPCs whose authority the
	// server's certificate does not cover.
	Authority string
	// Cluster is the cluster that the route chose. Changing it sends the RPC to
	// another cluster of the configuration; the RPC fails with UNAVAILABLE if
	// the virtual host does not mention that cluster anywhere.
	Cluster string
	// Options are the call options that the application gave, for looking at;
	// AddOptions adds to them. Those of a streaming RPC are without
	// grpc.Header, grpc.Trailer, grpc.Peer and grpc.OnFinish, which report the
	// outcome that the whole chain makes.
	Options []grpc.CallOption
	// StreamDesc says which sides stream. It is nil for unary RPCs. It must not
	// be changed.
	StreamDesc *grpc.StreamDesc
	// HostOverride asks for an endpoint, and reports which one was picked. nil: no
	// filter needs one. The last filter that sets it wins.
	HostOverride *HostOverride

	// added is a pointer because most RPCs have none, and every RPC has an RPC.
	added *[]grpc.CallOption
}

// AddOptions adds call options, which win over those of the application. They take effect
// each time that the RPC is sent, so more than once if it is retried. Of attempts that are under way at
// the same time (hedging), grpc.Header, grpc.Trailer and grpc.Peer report the one that becomes the RPC.
func (r *RPC) AddOptions(opts ...grpc.CallOption) {
	added := slices.Concat(r.AddedOptions(), opts)
	r.added = &added
}

// AddedOptions returns what AddOptions has added. It must not be changed.
func (r *RPC) AddedOptions() []grpc.CallOption {
	if r.added == nil {
		return nil
	}
	return *r.added
}

// Clone returns a copy that can be handed on separately. A filter that sends
// more than one RPC for the one it was given (to hedge, to compare, to copy
// traffic) gives each call of Next.NewStream an RPC of its own.
func (r *RPC) Clone() *RPC {
	c := *r
	return &c
}
