package configselector_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds/configselector"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

func newClientConn(t testing.TB) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///unused", grpc.WithTransportCredentials(insecure.NewCredentials()))
	xdstest.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	return cc
}

// parsed fills a message in from a text proto.
func parsed[M proto.Message](m M, text string) M {
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		panic(fmt.Sprintf("%v in %s", err, text))
	}
	return m
}

// newSelector returns the selector of one virtual host with the given routes,
// decoded as they would be from the wire.
func newSelector(t testing.TB, listener *xdsresource.Listener, routes ...*routepb.Route) *configselector.Selector {
	t.Helper()
	packed, err := anypb.New(&routepb.RouteConfiguration{
		Name:         "routes",
		VirtualHosts: []*routepb.VirtualHost{{Name: "host", Domains: []string{"*"}, Routes: routes}},
	})
	xdstest.NoError(t, err)
	value, err := xdsresource.RouteConfigurationType.Decode(packed, xdsclient.DecodeOptions{})
	xdstest.NoError(t, err)
	ch := configselector.NewChannel(newClientConn(t), "", false, nil)
	t.Cleanup(ch.Close)
	return ch.NewSelector(configselector.Config{
		Version:         7,
		Listener:        listener,
		VirtualHost:     value.(*xdsresource.RouteConfiguration).VirtualHost("any"),
		RouteConfigName: "routes",
	})
}

// unary runs a unary RPC and returns the context that gRPC would get.
func unary(ctx context.Context, s *configselector.Selector, method string, opts ...grpc.CallOption) (given context.Context, err error) {
	err = s.Unary(ctx, method, nil, nil, nil,
		func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			given = ctx
			return nil
		}, opts)
	return given, err
}

// mustUnary is unary for an RPC that succeeds.
func mustUnary(t testing.TB, ctx context.Context, s *configselector.Selector, method string, opts ...grpc.CallOption) context.Context {
	t.Helper()
	given, err := unary(ctx, s, method, opts...)
	xdstest.NoError(t, err)
	return given
}

func TestTheDecisionTravelsAsTheContext(t *testing.T) {
	t.Parallel()
	s := newSelector(t, &xdsresource.Listener{}, xdsmsg.PrefixRoute("/a", "alpha"), xdsmsg.PrefixRoute("/", "beta"))
	type key struct{}
	ctx := metadata.AppendToOutgoingContext(context.WithValue(t.Context(), key{}, "mine"), "k", "v")
	for method, cluster := range map[string]string{"/a.S/M": "alpha", "/b.S/M": "beta"} {
		given := mustUnary(t, ctx, s, method)
		d := decision.FromContext(given)
		if d == nil || d.Cluster != cluster || d.Method != method || d.Version != 7 {
			t.Errorf("%s: Decision %+v, want cluster %q of version 7", method, d, cluster)
		}
		if given.Value(key{}) != "mine" {
			t.Error("the application's context values are lost")
		}
		if md, _ := metadata.FromOutgoingContext(given); md.Get("k")[0] != "v" {
			t.Error("the application's metadata is lost")
		}
	}
}

func TestAnRPCWithoutRouteFailsAndFinishes(t *testing.T) {
	t.Parallel()
	unroutable := xdsmsg.PrefixRoute("/redirected", "")
	unroutable.Action = &routepb.Route_NonForwardingAction{NonForwardingAction: &routepb.NonForwardingAction{}}
	s := newSelector(t, &xdsresource.Listener{}, unroutable, xdsmsg.PrefixRoute("/only", "c"))
	for method, reason := range map[string]string{"/other/M": "no route", "/redirected/M": "non_forwarding_action"} {
		var finished error
		_, err := unary(t.Context(), s, method, grpc.OnFinish(func(err error) { finished = err }))
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v, want UNAVAILABLE", method, err)
		}
		for _, text := range []string{reason, method, `"host"`, `"routes"`} {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: error does not mention %q: %v", method, text, err)
			}
		}
		if !errors.Is(finished, err) {
			t.Errorf("%s: OnFinish got %v, want %v", method, finished, err)
		}
		if _, err := s.Stream(t.Context(), &grpc.StreamDesc{}, nil, method, nil, nil); status.Code(err) != codes.Unavailable {
			t.Errorf("%s, streaming: %v, want UNAVAILABLE", method, err)
		}
	}
}

func TestReselectRoutesAnOlderDecisionAgain(t *testing.T) {
	t.Parallel()
	before := newSelector(t, &xdsresource.Listener{}, xdsmsg.PrefixRoute("/", "old"))
	after := newSelector(t, &xdsresource.Listener{}, xdsmsg.PrefixRoute("/S", "new"))
	given := mustUnary(t, t.Context(), before, "/S/M")
	if cluster, err := after.Reselect(decision.FromContext(given)); err != nil || cluster != "new" {
		t.Errorf("Reselect: %q, %v, want %q", cluster, err, "new")
	}
	given = mustUnary(t, t.Context(), before, "/other/M")
	if _, err := after.Reselect(decision.FromContext(given)); status.Code(err) != codes.Unavailable {
		t.Errorf("Reselect of an RPC that no longer has a route: %v, want UNAVAILABLE", err)
	}
}

// An RPC that waits for a cluster ends if its route now answers by itself.
func TestReselectOfAnRPCThatItsRouteAnswers(t *testing.T) {
	t.Parallel()
	given := mustUnary(t, t.Context(), newSelector(t, &xdsresource.Listener{}, xdsmsg.PrefixRoute("/", "old")), "/S/M")
	for _, test := range []struct {
		route string
		code  codes.Code
		text  string
	}{
		{`match{prefix:"/"} direct_response{status:403 body{inline_string:"not today"}}`, codes.PermissionDenied, "not today"},
		{`match{prefix:"/"} redirect{host_redirect:"elsewhere"}`, codes.Unknown, "redirected (301) to http://elsewhere/S/M"},
	} {
		route := new(routepb.Route)
		xdstest.NoError(t, prototext.Unmarshal([]byte(test.route), route))
		after := newSelector(t, &xdsresource.Listener{}, route)
		cluster, err := after.Reselect(decision.FromContext(given))
		if s := status.Convert(err); s.Code() != test.code || s.Message() != test.text {
			t.Errorf("%s: cluster %q, %v; want %v: %s", test.route, cluster, err, test.code, test.text)
		}
	}
}

// TestMaxStreamDuration: gRFC A31, "Max Stream Duration": the route's bound,
// or else the Listener's; 0 on the route lifts the Listener's.
func TestMaxStreamDuration(t *testing.T) {
	t.Parallel()
	unbounded, bounded, inherited := xdsmsg.PrefixRoute("/unbounded", "c"), xdsmsg.PrefixRoute("/bounded", "c"), xdsmsg.PrefixRoute("/", "c")
	zero, hour := durationpb.New(0), durationpb.New(time.Hour)
	unbounded.GetRoute().MaxStreamDuration = &routepb.RouteAction_MaxStreamDuration{MaxStreamDuration: zero}
	bounded.GetRoute().MaxStreamDuration = &routepb.RouteAction_MaxStreamDuration{MaxStreamDuration: hour}
	s := newSelector(t, &xdsresource.Listener{MaxStreamDuration: time.Minute}, unbounded, bounded, inherited)
	for _, test := range []struct {
		method string
		want   time.Duration
	}{{"/unbounded/M", 0}, {"/bounded/M", time.Hour}, {"/inherited/M", time.Minute}} {
		for _, kind := range []string{"unary", "streaming"} {
			var given context.Context
			start := time.Now()
			if kind == "unary" {
				given, _ = unary(t.Context(), s, test.method)
			} else {
				var finish []grpc.CallOption
				_, err := s.Stream(t.Context(), &grpc.StreamDesc{}, nil, test.method,
					func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
						given, finish = ctx, opts
						return nil, nil
					}, nil)
				xdstest.NoError(t, err)
				if given.Err() != nil {
					t.Errorf("%s %s: the context ended before the stream", kind, test.method)
				}
				for _, o := range finish {
					o.(grpc.OnFinishCallOption).OnFinish(nil)
				}
				if (given.Err() != nil) != (test.want > 0) {
					t.Errorf("%s %s: after the stream the context's error is %v", kind, test.method, given.Err())
				}
			}
			deadline, ok := given.Deadline()
			if ok != (test.want > 0) {
				t.Errorf("%s %s: has a deadline: %v", kind, test.method, ok)
			}
			if ok && (deadline.Before(start.Add(test.want)) || deadline.After(time.Now().Add(test.want))) {
				t.Errorf("%s %s: deadline in %v, want %v", kind, test.method, deadline.Sub(start), test.want)
			}
		}
	}
}
