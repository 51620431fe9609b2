package xdsresource

import (
	"slices"
	"strings"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
)

// RetryPolicy is a RetryPolicy converted as gRFC A44 specifies, with what Envoy has beyond it.
type RetryPolicy struct {
	// Codes is the set of status codes that are retried.
	Codes Set[codes.Code]
	// MaxAttempts counts the first attempt: num_retries + 1, from 2 to 5. It is 1 if nothing is
	// retried, and the policy is there for its timeouts only.
	MaxAttempts int
	// BaseBackoff is the upper bound of the random wait before the first
	// retry. It doubles with each retry up to MaxBackoff. Both are at least
	// 1 ms; defaults: 25 ms, and 10 times BaseBackoff.
	BaseBackoff, MaxBackoff time.Duration
	// NoResponse retries attempts that no server has answered, among them those that a per-try
	// timeout has ended (retry_on reset, gateway-error, 5xx).
	NoResponse bool
	// ConnectFailure retries attempts for which no endpoint could be reached (connect-failure).
	ConnectFailure bool
	// RetriableHeaders retries attempts whose response consists of trailers only, and has a
	// header that matches any of these (retriable-headers).
	RetriableHeaders []matching.Header
	// RequestHeaders, if any, leaves retries to RPCs with a header that matches any of these
	// (retriable_request_headers).
	RequestHeaders []matching.Header
	// PreviousHosts is how often the pick of an endpoint for a retry is repeated while it finds
	// one that the RPC was sent to before (retry_host_predicate with previous_hosts, and
	// host_selection_retry_max_attempts). 0: such an endpoint is as good as any other.
	PreviousHosts int
	// ResetHeaders are headers of responses that say when to retry, the first one that can be
	// used takes effect (rate_limited_retry_back_off). One that says later than MaxReset is not
	// used.
	ResetHeaders []ResetHeader
	MaxReset     time.Duration
	// PerTryTimeout bounds the time from the end of an attempt's request to the start of its
	// response (per_try_timeout). 0: no bound.
	PerTryTimeout time.Duration
	// PerTryIdleTimeout bounds the time in which an attempt whose request has ended receives
	// nothing, also after its response has started (per_try_idle_timeout). 0: no bound.
	PerTryIdleTimeout time.Duration
	// Hedges says that the timeouts end no attempt: another one is sent beside it, after a backoff
	// (hedge_policy with hedge_on_per_try_timeout).
	Hedges bool
}

// ResetHeader is a header of a response that says when to retry.
type ResetHeader struct {
	Name string // in lower case
	// Timestamp says that the value is a Unix time. Otherwise it is a number of seconds to wait.
	Timestamp bool
}

// LimitsTries reports whether attempts have timeouts of their own.
func (p *RetryPolicy) LimitsTries() bool { return p.PerTryTimeout > 0 || p.PerTryIdleTimeout > 0 }

// The bounds and defaults of gRFC A44.
const (
	maxRetryAttempts   = 5
	minBackoff         = time.Millisecond
	defaultBaseBackoff = 25 * time.Millisecond
	maxBackoffFactor   = 10
)

// maxHostSelections bounds host_selection_retry_max_attempts, and so what a pick may cost.
const maxHostSelections = 100

// The type of a predicate, and its name, by which it is known without a type.
const (
	previousHostsType = "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
	previousHostsName = "envoy.retry_host_predicates.previous_hosts"
)

// defaultMaxReset is the default of rate_limited_retry_back_off.max_interval.
const defaultMaxReset = 300 * time.Second

// retryConditions are the conditions of retry_on that are status codes.
var retryConditions = map[string]codes.Code{
	"cancelled":          codes.Canceled,
	"deadline-exceeded":  codes.DeadlineExceeded,
	"internal":           codes.Internal,
	"resource-exhausted": codes.ResourceExhausted,
	"unavailable":        codes.Unavailable,
}

// retryPolicy decodes a retry_policy. It returns nil if no condition in it is one that gRPC can
// retry on, and it has no timeout for attempts.
func (d *routeDecoder) retryPolicy(at *faults.Path, pb *routepb.RetryPolicy) *RetryPolicy {
	if pb == nil {
		return nil
	}
	p := &RetryPolicy{
		MaxAttempts: 2, BaseBackoff: defaultBaseBackoff, MaxBackoff: maxBackoffFactor * defaultBaseBackoff,
		PerTryTimeout:     d.duration(at.Field("per_try_timeout"), pb.GetPerTryTimeout()),
		PerTryIdleTimeout: d.duration(at.Field("per_try_idle_timeout"), pb.GetPerTryIdleTimeout()),
	}
	d.retryOn(at, pb, p)
	p.RequestHeaders = d.headerMatchers(at, "retriable_request_headers", pb.GetRetriableRequestHeaders())
	if n := pb.GetNumRetries(); n != nil {
		if n.GetValue() == 0 {
			d.fault(at.Field("num_retries"), "must be at least 1")
		}
		p.MaxAttempts = int(min(n.GetValue(), maxRetryAttempts-1)) + 1
	}
	if backoff := pb.GetRetryBackOff(); backoff != nil {
		d.retryBackoff(at.Field("retry_back_off"), backoff, p)
	}
	if limited := pb.GetRateLimitedRetryBackOff(); limited != nil {
		d.rateLimitedBackoff(at.Field("rate_limited_retry_back_off"), limited, p)
	}
	d.hostPredicates(at, pb, p)
	switch {
	case p.retries():
		return p
	case p.LimitsTries():
		p.MaxAttempts = 1
		return p
	}
	return nil
}

// retries reports whether any attempt may be retried.
func (p *RetryPolicy) retries() bool {
	return p.Codes != 0 || p.NoResponse || p.ConnectFailure || len(p.RetriableHeaders) > 0
}

// hedgedOnTimeout returns the policy for a route with hedge_on_per_try_timeout: its timeouts end no
// attempt, and may be far shorter than attempts take (gRFC A44, "Supporting per_try_timeout"). If
// nothing is retried, there are no hedges either, as in Envoy. p may be nil.
func (p *RetryPolicy) hedgedOnTimeout() *RetryPolicy {
	switch {
	case p == nil || !p.LimitsTries():
		return p
	case !p.retries():
		return nil
	}
	q := *p
	q.Hedges = true
	return &q
}

func (d *routeDecoder) retryOn(at *faults.Path, pb *routepb.RetryPolicy, p *RetryPolicy) {
	var unknown []string
	for condition := range strings.SplitSeq(pb.GetRetryOn(), ",") {
		condition = strings.ToLower(strings.TrimSpace(condition))
		code, isCode := retryConditions[condition]
		switch {
		case isCode:
			p.Codes |= SetOf(code)
		case condition == "reset", condition == "gateway-error", condition == "5xx":
			// gRPC servers answer with HTTP status 200, so what is left of the latter two is that
			// no server answers.
			p.NoResponse = true
		case condition == "connect-failure":
			p.ConnectFailure = true
		case condition == "retriable-headers":
			p.RetriableHeaders = d.headerMatchers(at, "retriable_headers", pb.GetRetriableHeaders())
		case condition == "refused-stream": // gRPC retries a stream that the server refuses by itself (gRFC A6).
		case condition == "retriable-status-codes" && len(pb.GetRetriableStatusCodes()) == 0:
		case condition != "" && !slices.Contains(unknown, condition) && len(unknown) < maxListed:
			unknown = append(unknown, condition)
		}
	}
	if len(unknown) > 0 {
		d.ignore(at.Field("retry_on"), "this client does not support %s", faults.Quote(strings.Join(unknown, ",")))
	}
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

func (d *routeDecoder) hostPredicates(at *faults.Path, pb *routepb.RetryPolicy, p *RetryPolicy) {
	for i, predicate := range pb.GetRetryHostPredicate() {
		config := predicate.GetTypedConfig()
		if config.GetTypeUrl() == previousHostsType || config == nil && predicate.GetName() == previousHostsName {
			p.PreviousHosts = int(min(max(pb.GetHostSelectionRetryMaxAttempts(), 1), maxHostSelections))
			continue
		}
		d.ignore(at.Item("retry_host_predicate", i), "%s: this client knows the predicate previous_hosts only", faults.Quote(predicate.GetName()))
	}
}

func (d *routeDecoder) rateLimitedBackoff(at *faults.Path, pb *routepb.RetryPolicy_RateLimitedRetryBackOff, p *RetryPolicy) {
	if !d.atMost(at.Field("reset_headers"), len(pb.GetResetHeaders()), bounds.Conditions) {
		return
	}
	for i, h := range pb.GetResetHeaders() {
		at := at.Item("reset_headers", i)
		p.ResetHeaders = append(p.ResetHeaders, ResetHeader{
			Name:      d.headerName(at.Field("name"), h.GetName()),
			Timestamp: h.GetFormat() == routepb.RetryPolicy_UNIX_TIMESTAMP,
		})
		if _, known := routepb.RetryPolicy_ResetHeaderFormat_name[int32(h.GetFormat())]; !known {
			d.fault(at.Field("format"), "must be SECONDS or UNIX_TIMESTAMP, is %d", h.GetFormat())
		}
	}
	if len(p.ResetHeaders) == 0 {
		d.fault(at.Field("reset_headers"), "must not be empty")
	}
	p.MaxReset = defaultMaxReset
	if pb.GetMaxInterval() != nil {
		p.MaxReset = d.positive(at.Field("max_interval"), pb.GetMaxInterval())
	}
}

const maxDuration = time.Duration(1<<63 - 1)
