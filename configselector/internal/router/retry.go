package router

import (
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// The metadata keys of gRFC A6, "Exposed Retry Metadata" and "Pushback".
const (
	previousAttempts = "grpc-previous-rpc-attempts"
	retryPushback    = "grpc-retry-pushback-ms"
)

// defaultBufferSize is how many bytes of an RPC gRPC buffers for retries unless
// grpc.MaxRetryRPCBufferSize is set.
const defaultBufferSize = 256 << 10

func itoa(n int) string { return strconv.Itoa(n) }

// limitsTries reports whether the attempts of the RPC have timeouts of their own. If the
// application has disabled retries, the retry policy is not used (gRFC A44).
func (c *call) limitsTries() bool {
	policy := c.route.Retry
	return policy != nil && policy.LimitsTries() && c.routes.Channel.maxAttempts > 1
}

// retrier decides whether and when one RPC is retried (gRFC A6). It does not know what
// commits an RPC.
type retrier struct {
	policy *xdsresource.RetryPolicy // nil: never
	max    int                      // attempts, the first one included
	made   int                      // retries
	steps  int                      // retries since the last pushback
	delay  time.Duration            // before the next attempt
}

func (r *request) newRetrier() retrier {
	policy := r.call.route.Retry
	if policy == nil {
		return retrier{}
	}
	return retrier{policy: policy, max: min(policy.MaxAttempts, r.call.routes.Channel.maxAttempts)}
}

// again reports whether an attempt that ended with err and trailer, without response
// headers, is followed by another one. If so, the caller calls wait.
func (r *retrier) again(d *decision.Decision, err error, trailer metadata.MD) bool {
	if r.policy == nil || r.made+1 >= r.max || d.Dropped() || d.Err() != nil || !retriable(r.policy, err, trailer) {
		return false
	}
	if pushback := trailer[retryPushback]; len(pushback) > 0 {
		ms, err := strconv.ParseInt(pushback[0], 10, 32)
		if err != nil || ms < 0 || len(pushback) > 1 {
			return false
		}
		r.delay, r.steps = time.Duration(ms)*time.Millisecond, 0
	} else {
		r.delay = r.backoff()
		r.steps++
	}
	r.made++
	return true
}

// retriable reports whether a policy retries attempts that end like this.
func retriable(p *xdsresource.RetryPolicy, err error, trailer metadata.MD) bool {
	code := status.Code(err)
	return p.Codes.Has(code) || p.NoResponse && len(trailer) == 0 && unanswered.Has(code)
}

// unanswered are the codes that an attempt without response ends with, except those that are
// the application's doing. The trailer of any response has at least a content-type.
var unanswered = xdsresource.NewCodeSet(codes.Unavailable, codes.Internal, codes.Canceled, codes.DeadlineExceeded)

func (r *retrier) backoff() time.Duration {
	backoff := r.policy.BaseBackoff
	for range r.steps {
		if backoff *= 2; backoff >= r.policy.MaxBackoff {
			break
		}
	}
	backoff = min(backoff, r.policy.MaxBackoff)
	return time.Duration(float64(backoff) * (0.8 + 0.4*rand.Float64()))
}

// wait returns nil when it is time for the next attempt, or the status if the RPC ends
// before.
func (r *retrier) wait(d *decision.Decision) error {
	t := time.NewTimer(r.delay)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-d.Done():
		return status.FromContextError(d.Err()).Err()
	}
}

// bufferSize returns how many bytes of an RPC may be buffered for retries.
func bufferSize(opts []grpc.CallOption) int {
	size := defaultBufferSize
	for _, o := range opts {
		if o, ok := o.(grpc.MaxRetryRPCBufferSizeCallOption); ok {
			size = o.MaxRetryRPCBufferSize
		}
	}
	return size
}

// frameHeader is the size of what gRPC sends before each message.
const frameHeader = 5

// fits reports whether the message of a unary RPC may be sent again. It is called only when
// an attempt has failed.
func (r *request) fits(m any) bool {
	size := 0
	if pb, ok := m.(proto.Message); ok {
		size = proto.Size(pb)
	} else if e, ok := encode(codecOf(r.rpc.Options), m); ok {
		size = len(e)
	}
	return size+frameHeader <= bufferSize(r.rpc.Options)
}
