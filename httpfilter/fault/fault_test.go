package fault

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// through counts the RPCs that get through.
type through struct{ n atomic.Int64 }

func (e *through) Send(ctx context.Context, _ *httpfilter.RPC) (grpc.ClientStream, error) {
	e.n.Add(1)
	return httpfilter.EndedStream(ctx, nil, nil), nil
}

// TestMaxActiveFaults: gRFC A33, "Maximum active faults": for the process, and
// only while a fault lasts. What else the filter does is in httpfilter/builtin/testdata/rpcs.txt.
func TestMaxActiveFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := newFilter().NewClientInstance(httpfilter.ClientInstanceInfo{}).(*instance)
		c, err := newFilter().ParseConfig(xdsmsg.Any(xdsmsg.With(new(faultpb.HTTPFault),
			`delay { fixed_delay { seconds: 3600 } percentage { numerator: 100 } } max_active_faults { value: 2 }`)))
		xdstest.NoError(t, err)
		i, err := in.ClientInterceptor(c, nil)
		xdstest.NoError(t, err)
		var end through
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { _, _ = httpfilter.NewNext(&end, i).NewStream(context.Background(), new(httpfilter.RPC)) })
		}
		synctest.Wait()
		xdstest.Equal(t, "RPCs that got through at once (those beyond the 2 that are delayed)",
			3, end.n.Load())
		wg.Wait()
		if end.n.Load() != 5 || in.active.Load() != 0 {
			t.Errorf("%d RPCs got through, %d faults are under way", end.n.Load(), in.active.Load())
		}
	})
}
