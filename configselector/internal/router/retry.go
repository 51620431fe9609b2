package router

import (
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// The metadata of gRFC A6, "Exposed Retry Metadata" and "Pushback".
const (
	previousAttempts = "grpc-previous-rpc-attempts"
	retryPushback    = "grpc-retry-pushback-ms"
)

// defaultBufferSize is what gRPC keeps of an RPC to send it again, in bytes, if
// the application does not say otherwise with grpc.MaxRetryRPCBufferSize.
const defaultBufferSize = 256 << 10

func itoa(n int) string { return strconv.Itoa(n) }

// retrier decides, for one RPC, whether and when it is tried again (gRFC A6).
// What commits an RPC is for its user to notice.
type retrier struct {
	policy *xdsresource.RetryPolicy // nil: never
	max    int                      // attempts, the first one included
	made   int                      // retries
	// steps counts the retries since the server asked for a delay of its own.
	steps int
	delay time.Duration // before the next attempt
}

func (r *request) newRetrier() retrier {
	policy := r.call.route.Retry
	if policy == nil {
		return retrier{}
	}
	return retrier{policy: policy, max: min(policy.MaxAttempts, r.call.routes.Channel.maxAttempts)}
}

// again reports whether an attempt that ended with err and trailer, and without
// response headers, is followed by another one. If so, wait is to be called.
func (r *retrier) again(d *decision.Decision, err error, trailer metadata.MD) bool {
	if r.policy == nil || d.Dropped() || d.Err() != nil || !r.policy.Codes.Has(status.Code(err)) || r.made+1 >= r.max {
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

// wait returns when it is time for the next attempt, or with the status that
// the RPC ends with meanwhile.
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

// bufferSize returns how many bytes of an RPC may be kept to send it again.
func bufferSize(opts []grpc.CallOption) int {
	size := defaultBufferSize
	for _, o := range opts {
		if o, ok := o.(grpc.MaxRetryRPCBufferSizeCallOption); ok {
			size = o.MaxRetryRPCBufferSize
		}
	}
	return size
}

// frameHeader is what gRPC puts before each message, in bytes.
const frameHeader = 5

// fits reports whether the one message of a unary RPC may be sent again. It is
// asked only when an attempt has failed.
func (r *request) fits(m any) bool {
	size := 0
	if pb, ok := m.(proto.Message); ok {
		size = proto.Size(pb)
	} else if e, ok := encode(codecOf(r.rpc.Options), m); ok {
		size = len(e)
	}
	return size+frameHeader <= bufferSize(r.rpc.Options)
}
