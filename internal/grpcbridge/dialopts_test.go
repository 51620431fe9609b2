package grpcbridge_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// TestDialOptions: gRFC A6, "Limits on Retries and Hedges" and "Disabling
// Retries"; gRFC A17, "Client Behavior". Should it fail after an update of gRPC, gRPC keeps the options of a
// channel elsewhere now.
func TestDialOptions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		opts []grpc.DialOption
		want int
	}{
		{"default", nil, 5},
		{"more", []grpc.DialOption{grpc.WithMaxCallAttempts(9)}, 9},
		{"less", []grpc.DialOption{grpc.WithMaxCallAttempts(2)}, 2},
		{"disabled", []grpc.DialOption{grpc.WithDisableRetry(), grpc.WithDisableHealthCheck()}, 1},
		{"service config", []grpc.DialOption{grpc.WithDefaultServiceConfig(`{"methodConfig": []}`)}, 5},
	} {
		cc, err := grpc.NewClient("passthrough:///x", append(test.opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		xdstest.NoError(t, err)
		xdstest.Equal(t, test.name, test.want, grpcbridge.MaxAttempts(cc))
		if got, want := grpcbridge.DisablesHealthChecks(cc), test.name == "disabled"; got != want {
			t.Errorf("%s: health checks disabled: %v", test.name, got)
		}
		if got := grpcbridge.DefaultServiceConfig(cc); (got == `{"methodConfig": []}`) != (test.name == "service config") {
			t.Errorf("%s: default service config %q", test.name, got)
		}
		cc.Close()
	}
	xdstest.Equal(t, "no channel", 5, grpcbridge.MaxAttempts(nil))
}

// retired is a Runner that takes no RPCs.
type retired struct{ next func() }

func (r retired) Unary(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, []grpc.CallOption) error {
	r.next()
	return grpcbridge.ErrRetired
}

func (r retired) Stream(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, grpc.Streamer, []grpc.CallOption) (grpc.ClientStream, error) {
	r.next()
	return nil, grpcbridge.ErrRetired
}

func TestRPCMovesOnFromARetiredRunner(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, streaming bool) {
		b := newFakeBuilder()
		done := background(t.Context(), dial(t, b), streaming)
		r := b.next(t)
		runner := new(fakeRunner)
		r.Publish(retired{next: func() { r.Publish(runner) }})
		if err := ended(t, done); err != nil || len(runner.ran()) != 1 {
			t.Errorf("%v, the next runner ran %v", err, runner.ran())
		}
	})
}
