package localratelimit

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	limitpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestABucketGivesNoTokenTwice(t *testing.T) {
	t.Parallel()
	b := newBucket(limits{max: 1000, perFill: 1, interval: time.Hour})
	var taken atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for b.takeToken() {
				taken.Add(1)
			}
		})
	}
	wg.Wait()
	xdstest.Equal(t, "tokens taken", 1000, taken.Load())
}

func valid() *limitpb.LocalRateLimit {
	return &limitpb.LocalRateLimit{
		TokenBucket:   &typepb.TokenBucket{MaxTokens: 3, FillInterval: durationpb.New(time.Hour)},
		FilterEnabled: &corepb.RuntimeFractionalPercent{DefaultValue: &typepb.FractionalPercent{Numerator: 100}},
	}
}

func parsed(t *testing.T, pb *limitpb.LocalRateLimit) httpfilter.Config {
	t.Helper()
	c, err := filter.ParseConfig(xdsmsg.Any(pb))
	xdstest.NoError(t, err)
	return c
}

// The bucket of an instance stays over an update as long as its limits do.
func TestBucketsStayWithTheInstance(t *testing.T) {
	t.Parallel()
	in := filter.NewClientInstance(httpfilter.ClientInstanceInfo{}).(*instance)
	bucketOf := func(top, override *limitpb.LocalRateLimit) *bucket {
		var o httpfilter.Config
		if override != nil {
			o = parsed(t, override)
		}
		i, err := in.ClientInterceptor(parsed(t, top), o)
		xdstest.NoError(t, err)
		return i.(*interceptor).bucket
	}
	other := valid()
	other.TokenBucket.MaxTokens = 4
	first := bucketOf(valid(), nil)
	if bucketOf(valid(), nil) != first {
		t.Error("equal limits have two buckets")
	}
	if bucketOf(valid(), other) == first {
		t.Error("the override uses the bucket of the configuration")
	}
	overridden := bucketOf(valid(), valid())
	if overridden == first {
		t.Error("an override with the limits of the configuration uses its bucket")
	}
	if bucketOf(valid(), valid()) != overridden {
		t.Error("equal overrides have two buckets")
	}
	runtime.KeepAlive(overridden)
	if in = new(instance); bucketOf(valid(), nil) == first {
		t.Error("two instances share a bucket")
	}
	runtime.KeepAlive(first)
}
