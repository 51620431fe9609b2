package dnsconfig_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	_ "github.com/dynxds/dynxds/dnsconfig"
	"github.com/dynxds/dynxds/internal/dnsserver"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

const name, configName = "service.test", "_grpc_config.service.test"

// dial opens a channel to port of name, as a user would.
func dial(t *testing.T, dns *dnsserver.Server, port string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)
	cc, err := grpc.NewClient("dnsconfig://"+dns.Addr()+"/"+name+":"+port, opts...)
	xdstest.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	return cc
}

func publish(dns *dnsserver.Server, list string) {
	dns.SetTXT(configName, dnsserver.Strings("grpc_config="+list, 255))
}

// call makes an RPC and returns the backend that answered.
func call(t *testing.T, cc *grpc.ClientConn) (string, error) {
	t.Helper()
	var header metadata.MD
	_, err := testgrpc.NewTestServiceClient(cc).EmptyCall(testutils.Context(t), &testgrpc.Empty{}, grpc.Header(&header))
	return strings.Join(header.Get(testutils.BackendIDHeader), ","), err
}

func portOf(t *testing.T, b *testutils.Backend) string {
	t.Helper()
	_, port, err := net.SplitHostPort(b.Addr())
	xdstest.NoError(t, err)
	return port
}

// oneBackend is a DNS server whose name leads to one backend.
func oneBackend(t *testing.T, opts ...grpc.ServerOption) (*dnsserver.Server, *testutils.Backend) {
	dns, backend := dnsserver.Start(t), testutils.StartBackend(t, "b1", opts...)
	dns.SetA(name, "127.0.0.1")
	return dns, backend
}

func TestChannelBalancesByTheRecord(t *testing.T) {
	t.Parallel()
	dns, one := oneBackend(t)
	two := testutils.StartBackend(t, "b2")
	xdstest.Forward(t, "127.0.0.2:"+portOf(t, one), two)
	dns.SetA(name, "127.0.0.1", "127.0.0.2")
	publish(dns, `[{"serviceConfig":{"loadBalancingConfig":[{"round_robin":{}}]}}]`)
	cc := dial(t, dns, portOf(t, one))
	seen := map[string]bool{}
	for ctx := testutils.Context(t); len(seen) < 2; {
		id, err := call(t, cc)
		if err != nil || ctx.Err() != nil {
			t.Fatalf("%v; answered by %v", err, seen)
		}
		seen[id] = true
	}
}

// failFirst makes a backend fail the first attempt of every RPC in a way that
// may be retried: with a status, and no header before it.
func failFirst() grpc.ServerOption {
	return grpc.InTapHandle(func(ctx context.Context, rpc *tap.Info) (context.Context, error) {
		if len(rpc.Header.Get("grpc-previous-rpc-attempts")) == 0 {
			return nil, status.Error(codes.Unavailable, "try again")
		}
		return ctx, nil
	})
}

const retrying = `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":3,"initialBackoff":"0.001s","maxBackoff":"0.001s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`

// The first attempt of an RPC fails, so it succeeds if the service config that applies has it retried.
func TestServiceConfigOfAChannel(t *testing.T) {
	t.Parallel()
	const faultless = `{"serviceConfig":{"methodConfig":[{"name":[{}],"waitForReady":false}]}}`
	none, byDefault := grpc.EmptyDialOption{}, grpc.WithDefaultServiceConfig(retrying)
	for _, test := range []struct {
		name, list string
		option     grpc.DialOption
		retries    bool
	}{
		{"no record", "", none, false},
		{"a record", `[{"serviceConfig":` + retrying + `}]`, none, true},
		{"choices that gRPC refuses are skipped", `[
			{"serviceConfig":{"loadBalancingConfig":[{"no_such_policy":{}}]}},
			{"serviceConfig":{"methodConfig":[{"name":[{}],"timeout":"soon"}]}},
			{"serviceConfig":{"methodConfig":[{"name":[{}]},{"name":[{}]}]}},
			{"serviceConfig":` + retrying + `}]`, none, true},
		{"service configs are disabled", `[{"serviceConfig":` + retrying + `}]`, grpc.WithDisableServiceConfig(), false},
		{"the default applies without a record", "", byDefault, true},
		{"the default applies if no choice matches", `[{"percentage":0,` + faultless[1:] + `]`, byDefault, true},
		{"the default applies if the record is invalid", `?`, byDefault, true},
		{"the default yields to the record", `[` + faultless + `]`, byDefault, false},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			dns, backend := oneBackend(t, failFirst())
			if test.list != "" {
				publish(dns, test.list)
			}
			_, err := call(t, dial(t, dns, portOf(t, backend), test.option))
			if (err == nil) != test.retries || err != nil && status.Code(err) != codes.Unavailable {
				t.Errorf("%v; retried: want %v", err, test.retries)
			}
			asked := slices.ContainsFunc(dns.All(), func(q dnsserver.Query) bool { return strings.HasPrefix(q.Name, "_grpc_config") })
			xdstest.Equal(t, "the record is asked for", test.name != "service configs are disabled", asked)
		})
	}
}

// TestIdleChannelKeepsItsDraw: half of the clients get the choice, and each of
// them gets it again after every idle period.
func TestIdleChannelKeepsItsDraw(t *testing.T) {
	t.Parallel()
	dns, backend := oneBackend(t)
	publish(dns, `[{"percentage":50,"serviceConfig":{"methodConfig":[{"name":[{}],"timeout":"5s"}]}},
		{"serviceConfig":{"methodConfig":[{"name":[{}],"timeout":"2000s"}]}}]`)
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			cc := dial(t, dns, portOf(t, backend), grpc.WithIdleTimeout(30*time.Millisecond))
			ctx := testutils.Context(t)
			var first bool
			for round := range 4 {
				_, err := testgrpc.NewTestServiceClient(cc).EmptyCall(context.Background(), &testgrpc.Empty{})
				xdstest.NoError(t, err)
				canary := time.Until(backend.Last().Deadline) < time.Minute
				if round == 0 {
					first = canary
				}
				if canary != first {
					t.Errorf("round %d: the client is one of the 50%%: %v, and was before: %v", round, canary, first)
				}
				for s := cc.GetState(); s != connectivity.Idle; s = cc.GetState() {
					if !cc.WaitForStateChange(ctx, s) {
						t.Fatalf("the channel stays %v", s)
					}
				}
			}
		})
	}
}
