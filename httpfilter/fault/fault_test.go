package fault

import (
	"context"
	"strings"
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
	"google.golang.org/protobuf/types/known/anypb"
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

func headerDelay(share *typepb.FractionalPercent) *commonpb.FaultDelay {
	return &commonpb.FaultDelay{FaultDelaySecifier: &commonpb.FaultDelay_HeaderDelay_{}, Percentage: share}
}

func headerAbort(share *typepb.FractionalPercent) *faultpb.FaultAbort {
	return &faultpb.FaultAbort{ErrorType: &faultpb.FaultAbort_HeaderAbort_{}, Percentage: share}
}

func httpAbort(n uint32) *faultpb.FaultAbort {
	return &faultpb.FaultAbort{ErrorType: &faultpb.FaultAbort_HttpStatus{HttpStatus: n}, Percentage: percent(100)}
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

// TestStatusCodeMapping: gRFC A33, "Status Code Mapping" and "200/OK Error
// Injection".
func TestStatusCodeMapping(t *testing.T) {
	t.Parallel()
	for status, want := range map[uint32]codes.Code{
		200: codes.Unknown, 400: codes.Internal, 401: codes.Unauthenticated, 403: codes.PermissionDenied,
		404: codes.Unimplemented, 429: codes.Unavailable, 503: codes.Unavailable, 418: codes.Unknown,
	} {
		checkAbort(t, httpAbort(status), want)
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		checkAbort(t, grpcAbort(uint32(code)), code)
	}
}

func checkAbort(t *testing.T, a *faultpb.FaultAbort, want codes.Code) {
	t.Helper()
	var end through
	err := run(t.Context(), t, filter{new(atomic.Int64)}, &faultpb.HTTPFault{Abort: a}, &end)
	if status.Code(err) != want || end.n.Load() != 0 {
		t.Errorf("%v: %v, want %v", a, err, want)
	}
}

// TestGRPCStatusOKEndsTheRPCWithoutMessages: gRFC A33, "200/OK Error
// Injection".
func TestGRPCStatusOKEndsTheRPCWithoutMessages(t *testing.T) {
	t.Parallel()
	var end through
	if err := run(t.Context(), t, filter{new(atomic.Int64)}, &faultpb.HTTPFault{Abort: grpcAbort(0)}, &end); err != nil || end.n.Load() != 0 {
		t.Errorf("%v, %d RPCs got through", err, end.n.Load())
	}
}

// TestDelay: gRFC A33, "RPC delay injection", never past the deadline.
func TestDelay(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		config  *faultpb.HTTPFault
		md      []string
		timeout time.Duration
		want    time.Duration
		code    codes.Code
	}{
		{name: "fixed", config: &faultpb.HTTPFault{Delay: fixedDelay(time.Minute)}, want: time.Minute},
		{name: "past the deadline", config: &faultpb.HTTPFault{Delay: fixedDelay(time.Hour)}, timeout: time.Minute, want: time.Minute, code: codes.DeadlineExceeded},
		{name: "then an abort", config: &faultpb.HTTPFault{Delay: fixedDelay(time.Minute), Abort: grpcAbort(5)}, want: time.Minute, code: codes.NotFound},
		{name: "by header", config: &faultpb.HTTPFault{Delay: headerDelay(percent(100))}, md: []string{delayHeader, "1500"}, want: 1500 * time.Millisecond},
		{name: "no header", config: &faultpb.HTTPFault{Delay: headerDelay(percent(100))}},
		{name: "invalid header", config: &faultpb.HTTPFault{Delay: headerDelay(percent(100))}, md: []string{delayHeader, "soon"}},
		{name: "negative header", config: &faultpb.HTTPFault{Delay: headerDelay(percent(100))}, md: []string{delayHeader, "-5"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := metadata.AppendToOutgoingContext(context.Background(), test.md...)
				if test.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.timeout)
					defer cancel()
				}
				start := time.Now()
				err := run(ctx, t, filter{new(atomic.Int64)}, test.config, new(through))
				if got := time.Since(start); got != test.want || status.Code(err) != test.code {
					t.Errorf("%v after %v, want %v after %v", err, got, test.code, test.want)
				}
			})
		})
	}
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
		{"HTTP status", percent(100), []string{abortHTTPHeader, "503"}, codes.Unavailable, [2]int{1000, 1000}},
		{"gRPC status", percent(100), []string{abortGRPCHeader, "3"}, codes.InvalidArgument, [2]int{1000, 1000}},
		{"HTTP before gRPC status", percent(100), []string{abortGRPCHeader, "3", abortHTTPHeader, "401"}, codes.Unauthenticated, [2]int{1000, 1000}},
		{"no header", percent(100), nil, 0, [2]int{}},
		{"no number", percent(100), []string{abortHTTPHeader, "x"}, 0, [2]int{}},
		{"no HTTP status", percent(100), []string{abortHTTPHeader, "600"}, 0, [2]int{}},
		{"no gRPC status", percent(100), []string{abortGRPCHeader, "17"}, 0, [2]int{}},
		{"share in a header", percent(100), []string{abortGRPCHeader, "3", abortShareHeader, "50"}, codes.InvalidArgument, [2]int{400, 600}},
		{"share in the configuration's unit", million, []string{abortGRPCHeader, "3", abortShareHeader, "500000"}, codes.InvalidArgument, [2]int{400, 600}},
		{"share is capped", percent(50), []string{abortGRPCHeader, "3", abortShareHeader, "100"}, codes.InvalidArgument, [2]int{400, 600}},
		{"share of nothing", percent(50), []string{abortGRPCHeader, "3", abortShareHeader, "0"}, codes.InvalidArgument, [2]int{}},
		{"share that is none", percent(100), []string{abortGRPCHeader, "3", abortShareHeader, "half"}, codes.InvalidArgument, [2]int{1000, 1000}},
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
	f := filter{new(atomic.Int64)}
	none := &faultpb.HTTPFault{Abort: grpcAbort(3), MaxActiveFaults: wrapperspb.UInt32(0)}
	if err := run(t.Context(), t, f, none, new(through)); err != nil {
		t.Errorf("max_active_faults 0: %v", err)
	}
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

func TestValidation(t *testing.T) {
	t.Parallel()
	for want, pb := range map[string]*faultpb.HTTPFault{
		"abort.http_status: 199":       {Abort: httpAbort(199)},
		"abort.http_status: 600":       {Abort: httpAbort(600)},
		"abort.grpc_status: 17":        {Abort: grpcAbort(17)},
		"abort: http_status":           {Abort: new(faultpb.FaultAbort)},
		"response_rate_limit: this":    {ResponseRateLimit: new(commonpb.FaultRateLimit)}, // gRFC A33, "Support for Response Rate Limit Algorithm"
		"delay: fixed_delay":           {Delay: new(commonpb.FaultDelay)},
		"delay.fixed_delay: must":      {Delay: fixedDelay(-time.Second)},
		"delay.percentage.denominator": {Delay: headerDelay(&typepb.FractionalPercent{Denominator: 7})},
		"abort.percentage.denominator": {Abort: headerAbort(&typepb.FractionalPercent{Denominator: 7})},
	} {
		a := xdsmsg.Any(pb)
		for _, parse := range []func(*anypb.Any) (httpfilter.Config, error){filter{}.ParseConfig, filter{}.ParseOverride} {
			if _, err := parse(a); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
	two, _ := anypb.New(&faultpb.HTTPFault{Abort: httpAbort(1), Delay: fixedDelay(-1)})
	if _, err := (filter{}).ParseConfig(two); err == nil || !strings.Contains(err.Error(), "abort") || !strings.Contains(err.Error(), "delay") {
		t.Errorf("two faults: %v", err)
	}
}
