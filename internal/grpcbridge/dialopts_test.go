package grpcbridge_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

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
	} {
		cc, err := grpc.NewClient("passthrough:///x", append(test.opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		xdstest.NoError(t, err)
		xdstest.Equal(t, test.name, test.want, grpcbridge.MaxAttempts(cc))
		if got, want := grpcbridge.DisablesHealthChecks(cc), test.name == "disabled"; got != want {
			t.Errorf("%s: health checks disabled: %v", test.name, got)
		}
		cc.Close()
	}
	xdstest.Equal(t, "no channel", 5, grpcbridge.MaxAttempts(nil))
}

// A program may keep its dial options for as long as it runs.
func TestOptionsKeepNoClosedChannel(t *testing.T) {
	t.Parallel()
	shared := append(grpcbridge.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	dialAndClose := func(t *testing.T, target string, b *fakeBuilder) weak.Pointer[grpc.ClientConn] {
		opts := append([]grpc.DialOption{grpc.WithResolvers(b)}, shared...)
		cc, err := grpc.NewClient(target, opts...)
		xdstest.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		served := make(chan struct{})
		go func() {
			defer close(served)
			select {
			case r := <-b.built:
				r.Publish(new(fakeRunner))
			case <-ctx.Done():
			}
		}()
		for range 2 { // The first one waits for the resolver.
			if err := call(ctx, cc, false); (err == nil) != (b.scheme != "other") {
				t.Errorf("an RPC to %s: %v", target, err)
			}
		}
		cancel()
		<-served
		cc.Close()
		return weak.Make(cc)
	}
	for name, target := range map[string]string{
		"served by the options":          "bridgeoptions:///x",
		"served by the installed ones":   scheme + ":///x",
		"of a resolver that is not ours": "passthrough:///127.0.0.1:1",
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			b := newFakeBuilder()
			b.scheme, _, _ = strings.Cut(target, ":")
			if b.scheme == "passthrough" {
				b.scheme = "other"
			}
			channel := dialAndClose(t, target, b)
			for deadline := time.Now().Add(patience); channel.Value() != nil; time.Sleep(time.Millisecond) {
				if runtime.GC(); time.Now().After(deadline) {
					t.Fatal("the closed channel is still in memory")
				}
			}
			runtime.KeepAlive(shared)
		})
	}
}
