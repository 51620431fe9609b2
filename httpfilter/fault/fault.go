// Package fault is the fault injection filter (gRFC A33): it delays RPCs and
// ends them with a status, by fixed values or by what their metadata ask for.
//
// It acts before anything of an RPC is sent. A configuration with
// response_rate_limit is refused: gRFC A33 has no limit of the rate of responses.
package fault

import (
	"cmp"
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/httpfilter/internal/protofilter"
	"github.com/dynxds/dynxds/internal/fraction"
	"github.com/dynxds/dynxds/internal/httpstatus"
	"github.com/dynxds/dynxds/internal/retries"
)

// The metadata that control faults (gRFC A33, "Header matching").
const (
	delayHeader      = "x-envoy-fault-delay-request"
	delayShareHeader = "x-envoy-fault-delay-request-percentage"
	abortHTTPHeader  = "x-envoy-fault-abort-request"
	abortGRPCHeader  = "x-envoy-fault-abort-grpc-request"
	abortShareHeader = "x-envoy-fault-abort-request-percentage"
)

func init() { httpfilter.Register(newFilter()) }

func newFilter() protofilter.Filter {
	in := new(instance)
	return protofilter.New(parse, parse, func(httpfilter.ClientInstanceInfo) httpfilter.ClientInstance { return in })
}

// instance is all instances of a filter.
type instance struct {
	// active counts the faults under way in the whole process (gRFC A33,
	// "Maximum active faults").
	active atomic.Int64
}

func (in *instance) ClientInterceptor(c, override httpfilter.Config) (httpfilter.Interceptor, error) {
	conf := cmp.Or(override, c).(*config)
	if conf.delay == nil && conf.abort == nil {
		return nil, nil
	}
	return &interceptor{conf, in}, nil
}

type interceptor struct {
	*config
	*instance
}

// NewStream draws for the delay and for the abort separately (gRFC A33,
// "Evaluate Possibility Fraction").
func (i *interceptor) NewStream(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
	var md metadata.MD
	if i.delay != nil && i.delay.asked != nil || i.abort != nil && i.abort.asked != nil {
		md, _ = metadata.FromOutgoingContext(ctx)
	}
	if err := i.wait(ctx, md); err != nil {
		return nil, err
	}
	share, code := i.abort.of(md)
	if !share.Draw() || !i.begin() {
		return next.NewStream(ctx, rpc)
	}
	defer i.end()
	if code == codes.OK {
		return httpfilter.EndedStream(ctx, nil, nil), nil
	}
	return nil, status.Error(code, "fault injected: the RPC was aborted by the fault filter")
}

// begin counts a fault, unless there are too many already.
func (i *interceptor) begin() bool {
	if i.active.Add(1) > i.maxActive {
		i.active.Add(-1)
		return false
	}
	return true
}

func (i *interceptor) end() { i.active.Add(-1) }

func (i *interceptor) wait(ctx context.Context, md metadata.MD) error {
	share, d := i.delay.of(md)
	if !share.Draw() || !i.begin() {
		return nil
	}
	defer i.end()
	return status.FromContextError(retries.Wait(ctx, d)).Err()
}

// of returns the share of RPCs with the metadata that meet the fault, and how. f may be nil.
func (f *fault[T]) of(md metadata.MD) (share fraction.Fraction, value T) {
	switch {
	case f == nil:
		return share, value
	case f.asked == nil:
		return f.share, f.value
	}
	value, ok := f.asked(md)
	if !ok {
		return share, value
	}
	share = f.share
	if n, ok := number(md, f.header, 1<<32-1); ok {
		share.Numerator = min(share.Numerator, uint32(n))
	}
	return share, value
}

// Ends returns how many percent of the RPCs with the outgoing context ctx the filter ends, and with which code.
// Explanations of RPCs call it.
func (c *config) Ends(ctx context.Context, _ *httpfilter.RPC) (percent float64, code codes.Code) {
	md, _ := metadata.FromOutgoingContext(ctx)
	share, code := c.abort.of(md)
	if share.Numerator == 0 || c.maxActive == 0 {
		return 0, codes.OK
	}
	return 100 * float64(share.Numerator) / float64(share.Denominator), code
}

// askedDelay returns the delay that the metadata ask for.
func askedDelay(md metadata.MD) (time.Duration, bool) {
	ms, ok := number(md, delayHeader, 1<<40)
	return time.Duration(ms) * time.Millisecond, ok && ms > 0
}

// askedCode returns the code that the metadata ask for. As in Envoy, the HTTP
// status goes before that of gRPC.
func askedCode(md metadata.MD) (codes.Code, bool) {
	if n, ok := number(md, abortHTTPHeader, 599); ok && isHTTPStatus(n) {
		return httpstatus.Code(int(n)), true
	}
	n, ok := number(md, abortGRPCHeader, uint64(codes.Unauthenticated))
	return codes.Code(n), ok && isGRPCStatus(n)
}

// number reads the number in a header. Headers that have none are ignored
// (gRFC A33).
func number(md metadata.MD, header string, limit uint64) (uint64, bool) {
	values := md[header]
	if len(values) == 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(values[0], 10, 64)
	return n, err == nil && n <= limit
}
