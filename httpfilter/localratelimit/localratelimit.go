// Package localratelimit is the filter
// envoy.extensions.filters.http.local_ratelimit.v3, on the client: a token
// bucket for the RPCs of a channel. An RPC that gets no token ends with
// RESOURCE_EXHAUSTED, or, in shadow mode, goes on.
//
// Each instance of the filter on a channel has a bucket for its top-level
// configuration and one for each different token_bucket of overrides; one that stays the same
// over an update keeps its tokens. Descriptors and everything that concerns
// several connections or processes are ignored.
package localratelimit

import (
	"cmp"
	"context"
	"time"

	limitpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/httpfilter/internal/protofilter"
	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/fraction"
	"github.com/dynxds/dynxds/internal/headeredit"
	"github.com/dynxds/dynxds/internal/refpool"
)

// minInterval is the shortest fill_interval that Envoy takes.
const minInterval = 50 * time.Millisecond

var logger = boundlog.Component("dynxds")

var filter = protofilter.New(parse, parse, func(httpfilter.ClientInstanceInfo) httpfilter.ClientInstance { return new(instance) })

func init() { httpfilter.Register(filter) }

type config struct {
	limits
	// enabled is the share of RPCs that need a token, enforced the share of
	// those without one that are ended. Both are 0 if not configured, as in
	// Envoy.
	enabled, enforced fraction.Fraction
	// request is for RPCs that go on without a token.
	request headeredit.Edits
	// response is for RPCs that are ended.
	response headeredit.Edits
}

func parse(pb *limitpb.LocalRateLimit, found *faults.Faults) httpfilter.Config {
	c := &config{
		limits:   parseBucket(faults.Field("token_bucket"), pb.GetTokenBucket(), found),
		enabled:  fraction.Read(faults.Field("filter_enabled").Field("default_value"), pb.GetFilterEnabled().GetDefaultValue(), found),
		enforced: fraction.Read(faults.Field("filter_enforced").Field("default_value"), pb.GetFilterEnforced().GetDefaultValue(), found),
	}
	var ignored, more []string
	c.request, ignored = headeredit.FromOptions(headeredit.Request, pb.GetRequestHeadersToAddWhenNotEnforced())
	c.response, more = headeredit.FromOptions(headeredit.Response, pb.GetResponseHeadersToAdd())
	for _, why := range append(ignored, more...) {
		logger.Infof("local rate limit filter: an edit is ignored: %s", why)
	}
	return c
}

func parseBucket(at *faults.Path, b *typepb.TokenBucket, found *faults.Faults) limits {
	l := limits{max: b.GetMaxTokens(), perFill: 1, interval: b.GetFillInterval().AsDuration()}
	if b.GetTokensPerFill() != nil {
		l.perFill = b.GetTokensPerFill().GetValue()
	}
	switch {
	case b == nil:
		found.Addf(at, "must be set")
	case l.max == 0:
		found.Addf(at.Field("max_tokens"), "must be above 0")
	case l.perFill == 0:
		found.Addf(at.Field("tokens_per_fill"), "must be above 0")
	case b.GetFillInterval().CheckValid() != nil || l.interval < minInterval:
		found.Addf(at.Field("fill_interval"), "must be at least %v", minInterval)
	}
	return l
}

// instance has the buckets that interceptors still use.
type instance struct {
	buckets refpool.Weak[bucketKey, bucket]
}

type bucketKey struct {
	limits
	override bool // of overrides; otherwise of the top-level configuration
}

func (in *instance) ClientInterceptor(c, override httpfilter.Config) (httpfilter.Interceptor, error) {
	conf := cmp.Or(override, c).(*config)
	if conf.enabled.Numerator == 0 {
		return nil, nil
	}
	b := in.buckets.Get(bucketKey{conf.limits, override != nil}, func() *bucket { return newBucket(conf.limits) })
	return &interceptor{config: conf, bucket: b}, nil
}

type interceptor struct {
	*config
	bucket *bucket
}

func (i *interceptor) NewStream(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
	if !i.enabled.Draw() || i.bucket.takeToken() {
		return next.NewStream(ctx, rpc)
	}
	if i.enforced.Draw() {
		trailer := metadata.MD{}
		i.response.Apply(trailer)
		err := status.Error(codes.ResourceExhausted, "the local rate limit of this client is reached")
		return httpfilter.EndedStream(ctx, err, trailer), nil
	}
	return next.NewStream(headeredit.Outgoing(ctx, i.request), rpc)
}
