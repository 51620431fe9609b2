package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// explainedService is the target of the tests here: an explanation is asked for by target.
const explainedService = "explain.example.com"

func headerRoute(name, value, cluster string) *routepb.Route {
	r := xdsmsg.PrefixRoute("", cluster)
	r.Match.Headers = []*routepb.HeaderMatcher{{Name: name, HeaderMatchSpecifier: &routepb.HeaderMatcher_StringMatch{
		StringMatch: &matcherpb.StringMatcher{MatchPattern: &matcherpb.StringMatcher_Exact{Exact: value}},
	}}}
	return r
}

// An explanation says where RPCs really go, and what the connections are.
func TestExplainAChannel(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	first, second := testutils.StartBackend(t, "first"), testutils.StartBackend(t, "second")
	m.set(append(append(clusterOf("first", first), clusterOf("second", second)...),
		chain(explainedService, headerRoute("x-user", "7", "second"), xdsmsg.PathRoute(emptyMethod, "second"), xdsmsg.PrefixRoute("", "first"))...)...)
	cc := m.dial("xds:///" + explainedService)
	ctx := testutils.Context(t)
	client := testgrpc.NewTestServiceClient(cc)

	for _, tc := range []struct {
		method string
		md     metadata.MD
	}{
		{unaryMethod, nil}, {unaryMethod, metadata.Pairs("x-user", "8")}, {unaryMethod, metadata.Pairs("X-User", "7")}, {emptyMethod, nil},
	} {
		var header metadata.MD
		out, opt := metadata.NewOutgoingContext(ctx, tc.md), grpc.Header(&header)
		var err error
		if tc.method == emptyMethod {
			_, err = client.EmptyCall(out, new(testgrpc.Empty), opt)
		} else {
			_, err = client.UnaryCall(out, new(testgrpc.SimpleRequest), opt)
		}
		xdstest.NoError(t, err)
		e := explained(t, tc.method, tc.md)
		want := fmt.Sprintf("cluster %q, priority 0, 1 endpoint", backendID(header))
		if !strings.HasSuffix(e.Outcome, want) || e.Code != "" {
			t.Errorf("%s with %v is explained as %q with code %q; it went to %s", tc.method, tc.md, e.Outcome, e.Code, backendID(header))
		}
	}

	e := explained(t, unaryMethod, nil)
	xdstest.Equal(t, "the channel", "READY", e.Client.Channel)
	endpoint := e.Clusters[0].Assignment.Priorities[0].Localities[0].Endpoints[0]
	if !e.Clusters[0].Assignment.Live || endpoint.State != "READY" || endpoint.Address != first.Addr() {
		t.Errorf("the endpoint is %+v, want %s, ready", endpoint, first.Addr())
	}
	if got := e.Routes[0].Failed; got == nil || got.Name != "x-user" || got.Have != "absent" {
		t.Errorf("the first route fails for %+v, want the header", got)
	}
	if _, err := json.Marshal(e); err != nil {
		t.Error(err)
	}

	// The backend is gone: RPCs fail, and the explanation has the reason. The first RPC may fail
	// before the connection is tried again.
	first.Stop()
	for e.Code == "" {
		_, err := client.UnaryCall(ctx, new(testgrpc.SimpleRequest))
		if code := status.Code(err); code != codes.Unavailable {
			t.Fatalf("an RPC to a stopped backend ends with %v", err)
		}
		e = explained(t, unaryMethod, nil)
	}
	endpoint = e.Clusters[0].Assignment.Priorities[0].Localities[0].Endpoints[0]
	if endpoint.LastError == "" || e.Code != "UNAVAILABLE" || !strings.Contains(e.Text(), endpoint.LastError) {
		t.Errorf("the endpoint is %+v, the code %q:\n%s", endpoint, e.Code, e.Text())
	}
}

func explained(t *testing.T, method string, md metadata.MD) *dynxds.Explanation {
	t.Helper()
	e, err := dynxds.Explain(testutils.Context(t), "xds:///"+explainedService, method, md)
	xdstest.NoError(t, err)
	return e
}

func TestExplainWithoutAChannel(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ target, method, want string }{
		{"xds:///no.channel.example.com", unaryMethod, `no xDS channel of the process has the target "xds:///no.channel.example.com"; `},
		{"xds:///", unaryMethod, "names no service"},
		{"xds:///a", "grpc.testing.TestService/UnaryCall", `did you mean "/grpc.testing.TestService/UnaryCall"?`},
	} {
		_, err := dynxds.Explain(context.Background(), tc.target, tc.method, nil)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Explain(%q, %q): %v, want %q", tc.target, tc.method, err, tc.want)
		}
	}
}

// Explanations while channels are opened, go idle, wake and are closed: run with -race. Each has an
// outcome or is an error that names the target.
func TestExplainWhileChannelsComeAndGo(t *testing.T) {
	t.Parallel()
	m, service := newMesh(t), ownService(t)
	b := testutils.StartBackend(t, "b")
	m.serve(service, "c-"+service, b)
	target := "xds:///" + service
	ctx, cancel := context.WithCancel(testutils.Context(t))
	var asking sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			for ctx.Err() == nil {
				e, err := dynxds.Explain(ctx, target, unaryMethod, nil)
				switch {
				case err != nil && !strings.Contains(err.Error(), target):
					t.Error(err)
				case err == nil && e.Outcome == "":
					t.Errorf("an explanation without an outcome:\n%s", e.Text())
				case err == nil:
					e.Text()
				}
			}
		})
	}
	for range 8 {
		cc := m.dial(target, grpc.WithIdleTimeout(20*time.Millisecond))
		for range 2 {
			mustReach(t, cc, unary, b)
			for s := cc.GetState(); s != connectivity.Idle; s = cc.GetState() {
				if !cc.WaitForStateChange(ctx, s) {
					t.Fatalf("the channel stays %v", s)
				}
			}
		}
		cc.Close()
	}
	cancel()
	asking.Wait()
}
