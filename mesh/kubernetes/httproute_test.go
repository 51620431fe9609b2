package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/testutils"
)

// httpRule makes a Service with backends, an HTTPRoute of it with one rule, and a client.
func httpRule(t *testing.T, rule string, backends ...string) (k *kube, list []*testutils.Backend, conn *grpc.ClientConn) {
	t.Helper()
	k, pods := newKube(t), &pods{}
	server := k.serving()
	k.service("greeter", "8080")
	for i, id := range backends {
		ip, backend := pods.start(t, id)
		k.slice(fmt.Sprintf("greeter-%d", i), "greeter", "", 8080, ready(ip))
		list = append(list, backend)
	}
	k.service("shadow", "8080")
	ip, shadow := pods.start(t, "shadow")
	k.slice("shadow-1", "shadow", "", 8080, ready(ip))
	k.object(`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: greeter}, spec: {
		parentRefs: [{group: "", kind: Service, name: greeter}], rules: [` + rule + `]}}`)
	return k, append(list, shadow), pods.client(t, server, "xds:///greeter."+k.namespace)
}

// unary makes an RPC with metadata, and returns who answered, the headers of the response, and the error.
func unary(t *testing.T, conn *grpc.ClientConn, pairs ...string) (id string, header metadata.MD, err error) {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(testutils.Context(t), pairs...)
	response, err := testgrpc.NewTestServiceClient(conn).UnaryCall(ctx, &testgrpc.SimpleRequest{}, grpc.Header(&header))
	return response.GetServerId(), header, err
}

// HTTPRouteFilter, HTTPHeaderFilter: headers of requests and responses, of the rule and of one backend.
func TestHTTPRouteHeaders(t *testing.T) {
	t.Parallel()
	_, backends, conn := httpRule(t, `{
		filters: [
			{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-set, value: new}], add: [{name: x-add, value: more}], remove: [x-remove]}},
			{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: x-from, value: route}]}}],
		backendRefs: [{name: greeter, port: 8080, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-backend, value: one}]}}]}]}`, "a")
	cmdtest.Await(t, func() string {
		_, header, err := unary(t, conn, "x-set", "old", "x-add", "some", "x-remove", "gone")
		if err != nil {
			return err.Error()
		}
		got := backends[0].Last().Metadata
		for name, want := range map[string][]string{"x-set": {"new"}, "x-add": {"some", "more"}, "x-remove": nil, "x-backend": {"one"}} {
			if !slices.Equal(got.Get(name), want) {
				return fmt.Sprintf("the backend got %s: %q, want %q", name, got.Get(name), want)
			}
		}
		if from := header.Get("x-from"); !slices.Equal(from, []string{"route"}) {
			return fmt.Sprintf("the response has x-from: %q, want route", from)
		}
		return ""
	})
}

// HTTPRequestMirrorFilter: copies of requests go to another Service.
func TestHTTPRouteMirror(t *testing.T) {
	t.Parallel()
	_, backends, conn := httpRule(t, `{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: shadow, port: 8080}}}], backendRefs: [{name: greeter, port: 8080}]}`, "a")
	cmdtest.Await(t, func() string {
		xdstest.Equal(t, "who answers", "a", call(t, conn))
		if backends[1].Count() == 0 {
			return "no copy of a request has reached the shadow"
		}
		return ""
	})
}

// HTTPRouteRetry (GEP-1731): of the codes, as often as it says.
func TestHTTPRouteRetry(t *testing.T) {
	t.Parallel()
	_, backends, conn := httpRule(t, `{retry: {codes: [503], attempts: 2, backoff: 10ms}, backendRefs: [{name: greeter, port: 8080}]}`, "a")
	var left atomic.Int32
	backends[0].SetBehaviour(func(context.Context, testutils.RPC) error {
		if left.Add(-1) >= 0 {
			return testutils.TrailersOnly(status.Error(codes.Unavailable, "not now"))
		}
		return nil
	})
	cmdtest.Await(t, func() string {
		left.Store(2)
		if id, _, err := unary(t, conn); err != nil || id != "a" {
			return fmt.Sprintf("an RPC that fails twice and is retried twice ended with %q, %v", id, err)
		}
		return ""
	})
	left.Store(3)
	if _, _, err := unary(t, conn); status.Code(err) != codes.Unavailable {
		t.Errorf("an RPC that fails three times and is retried twice ended with %v", err)
	}
	xdstest.Equal(t, "attempts that may still fail", int32(0), left.Load())
}

// SessionPersistence (GEP-1619): RPCs with the header of a response go where that one came from.
func TestHTTPRouteSessions(t *testing.T) {
	t.Parallel()
	_, _, conn := httpRule(t, `{sessionPersistence: {sessionName: x-session, type: Header}, backendRefs: [{name: greeter, port: 8080}]}`, "a", "b", "c")
	var id string
	var session []string
	cmdtest.Await(t, func() string {
		var header metadata.MD
		var err error
		if id, header, err = unary(t, conn); err != nil {
			return err.Error()
		}
		if session = header.Get("x-session"); len(session) != 1 {
			return fmt.Sprintf("the response has x-session: %q", session)
		}
		return ""
	})
	others := map[string]bool{}
	for range 30 {
		got, _, err := unary(t, conn, "x-session", session[0])
		xdstest.NoError(t, err)
		xdstest.Equal(t, "who answers in the session", id, got)
		got, _, err = unary(t, conn)
		xdstest.NoError(t, err)
		others[got] = true
	}
	if len(others) < 2 {
		t.Errorf("without a session only %v answer", others)
	}
}
