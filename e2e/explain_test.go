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
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/testutils"
)

// explainedService is the target of the tests here: Explain finds a channel by its target.
const explainedService = "explain.example.com"

func headerRoute(name, value, cluster string) *routepb.Route {
	return with(toCluster(cluster), `match { headers { name: %q string_match { exact: %q } } }`, name, value)
}

// An explanation agrees with where RPCs go, and has the state of connections.
func TestExplainAChannel(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	first, second := testutils.StartBackend(t, "first"), testutils.StartBackend(t, "second")
	m.set(clusterOf("first", first), clusterOf("second", second),
		chain(explainedService, headerRoute("x-user", "7", "second"), xdsmsg.PathRoute(emptyMethod, "second"), toCluster("first")))
	cc := m.dial("xds:///" + explainedService)
	ctx := testutils.Context(t)

	for _, tc := range []struct {
		method string
		md     metadata.MD
	}{
		{unaryMethod, nil}, {unaryMethod, metadata.Pairs("x-user", "8")}, {unaryMethod, metadata.Pairs("X-User", "7")}, {emptyMethod, nil},
	} {
		var header metadata.MD
		xdstest.NoError(t, cc.Invoke(metadata.NewOutgoingContext(ctx, tc.md), tc.method, empty, new(testgrpc.Empty), grpc.Header(&header)))
		e := explained(t, tc.method, tc.md)
		want := fmt.Sprintf("cluster %q, priority 0, 1 endpoint", backendID(header))
		if !strings.HasSuffix(e.Outcome, want) || e.Code != "" {
			t.Errorf("%s with %v is explained as %q with code %q; it went to %s", tc.method, tc.md, e.Outcome, e.Code, backendID(header))
		}
	}

	e := explained(t, unaryMethod, nil)
	xdstest.Equal(t, "the channel", "READY", e.Client.Channel)
	endpoint := e.Clusters[0].Assignment.Priorities[0].Localities[0].Endpoints[0]
	if !e.Clusters[0].Assignment.Live || endpoint.State != "READY" || endpoint.Addresses[0] != first.Addr() {
		t.Errorf("the endpoint is %+v, want %s, ready", endpoint, first.Addr())
	}
	if got := e.Routes[0].Failed; got != "header x-user is absent" {
		t.Errorf("the first route fails for %q, want the header", got)
	}
	if _, err := json.Marshal(e); err != nil {
		t.Error(err)
	}

	// The backend stops: RPCs fail, and the explanation has the reason. The first RPC may fail before the
	// connection is tried again.
	first.Stop()
	for e.Code == "" {
		mustFail(t, cc)
		e = explained(t, unaryMethod, nil)
	}
	endpoint = e.Clusters[0].Assignment.Priorities[0].Localities[0].Endpoints[0]
	if endpoint.Error == "" || e.Code != "UNAVAILABLE" || !strings.Contains(e.Text(), endpoint.Error) {
		t.Errorf("the endpoint is %+v, the code %q:\n%s", endpoint, e.Code, e.Text())
	}
}

func explained(t *testing.T, method string, md metadata.MD) *explain.Explanation {
	t.Helper()
	e, err := explain.InProcess(testutils.Context(t), explain.Request{Target: "xds:///" + explainedService, Method: method, Headers: md})
	xdstest.NoError(t, err)
	return e
}

// While new routes wait for their clusters, RPCs take those of before, and the explanation says so.
func TestExplainWhileRoutesWait(t *testing.T) {
	t.Parallel()
	m, service := newMesh(t), ownService(t)
	before := testutils.StartBackend(t, "before")
	m.keepSilent()
	m.serve(service, "c-"+service, before)
	cc := m.dial("xds:///" + service)
	mustReach(t, cc, unary, before)
	ask := func() *explain.Explanation {
		e, err := explain.InProcess(testutils.Context(t), explain.Request{Target: "xds:///" + service, Method: unaryMethod})
		xdstest.NoError(t, err)
		return e
	}
	silent := "silent-" + service
	for resource, routes := range map[string]proto.Message{
		"cluster":            xdsmsg.RouteConfig(service, service, toCluster(silent)),
		"RouteConfiguration": xdsmsg.DefaultListener(service, silent),
	} {
		m.set(chain(service, toCluster("c-"+service)), routes)
		want := fmt.Sprintf("RPCs take the routes of before until there is an answer for %s %q", resource, silent)
		e := awaitInspect(t, want, ask, func(e *explain.Explanation) bool { return e.Pending != "" })
		if e.Pending != want || !strings.HasPrefix(e.Outcome, want+"; then: ") || e.Code != "" || !strings.Contains(e.Text(), "outcome      "+want+"\nthen  ") {
			t.Errorf("outcome %q with code %q:\n%s", e.Outcome, e.Code, e.Text())
		}
		m.set(chain(service, toCluster("c-"+service)))
		awaitInspect(t, "no routes wait", ask, func(e *explain.Explanation) bool { return e.Pending == "" })
		mustReach(t, cc, unary, before)
	}
}

// Explain runs while channels are opened, go idle, wake and are closed (a test for -race). Each call returns an
// outcome or an error that names the target.
func TestExplainWhileChannelsOpenAndClose(t *testing.T) {
	t.Parallel()
	inOneWay(t, "the resources stay the same")
	m, service := newMesh(t), ownService(t)
	b := testutils.StartBackend(t, "b")
	m.serve(service, "c-"+service, b)
	target := "xds:///" + service
	ctx, cancel := context.WithCancel(testutils.Context(t))
	var asking sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			for ctx.Err() == nil {
				e, err := explain.InProcess(ctx, explain.Request{Target: target, Method: unaryMethod})
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
			awaitState(t, cc, connectivity.Idle)
		}
		cc.Close()
	}
	cancel()
	asking.Wait()
}
