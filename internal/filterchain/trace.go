package filterchain

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// Decided reports what the filter with a name decided on the RPC of ctx, and why, to the trace of the RPC if it has one.
func Decided(ctx context.Context, name, decision string, why error) {
	if t := rpctrace.FromContext(ctx); t != nil {
		t.FilterDecided(rpctrace.Filter{Name: name, Decision: decision, Err: why})
	}
}

// tracedFilter reports the start and the end of a filter.
type tracedFilter struct {
	httpfilter.Interceptor
	name  string
	trace *rpctrace.Trace
}

func (f tracedFilter) NewStream(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
	f.trace.FilterStarted(rpctrace.Filter{Name: f.name})
	begin := time.Now()
	rest := &restOfChain{Next: next}
	s, err := f.Interceptor.NewStream(ctx, rpc, httpfilter.NewNext(rest))
	f.trace.FilterEnded(rpctrace.Filter{Name: f.name, PassedOn: rest.used.Load(), Err: err, Duration: time.Since(begin)})
	return s, err
}

// restOfChain is the rest of a chain as an End that records whether it was used.
type restOfChain struct {
	httpfilter.Next
	used atomic.Bool
}

func (r *restOfChain) Send(ctx context.Context, rpc *httpfilter.RPC) (grpc.ClientStream, error) {
	r.used.Store(true)
	return r.NewStream(ctx, rpc)
}
