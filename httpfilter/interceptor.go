package httpfilter

import (
	"context"
	"slices"

	"google.golang.org/grpc"
)

// Interceptor is what a filter does with the RPCs of one configuration. It is
// safe for concurrent use.
type Interceptor interface {
	// NewStream starts an RPC. It usually ends in a call of next.NewStream,
	// whose stream it returns as it is or wrapped in one of its own. It may
	//
	//   - change the RPC, or the outgoing metadata in ctx, before that;
	//   - wait before that, for as long as ctx lets it;
	//   - end the RPC: with an error, which should be a status error, or with a
	//     stream of its own, see [EndedStream];
	//   - start further RPCs, on clones of this one, to clusters of its choice.
	//
	// Unary RPCs look like streaming ones: SendMsg with the request,
	// CloseSend, and one RecvMsg for the response, nothing else. The backend
	// sees a unary RPC when RecvMsg is called. If no filter wraps the stream, a
	// unary RPC pays nothing for it.
	//
	// NewStream and the methods of the stream have to return soon after ctx is
	// done. A context that NewStream derives from ctx and cancels must not end
	// before the stream does.
	NewStream(ctx context.Context, rpc *RPC, next Next) (grpc.ClientStream, error)
}

// InterceptorFunc is a function that is an Interceptor.
type InterceptorFunc func(ctx context.Context, rpc *RPC, next Next) (grpc.ClientStream, error)

// NewStream calls f.
func (f InterceptorFunc) NewStream(ctx context.Context, rpc *RPC, next Next) (grpc.ClientStream, error) {
	return f(ctx, rpc, next)
}

// End is what a chain ends in: it sends the RPC. It is safe for concurrent
// use, as filters may send several. One that knows the RPC's route has a method
// RouteHas like that of [Next].
type End interface {
	Send(ctx context.Context, rpc *RPC) (grpc.ClientStream, error)
}

// Next is the rest of a chain, as seen by a filter in it.
type Next struct {
	rest []Interceptor
	end  End
}

// NewNext returns the chain of the interceptors in their order. It is what
// dynxds runs, and what a test gives to an interceptor.
func NewNext(end End, interceptors ...Interceptor) Next {
	return Next{rest: interceptors, end: end}
}

// RouteHas reports whether the RPC's route sends RPCs to the cluster, all
// of them or some by weight. It is false if the chain's End does not know the
// route.
func (n Next) RouteHas(cluster string) bool {
	end, ok := n.end.(interface{ RouteHas(cluster string) bool })
	return ok && end.RouteHas(cluster)
}

// Through returns the chain of the interceptors in their order and, behind them, n.
func (n Next) Through(interceptors ...Interceptor) Next {
	return Next{rest: slices.Concat(interceptors, n.rest), end: n.end}
}

// NewStream hands the RPC to the rest of the chain. To call it more than once,
// give each call an RPC of its own: see [RPC.Clone]. It is safe for concurrent
// use.
func (n Next) NewStream(ctx context.Context, rpc *RPC) (grpc.ClientStream, error) {
	if len(n.rest) == 0 {
		return n.end.Send(ctx, rpc)
	}
	return n.rest[0].NewStream(ctx, rpc, Next{rest: n.rest[1:], end: n.end})
}
