package fault

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	commonpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func percent(n uint32) *typepb.FractionalPercent { return &typepb.FractionalPercent{Numerator: n} }

func fixedDelay(d time.Duration) *commonpb.FaultDelay {
	return &commonpb.FaultDelay{FaultDelaySecifier: &commonpb.FaultDelay_FixedDelay{FixedDelay: durationpb.New(d)}, Percentage: percent(100)}
}

func headerAbort(share *typepb.FractionalPercent) *faultpb.FaultAbort {
	return &faultpb.FaultAbort{ErrorType: &faultpb.FaultAbort_HeaderAbort_{}, Percentage: share}
}

func grpcAbort(n uint32) *faultpb.FaultAbort {
	return &faultpb.FaultAbort{ErrorType: &faultpb.FaultAbort_GrpcStatus{GrpcStatus: n}, Percentage: percent(100)}
}

func parsed(t *testing.T, pb *faultpb.HTTPFault) httpfilter.Config {
	t.Helper()
	c, err := filter{}.ParseConfig(xdsmsg.Any(pb))
	xdstest.NoError(t, err)
	return c
}

// through counts the RPCs that get through.
type through struct{ n atomic.Int64 }

func (e *through) Send(ctx context.Context, _ *httpfilter.RPC) (grpc.ClientStream, error) {
	e.n.Add(1)
	return httpfilter.EndedStream(ctx, nil, nil), nil
}

func run(ctx context.Context, t *testing.T, f filter, pb *faultpb.HTTPFault, end *through) error {
	t.Helper()
	i, err := f.ClientInterceptor(parsed(t, pb), nil)
	xdstest.NoError(t, err)
	if i == nil {
		return nil
	}
	_, err = httpfilter.NewNext(end, i).NewStream(ctx, new(httpfilter.RPC))
	return err
}

// TestHeaderMatching: gRFC A33, "Header matching": percentages in headers set
// the numerator and are capped by the configured one; invalid headers are
// ignored.
func TestHeaderMatching(t *testing.T) {
	t.Parallel()
	million := &typepb.FractionalPercent{Numerator: 1_000_000, Denominator: typepb.FractionalPercent_MILLION}
	for _, test := range []struct {
		name  string
		share *typepb.FractionalPercent
		md    []string
		code  codes.Code
		want  [2]int // of 1,000 RPCs, from … to … are aborted
	}{
		{"share in a header", percent(100), []string{abortGRPCHeader, "3", abortShareHeader, "50"}, codes.InvalidArgument, [2]int{400, 600}},
		{"share in the configuration's unit", million, []string{abortGRPCHeader, "3", abortShareHeader, "500000"}, codes.InvalidArgument, [2]int{400, 600}},
		{"share is capped", percent(50), []string{abortGRPCHeader, "3", abortShareHeader, "100"}, codes.InvalidArgument, [2]int{400, 600}},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			ctx := metadata.AppendToOutgoingContext(t.Context(), test.md...)
			f, aborted := filter{new(atomic.Int64)}, 0
			for range 1000 {
				if err := run(ctx, t, f, &faultpb.HTTPFault{Abort: headerAbort(test.share)}, new(through)); err != nil {
					aborted++
					if status.Code(err) != test.code {
						t.Fatalf("%v, want %v", err, test.code)
					}
				}
			}
			if aborted < test.want[0] || aborted > test.want[1] {
				t.Errorf("%d of 1000 RPCs were aborted, want %v", aborted, test.want)
			}
		})
	}
}

// TestMaxActiveFaults: gRFC A33, "Maximum active faults": for the process, and
// only while a fault lasts.
func TestMaxActiveFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := filter{new(atomic.Int64)}
		config := &faultpb.HTTPFault{Delay: fixedDelay(time.Hour), MaxActiveFaults: wrapperspb.UInt32(2)}
		var end through
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { _ = run(context.Background(), t, f, config, &end) })
		}
		synctest.Wait()
		xdstest.Equal(t, "RPCs that got through at once (those beyond the 2 that are delayed)",
			3, end.n.Load())
		wg.Wait()
		if end.n.Load() != 5 || f.active.Load() != 0 {
			t.Errorf("%d RPCs got through, %d faults are under way", end.n.Load(), f.active.Load())
		}
	})
}

// Delay and abort are drawn for separately: gRFC A33, "Evaluate Possibility
// Fraction".
func TestSeparateDraws(t *testing.T) {
	t.Parallel()
	delay := fixedDelay(time.Nanosecond)
	delay.Percentage = percent(50)
	abort := grpcAbort(3)
	abort.Percentage = percent(50)
	c := parsed(t, &faultpb.HTTPFault{Delay: delay, Abort: abort}).(*config)
	both := 0
	for range 4000 {
		_, delayed := c.delay.draw(nil)
		if _, aborted := c.abort.draw(nil); delayed && aborted {
			both++
		}
	}
	if both < 800 || both > 1200 {
		t.Errorf("%d of 4000 RPCs have both faults, want about 1000", both)
	}
}
