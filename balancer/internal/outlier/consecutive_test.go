package outlier_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// five ejects for five failures in a row of each kind.
func five(split bool) *xdsresource.OutlierDetection {
	c := base()
	all := &xdsresource.ConsecutiveEjection{Failures: 5, EnforcementPercentage: 100}
	c.Consecutive5xx, c.ConsecutiveGatewayFailure, c.SplitLocalOriginErrors = all, all, split
	if split {
		c.ConsecutiveLocalOriginFailure = all
	}
	return c
}

func only5xx(failures uint32) *xdsresource.OutlierDetection {
	c := base()
	c.Consecutive5xx = &xdsresource.ConsecutiveEjection{Failures: failures, EnforcementPercentage: 100}
	return c
}

func (f *fixture) end(i int, info balancer.DoneInfo, times int) {
	for range times {
		f.conns[i].Count(info)
	}
}

func answered(c codes.Code) balancer.DoneInfo {
	return balancer.DoneInfo{Err: status.Error(c, "no"), BytesSent: true, BytesReceived: true}
}

func unanswered(c codes.Code) balancer.DoneInfo {
	return balancer.DoneInfo{Err: status.Error(c, "no"), BytesSent: true}
}

// Which RPCs count for which of Envoy's consecutive failures: the method that ejects the endpoint
// on the fifth one, or none.
func TestStatusesThatCountAsConsecutiveFailures(t *testing.T) {
	t.Parallel()
	const none, server, gateway, local = "", "consecutive_5xx", "consecutive_gateway_failure", "consecutive_local_origin_failure"
	for code, want := range map[codes.Code]string{
		codes.Unknown: server, codes.Internal: server, codes.Unimplemented: server, codes.DataLoss: server,
		codes.Unavailable: gateway, codes.DeadlineExceeded: gateway,
		codes.InvalidArgument: none, codes.NotFound: none, codes.AlreadyExists: none, codes.PermissionDenied: none,
		codes.Unauthenticated: none, codes.ResourceExhausted: none, codes.FailedPrecondition: none,
		codes.Aborted: none, codes.OutOfRange: none, codes.Canceled: none,
	} {
		lost := code == codes.Unavailable || code == codes.DeadlineExceeded
		for _, tc := range []struct {
			name    string
			split   bool
			info    balancer.DoneInfo
			gateway bool
			want    string
		}{
			{"answered", false, answered(code), false, want},
			{"answered, local origin apart", true, answered(code), false, want},
			{"unanswered", false, unanswered(code), false, map[bool]string{true: gateway}[lost]},
			{"unanswered, local origin apart", true, unanswered(code), false, map[bool]string{true: local}[lost]},
		} {
			t.Run(fmt.Sprint(code, " ", tc.name), func(t *testing.T) {
				test(t, 3, func(f *fixture) {
					c := five(tc.split)
					if tc.want == gateway {
						c.Consecutive5xx = nil // which would be reached by the same RPC
					}
					f.update(c)
					f.end(1, tc.info, 4)
					f.expect("after four")
					f.end(1, tc.info, 1)
					if tc.want == none {
						f.expect("after five")
						return
					}
					f.expect("after five", 1)
					want := map[string]int64{enforcedBy + tc.want + ofCluster: 1}
					xdstest.Equal(f.t, "counted",
						want, f.cc.Meter.Counts("grpc.lb.outlier_detection."))
				})
			})
		}
	}
}

// What comes between failures: an RPC that is no failure ends the run, one that has no bearing on the
// endpoint does not.
func TestRunsOfFailures(t *testing.T) {
	t.Parallel()
	ok := balancer.DoneInfo{BytesReceived: true}
	for _, tc := range []struct {
		name    string
		split   bool
		failure balancer.DoneInfo
		between balancer.DoneInfo
		ejected bool
	}{
		{"success", false, answered(codes.Internal), ok, false},
		{"a status of the application", false, answered(codes.Internal), answered(codes.NotFound), false},
		{"canceled", false, answered(codes.Internal), answered(codes.Canceled), true},
		{"canceled without an answer", false, answered(codes.Internal), unanswered(codes.Canceled), true},
		{"picked again", false, answered(codes.Internal), balancer.DoneInfo{}, true},
		{"not sent, by an error of the client's", false, answered(codes.Internal), balancer.DoneInfo{Err: errors.New("marshal")}, true},
		{"another kind of 5xx", false, answered(codes.Internal), unanswered(codes.Unavailable), true},
		{"local origin, which is counted apart", true, answered(codes.Internal), unanswered(codes.Unavailable), true},
		{"an answer, of whatever kind, to local-origin failures", true, unanswered(codes.Unavailable), answered(codes.Internal), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			test(t, 3, func(f *fixture) {
				f.update(five(tc.split))
				f.end(0, tc.failure, 4)
				f.end(0, tc.between, 1)
				f.end(0, tc.failure, 4)
				if tc.ejected {
					f.expect("with something between that does not count", 0)
				} else {
					f.expect("interrupted")
				}
			})
		})
	}
	t.Run("a 5xx that is no gateway failure", func(t *testing.T) {
		test(t, 3, func(f *fixture) {
			c := five(false)
			c.Consecutive5xx = nil
			f.update(c)
			f.end(0, answered(codes.Unavailable), 4)
			f.end(0, answered(codes.Internal), 1)
			f.end(0, answered(codes.Unavailable), 4)
			f.expect("interrupted")
		})
	})
}

// Envoy spares what exceeds max_ejection_percent.
func TestConsecutiveEjections(t *testing.T) {
	t.Parallel()
	t.Run("too many", func(t *testing.T) {
		test(t, 4, func(f *fixture) {
			f.update(only5xx(2))
			for i := range 4 {
				f.end(i, answered(codes.Internal), 2)
				synctest.Wait()
			}
			f.expect("half of them, at most", 0, 1)
			f.end(3, answered(codes.Internal), 1)
			f.expect("and no more", 0, 1)
			want := map[string]int64{
				enforcedBy + "consecutive_5xx" + ofCluster:                                       2,
				unenforcedBy + "consecutive_5xx" + because + "max_ejection_overflow" + ofCluster: 2,
			}
			xdstest.Equal(f.t, "counted", want, f.cc.Meter.Counts("grpc.lb.outlier_detection."))
		})
	})
	t.Run("closed", func(t *testing.T) {
		test(t, 4, func(f *fixture) {
			f.update(only5xx(1))
			f.loop.Do(f.detector.Close)
			f.end(0, answered(codes.Internal), 1)
			f.expect("a late RPC")
		})
	})
}

// An ejection lasts up to max_ejection_time_jitter longer, each time another time.
func TestEjectionJitter(t *testing.T) {
	test(t, 64, func(f *fixture) {
		c := only5xx(1)
		c.Interval, c.MaxEjectionPercent, c.MaxEjectionTimeJitter = time.Second, 100, 20*time.Second
		f.update(c)
		for i := range f.conns {
			f.end(i, answered(codes.Internal), 1)
		}
		time.Sleep(30 * time.Second)
		xdstest.Equal(f.t, "ejected of 64 after base_ejection_time", 64, len(f.ejected()))
		time.Sleep(10 * time.Second)
		// That fewer than 10, or more than 54, of 64 drew less than half has a probability of 1e-8.
		if n := len(f.ejected()); n < 10 || n > 54 {
			f.t.Errorf("%d of 64 are ejected after half the jitter", n)
		}
		time.Sleep(12 * time.Second)
		f.expect("after all the jitter")
	})
}

func TestLongestEjectionTimeWithJitter(t *testing.T) {
	test(t, 4, func(f *fixture) {
		c := only5xx(1)
		c.MaxEjectionTimeJitter, c.BaseEjectionTime = math.MaxInt64, math.MaxInt64
		f.update(c)
		f.end(0, answered(codes.Internal), 1)
		time.Sleep(time.Hour)
		f.expect("for as long as there are nanoseconds", 0)
	})
}
