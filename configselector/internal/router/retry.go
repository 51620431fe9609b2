package router

import (
	"cmp"
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/rpctrace"
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

// retrier decides whether and when one RPC is retried (gRFC A6). It does not know when
// an RPC is committed.
type retrier struct {
	policy  *xdsresource.RetryPolicy // nil: never
	limited bool                     // the attempts have timeouts of their own
	max     int                      // attempts, the first one included
	made    int                      // retries
	steps   int                      // retries since the last pushback
	delay   time.Duration            // before the next attempt
	waited  time.Duration            // for them, so far
	hosts   *decision.Hosts          // to which attempts were sent; nil: not needed
}

func (r *request) newRetrier() retrier {
	policy, most := r.call.app.Route.Retry, r.call.routes.Channel.maxAttempts
	if policy == nil {
		return retrier{}
	}
	// If the application has disabled retries, the policy is not used (gRFC A44).
	retry := retrier{policy: policy, limited: policy.LimitsTries() && most > 1, max: min(policy.MaxAttempts, most)}
	if len(policy.RequestHeaders) > 0 {
		x := r.call.matchable(r.decision.Context, r.rpc)
		if headers := x.Headers(); !matching.MatchesAny(policy.RequestHeaders, &headers) {
			retry.max = 1
		}
	}
	picks := policy.PreviousHosts
	if policy.Hedges {
		picks = cmp.Or(picks, hedgePicks)
	}
	if picks > 0 && retry.max > 1 {
		retry.hosts = &decision.Hosts{Picks: picks}
	}
	return retry
}

// hedgePicks is how often the pick for a hedge is repeated while it finds an endpoint that the RPC
// was sent to, if the policy does not set it. Another attempt there would wait behind the first.
const hedgePicks = 3

// resends reports whether the RPC has several attempts, or attempts with limits of their own.
func (r *retrier) resends() bool { return r.max > 1 || r.limited }

// hedges reports whether attempts are sent beside others.
func (r *retrier) hedges() bool { return r.max > 1 && r.policy.Hedges }

// decideRetry reports whether there is another attempt after one that ended with trailer, and sets the delay
// before it.
func (r *retrier) decideRetry(trailer metadata.MD) bool {
	if r.made+1 >= r.max {
		return false
	}
	if delay, ok := pushback(trailer); ok {
		r.delay, r.steps = delay, 0
	} else if delay, ok := r.reset(trailer); ok {
		r.delay = delay
	} else {
		r.delay = r.backoff()
		r.steps++
	}
	if r.delay < 0 {
		return false // The server asks for no further attempt.
	}
	r.made++
	return true
}

// pushback returns how long the server asks to wait, or a time below 0 for ever. It reports false
// if the server does not ask for anything (gRFC A6, "Pushback").
func pushback(trailer metadata.MD) (delay time.Duration, ok bool) {
	values := trailer[retryPushback]
	if len(values) == 0 {
		return 0, false
	}
	ms, err := strconv.ParseInt(values[0], 10, 32)
	if err != nil || len(values) > 1 {
		return -1, true
	}
	return time.Duration(ms) * time.Millisecond, true
}

// retriable reports whether the policy retries attempts that end like this.
func (r *retrier) retriable(d *decision.Decision, err error, trailer metadata.MD) bool {
	p, code := r.policy, status.Code(err)
	switch {
	case p.Codes.Has(code):
		return true
	case len(trailer) > 0: // a response
		return hasAny(p.RetriableHeaders, err, trailer)
	default:
		return p.NoResponse && unanswered.Has(code) || p.ConnectFailure && d.Failure() == rpctrace.Unreachable
	}
}

// hasAny reports whether a response that consists of trailers only has a header that matches.
// gRPC leaves the status out of the trailers.
func hasAny(headers []matching.Header, err error, trailer metadata.MD) bool {
	s := status.Convert(err)
	all := metadata.Join(trailer, metadata.Pairs("grpc-status", strconv.Itoa(int(s.Code())), "grpc-message", s.Message()))
	response := matching.RPC{Context: metadata.NewOutgoingContext(context.Background(), all)}
	h := response.Headers()
	return matching.MatchesAny(headers, &h)
}

// unanswered are the codes that an attempt without response ends with, except the codes of ends that
// the application caused. The trailer of any response has at least a content-type.
var unanswered = xdsresource.SetOf(codes.Unavailable, codes.Internal, codes.Canceled, codes.DeadlineExceeded)

// reset returns how long the response asks to wait, with up to half of that added, as Envoy does,
// so that clients do not return all at once. It reports false if the response does not ask.
func (r *retrier) reset(trailer metadata.MD) (delay time.Duration, ok bool) {
	for _, h := range r.policy.ResetHeaders {
		values := trailer[h.Name]
		if len(values) == 0 {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(values[0]), 10, 63)
		if err != nil {
			continue
		}
		limit := r.policy.MaxReset
		if h.Timestamp {
			now := time.Now()
			if n > uint64(now.Add(limit).Unix()) {
				continue
			}
			if delay = time.Unix(int64(n), 0).Sub(now); delay < 0 {
				continue
			}
		} else if n > uint64(limit/time.Second) {
			continue
		} else {
			delay = time.Duration(n) * time.Second
		}
		return delay + rand.N(delay/2+1), true
	}
	return 0, false
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

// notRetried returns the status of an RPC whose last attempt ended with err, and whose retry the
// picker has refused.
func notRetried(err, refused error) error {
	s := status.Convert(err).Proto()
	s.Message += "; not retried: " + status.Convert(refused).Message()
	return status.FromProto(s).Err()
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

// frameHeader is the size of the header that gRPC sends before each message.
const frameHeader = 5
