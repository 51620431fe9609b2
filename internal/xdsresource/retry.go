package xdsresource

import (
	"fmt"
	"strings"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/xdsclient"
)

// RetryPolicy is a RetryPolicy converted as gRFC A44 specifies. Fields that A44 does not
// name are ignored, such as per_try_timeout, retriable_headers and host predicates.
type RetryPolicy struct {
	// Codes is the set of status codes that are retried; it is not empty.
	Codes CodeSet
	// MaxAttempts counts the first attempt: num_retries + 1, from 2 to 5.
	MaxAttempts int
	// BaseBackoff is the upper bound of the random wait before the first
	// retry. It doubles with each retry up to MaxBackoff. Both are at least
	// 1 ms; defaults: 25 ms, and 10 times BaseBackoff.
	BaseBackoff, MaxBackoff time.Duration
}

// CodeSet is a set of the 17 gRPC status codes.
type CodeSet uint32

// NewCodeSet returns the set of the codes.
func NewCodeSet(members ...codes.Code) CodeSet {
	var s CodeSet
	for _, c := range members {
		s |= 1 << c
	}
	return s
}

// Has reports whether c is in the set. Codes that gRPC does not define never
// are.
func (s CodeSet) Has(c codes.Code) bool { return c <= codes.Unauthenticated && s>>c&1 == 1 }

// The bounds and defaults of gRFC A44.
const (
	maxRetryAttempts   = 5
	minBackoff         = time.Millisecond
	defaultBaseBackoff = 25 * time.Millisecond
	maxBackoffFactor   = 10
)

// retryConditions are the conditions of retry_on that gRPC knows.
var retryConditions = map[string]codes.Code{
	"cancelled":          codes.Canceled,
	"deadline-exceeded":  codes.DeadlineExceeded,
	"internal":           codes.Internal,
	"resource-exhausted": codes.ResourceExhausted,
	"unavailable":        codes.Unavailable,
}

// retryPolicy decodes a retry_policy. It returns nil if no condition in it is a code that
// gRPC retries.
func (d *routeDecoder) retryPolicy(at *faults.Path, pb *routepb.RetryPolicy) *RetryPolicy {
	p := &RetryPolicy{MaxAttempts: 2, BaseBackoff: defaultBaseBackoff, MaxBackoff: maxBackoffFactor * defaultBaseBackoff}
	unknown := 0
	for condition := range strings.SplitSeq(pb.GetRetryOn(), ",") {
		condition = strings.ToLower(strings.TrimSpace(condition))
		if code, ok := retryConditions[condition]; ok {
			p.Codes |= NewCodeSet(code)
		} else if condition != "" {
			unknown++
		}
	}
	if unknown > 0 {
		// Routes list different conditions, but are reported as one.
		d.ignored.add(at.Field("retry_on"), xdsclient.SeverityInfo, "",
			fmt.Sprintf("%s: gRPC does not support %d of the conditions (gRFC A44)", faults.Quote(pb.GetRetryOn()), unknown))
	}
	if n := pb.GetNumRetries(); n != nil {
		if n.GetValue() == 0 {
			d.fault(at.Field("num_retries"), "must be at least 1")
		}
		p.MaxAttempts = int(min(n.GetValue(), maxRetryAttempts-1)) + 1
	}
	if backoff := pb.GetRetryBackOff(); backoff != nil {
		d.retryBackoff(at.Field("retry_back_off"), backoff, p)
	}
	if p.Codes == 0 {
		return nil
	}
	return p
}

func (d *routeDecoder) retryBackoff(at *faults.Path, pb *routepb.RetryPolicy_RetryBackOff, p *RetryPolicy) {
	base := d.positive(at.Field("base_interval"), pb.GetBaseInterval())
	limit := time.Duration(min(int64(base), int64(maxDuration)/maxBackoffFactor)) * maxBackoffFactor
	if pb.GetMaxInterval() != nil {
		limit = d.positive(at.Field("max_interval"), pb.GetMaxInterval())
		if base > 0 && 0 < limit && limit < base {
			d.fault(at.Field("max_interval"), "%v is below base_interval, %v", limit, base)
		}
	}
	p.BaseBackoff, p.MaxBackoff = max(base, minBackoff), max(limit, minBackoff)
}

const maxDuration = time.Duration(1<<63 - 1)
