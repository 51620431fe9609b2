package site_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/testutils"
)

// with returns the services, with these settings of backend.
func (m *mesh) with(settings string) map[string]string {
	return map[string]string{"services.yaml": strings.Replace(m.services(), "name: backend\n", "name: backend\n"+settings+"\n", 1)}
}

// callWith makes an RPC with request headers, and returns who answered, with the response's headers.
func (c *client) callWith(pairs ...string) (string, metadata.MD) {
	c.t.Helper()
	var header metadata.MD
	ctx := metadata.AppendToOutgoingContext(testutils.Context(c.t), pairs...)
	if _, err := c.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Header(&header)); err != nil {
		c.t.Fatalf("an RPC failed: %v", err)
	}
	return strings.Join(header.Get(testutils.BackendIDHeader), ","), header
}

// session makes an RPC with these request headers that begins a session, and more of that session, which
// have to reach the same backend. The session is in a header of the response, and of later requests.
func (c *client) session(inResponse, inRequest string, pairs ...string) {
	c.t.Helper()
	first, header := c.callWith(pairs...)
	values := header.Get(inResponse)
	if len(values) != 1 {
		c.t.Fatalf("the response has %v, want one %s", header, inResponse)
	}
	value, _, _ := strings.Cut(values[0], ";") // of a cookie
	for range 10 {
		if backend, _ := c.callWith(append(pairs, inRequest, value)...); backend != first {
			c.t.Fatalf("an RPC of the session of %s reaches %s", first, backend)
		}
	}
}

// Limits, timeouts and ejections of a service end in the status of RPCs.
func TestLimitsTakeEffectOnRPCs(t *testing.T) {
	t.Parallel()
	failing := func(context.Context, testutils.RPC) error {
		return testutils.TrailersOnly(status.Error(codes.Unavailable, "not today"))
	}
	silent := func(ctx context.Context, _ testutils.RPC) error { <-ctx.Done(); return ctx.Err() }
	for _, test := range []struct {
		settings string
		behave   func(context.Context, testutils.RPC) error
		code     codes.Code
		message  string
		calls    int
	}{
		{"retry: {on: [unavailable], attempts: 2, backoff: {base: 1ms}}", failing, codes.Unavailable, "not today", 3},
		{"retry: {on: [unavailable], attempts: 2, backoff: {base: 1ms}, hostSelectionAttempts: 5}", failing, codes.Unavailable, "not today", 3},
		{"retry: {on: [unavailable], attempts: 2, backoff: {base: 1ms}}\ncircuitBreakers: {maxRetries: 0}", failing, codes.Unavailable, "not retried", 1},
		{"retry: {on: [unavailable], attempts: 2, backoff: {base: 1ms}}\ncircuitBreakers: {retryBudget: {percent: 0, minConcurrency: 0}}", failing, codes.Unavailable, "not retried", 1},
		{"retry: {perTryTimeout: 2s}", silent, codes.DeadlineExceeded, "per_try_timeout", 1},
		{"timeout: 2s", silent, codes.DeadlineExceeded, "", 1},
		{"circuitBreakers: {maxRequests: 0}", failing, codes.Unavailable, "", 0},
	} {
		t.Run(test.settings, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t)
			frontend := start(t, "", m.with(test.settings)).dial(plain, "frontend", "v1")
			m.v1.SetBehaviour(test.behave)
			m.v2.SetBehaviour(test.behave)
			_, _, err := frontend.call()
			if status.Code(err) != test.code || !strings.Contains(err.Error(), test.message) || m.v1.Count()+m.v2.Count() != test.calls {
				t.Errorf("the RPC ends with %v after %d attempts, want %v with %q after %d", err, m.v1.Count()+m.v2.Count(), test.code, test.message, test.calls)
			}
		})
	}
}

// GEP-1619: the RPCs of a session of the rule stay with an endpoint; those of other rules are not concerned, and a service
// with sessions of its own has those of the rule there.
func TestGatewaySessionPersistence(t *testing.T) {
	t.Parallel()
	const route = `apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: r}
spec:
  parentRefs: [{group: "", kind: Service, name: backend, port: 7070}]
  rules:
  - matches: [{headers: [{name: x-rule, value: one}]}]
    sessionPersistence: {type: Header, header: {name: x-session}}
    backendRefs: [{name: backend, namespace: default, port: 7070}]
  - matches: [{headers: [{name: x-rule, value: two}]}]
    sessionPersistence: {cookie: {name: session}}
    backendRefs: [{name: backend, namespace: default, port: 7070}]
`
	for name, affinity := range map[string]string{"of the rule alone": "", "beside the service's": "sessionAffinity: {header: x-other}"} {
		eachKindOfClient(t, func(t *testing.T, kind clientKind) {
			files := newMesh(t).with(affinity)
			files["route.yaml"] = route
			frontend := start(t, kind.authority, files).dial(kind, "frontend", "v1")
			frontend.reaches("v1")
			frontend.reaches("v2")
			frontend.session("x-session", "x-session", "x-rule", "one")
			frontend.session("set-cookie", "cookie", "x-rule", "two")
			if _, header := frontend.callWith(); (len(header.Get("x-other")) == 1) != (affinity != "") || len(header.Get("x-session")) > 0 {
				t.Errorf("%s: the response to an RPC of no rule has %v", name, header)
			}
		})
	}
}
