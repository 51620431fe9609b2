package interop_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/gocp"
)

// retryPolicies are those that are measured. All RPCs of a benchmark succeed in the
// end.
var retryPolicies = []struct {
	name, policy string
}{
	{"none", ""},
	{"configured", `retry_policy { retry_on: "unavailable" num_retries { value: 2 } retry_back_off { base_interval { nanos: 1000000 } } }`},
}

// retryWorld is a backend that fails the first `failures` of each three RPCs, behind a
// route with the policy.
func retryWorld(t testing.TB, policy string, failures uint64) (*gocp.Server, string) {
	t.Helper()
	backend := serveTest(t, &failing{failures: failures})
	control := gocp.Start(t, gocp.AnyNames)
	route := xdsmsg.With(xdsmsg.PrefixRoute("/", "cluster"), "route { %s }", policy)
	control.Set(t, listener("routes"), xdsmsg.RouteConfig("routes", service, route),
		cluster("cluster", "cluster"), xdsmsg.SimpleEndpoints("endpoints-of-cluster", backend))
	return control, backend
}

// failing is a lean backend that fails some of its RPCs.
type failing struct {
	lean
	failures, n uint64
}

func (f *failing) next() error {
	if f.failures > 0 && (atomic.AddUint64(&f.n, 1)-1)%3 < f.failures {
		return status.Error(codes.Unavailable, "not yet")
	}
	return nil
}

func (f *failing) UnaryCall(ctx context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	if err := f.next(); err != nil {
		return nil, err
	}
	return f.lean.UnaryCall(ctx, r)
}

func (f *failing) FullDuplexCall(stream grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
	if err := f.next(); err != nil {
		return err
	}
	reply := new(testpb.StreamingOutputCallResponse)
	for {
		if _, err := stream.Recv(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
}

// pingPong is a stream of ten messages in each direction, in turn.
func pingPong(t testing.TB, client testpb.TestServiceClient) {
	stream, err := client.FullDuplexCall(context.Background())
	xdstest.NoError(t, err)
	request := new(testpb.StreamingOutputCallRequest)
	for range 10 {
		xdstest.NoError(t, stream.Send(request))
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	xdstest.NoError(t, stream.CloseSend())
	if _, err := stream.Recv(); err != io.EOF {
		t.Fatal(err)
	}
}

// BenchmarkRetryPolicy is a whole RPC over loopback: one that is not retried, without
// and with a retry policy on its route, and one that is retried twice, after 1 ms and
// after 2.
func BenchmarkRetryPolicy(b *testing.B) {
	for _, p := range retryPolicies {
		for _, failures := range []uint64{0, 2} {
			if failures > 0 && p.policy == "" {
				continue
			}
			b.Run(fmt.Sprintf("policy=%s/retries=%d", p.name, failures), func(b *testing.B) {
				control, backend := retryWorld(b, p.policy, failures)
				client := testpb.NewTestServiceClient(dialDynxds(b, control, backend))
				call(b, client) // Connects.
				b.Run("unary", func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						call(b, client)
					}
				})
				b.Run("streaming", func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						pingPong(b, client)
					}
				})
			})
		}
	}
}

// retryAllocations is how many allocations a unary RPC that is not retried makes more
// because its route has a retry policy: what it would be sent again by, and four of gRPC's,
// which is asked for copies of headers and trailers that decide on a retry.
const retryAllocations = 5

func TestAllocationsOfARetryPolicy(t *testing.T) {
	var got []float64
	for _, p := range retryPolicies {
		control, backend := retryWorld(t, p.policy, 0)
		got = append(got, allocations(t, dialDynxds(t, control, backend)))
	}
	t.Logf("allocations per RPC: no policy %v, policy %v", got[0], got[1])
	if got[1]-got[0] > retryAllocations {
		t.Errorf("%v allocations more with a retry policy, want at most %d", got[1]-got[0], retryAllocations)
	}
}
