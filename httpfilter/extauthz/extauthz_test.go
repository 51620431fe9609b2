package extauthz

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	authpb "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// authorizer is the service.
type authorizer struct {
	authpb.UnimplementedAuthorizationServer
	addr         string
	answer       func(context.Context, *authpb.CheckRequest) (*authpb.CheckResponse, error)
	server       *grpc.Server
	opened, open atomic.Int64 // connections
}

func (a *authorizer) Check(ctx context.Context, request *authpb.CheckRequest) (*authpb.CheckResponse, error) {
	return a.answer(ctx, request)
}

func (a *authorizer) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (a *authorizer) HandleRPC(context.Context, stats.RPCStats)                         {}
func (a *authorizer) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (a *authorizer) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		a.opened.Add(1)
		a.open.Add(1)
	case *stats.ConnEnd:
		a.open.Add(-1)
	}
}

// start runs a service with an answer in text, or an error.
func start(t testing.TB, answer string, err error) *authorizer {
	t.Helper()
	return startOver(t, nil, func(context.Context, *authpb.CheckRequest) (*authpb.CheckResponse, error) {
		return xdsmsg.With(new(authpb.CheckResponse), "%s", answer), err
	})
}

func startOver(t testing.TB, link *testutils.Link, answer func(context.Context, *authpb.CheckRequest) (*authpb.CheckResponse, error)) *authorizer {
	t.Helper()
	a := &authorizer{answer: answer}
	a.server = grpc.NewServer(grpc.StatsHandler(a))
	authpb.RegisterAuthorizationServer(a.server, a)
	a.addr = xdstest.Serve(t, link, a.server)
	return a
}

// plaintext is the service at a target, reached without TLS.
type plaintext string

func (plaintext) DialOptions() ([]grpc.DialOption, func(), error) {
	return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, func() {}, nil
}

func (p plaintext) Key() string { return string(p) }

func anyService(pb *corepb.GrpcService_GoogleGrpc) (httpfilter.Service, error) {
	return plaintext(pb.GetTargetUri()), nil
}

// interceptorOf returns the interceptor of a configuration in text that asks the service at addr.
func interceptorOf(t testing.TB, addr, fields string) httpfilter.Interceptor {
	t.Helper()
	return interceptorFor(t, httpfilter.ClientInstanceInfo{}, addr, fields)
}

func interceptorFor(t testing.TB, info httpfilter.ClientInstanceInfo, addr, fields string) httpfilter.Interceptor {
	t.Helper()
	pb := xdsmsg.With(new(filterpb.ExtAuthz), `grpc_service { google_grpc { target_uri: "passthrough:///%s" } }`, addr)
	pb = xdsmsg.With(pb, "%s", fields)
	c, err := filter{anyService}.ParseConfig(xdsmsg.Any(pb))
	xdstest.NoError(t, err)
	i, err := filter{}.NewClientInstance(info).ClientInterceptor(c, nil)
	xdstest.NoError(t, err)
	return i
}

// backend is the end of a chain. It answers with the headers k: v and the trailers t: v.
type backend struct {
	grpc.ClientStream
	sent metadata.MD // nil: no RPC has come
}

func (b *backend) Send(ctx context.Context, _ *httpfilter.RPC) (grpc.ClientStream, error) {
	b.sent, _ = metadata.FromOutgoingContext(ctx)
	if b.sent == nil {
		b.sent = metadata.MD{}
	}
	return b, nil
}

func (b *backend) Header() (metadata.MD, error) { return metadata.Pairs("k", "v"), nil }
func (b *backend) Trailer() metadata.MD         { return metadata.Pairs("t", "v") }
func (b *backend) RecvMsg(any) error            { return io.EOF }

// result is what becomes of an RPC.
type result struct {
	sent, header, trailer metadata.MD
	err                   error
}

func send(ctx context.Context, i httpfilter.Interceptor) (r result) {
	b := new(backend)
	s, err := httpfilter.NewNext(b, i).NewStream(ctx, &httpfilter.RPC{Method: "/s/m"})
	r.sent, r.err = b.sent, err
	if err == nil {
		r.header, _ = s.Header()
		r.err = s.RecvMsg(nil)
		r.trailer = s.Trailer()
	}
	if r.err == io.EOF {
		r.err = nil
	}
	return r
}

// checkStatus compares code and text; OK means no error.
func checkStatus(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("the RPC ends with %v, want %v: %s", err, code, text)
	}
}

// gRFC A92, "Handling the ext_authz Response" and "Header Mutations".
func TestAnswers(t *testing.T) {
	t.Parallel()
	const denied = `status { code: 7 message: "not today" } denied_response { `
	const deniedText = "ext_authz: the service denies it: PermissionDenied: not today"
	option := func(key, value, action string) string {
		return fmt.Sprintf(`{ header { key: %q raw_value: %q } append_action: %s } `, key, value, action)
	}
	k := metadata.MD{"k": {"v"}}
	for _, test := range []struct {
		name, fields, answer  string
		sent, header, trailer metadata.MD
		code                  codes.Code
		text                  string
	}{
		{name: "allowed", answer: `ok_response {}`, sent: k, header: k, trailer: metadata.MD{"t": {"v"}}},
		{name: "allowed without ok_response", sent: k, header: k, trailer: metadata.MD{"t": {"v"}}},
		{name: "request headers", answer: `ok_response { headers ` + option("k", "w", "APPEND_IF_EXISTS_OR_ADD") + `headers ` + option("n", "1", "ADD_IF_ABSENT") +
			`headers ` + option("n", "2", "ADD_IF_ABSENT") + `headers ` + option("b-bin", "AP8=", "OVERWRITE_IF_EXISTS_OR_ADD") + `headers ` + option("o", "1", "OVERWRITE_IF_EXISTS") + ` }`,
			sent: metadata.MD{"k": {"v", "w"}, "n": {"1"}, "b-bin": {"\x00\xff"}}, header: k, trailer: metadata.MD{"t": {"v"}}},
		{name: "a value in value, and none", answer: `ok_response { headers { header { key: "n" value: "1" } } headers { header { key: "e" } } }`,
			sent: metadata.MD{"k": {"v"}, "n": {"1"}, "e": {""}}, header: k, trailer: metadata.MD{"t": {"v"}}},
		{name: "headers_to_remove", answer: `ok_response { headers_to_remove: "k" headers_to_remove: "absent" }`, sent: metadata.MD{}, header: k, trailer: metadata.MD{"t": {"v"}}},
		{name: "response headers", answer: `ok_response { response_headers_to_add ` + option("k", "w", "OVERWRITE_IF_EXISTS_OR_ADD") + ` }`,
			sent: k, header: metadata.MD{"k": {"w"}}, trailer: metadata.MD{"t": {"v"}}},
		{name: "denied", answer: denied + `}`, code: codes.PermissionDenied, text: deniedText},
		{name: "denied without denied_response", answer: `status { code: 5 message: "x" }`, code: codes.PermissionDenied, text: "NotFound: x"},
		{name: "denied with ok_response", answer: `status { code: 7 } ok_response {}`, code: codes.PermissionDenied},
		{name: "denied with status and headers", answer: denied + `status { code: Unauthorized } body: "ignored" headers ` + option("www-authenticate", "Bearer", "APPEND_IF_EXISTS_OR_ADD") +
			`headers ` + option("none", "1", "OVERWRITE_IF_EXISTS") + ` }`, code: codes.Unauthenticated, text: deniedText, trailer: metadata.MD{"www-authenticate": {"Bearer"}}},
		{name: "denied with 200", answer: denied + `status { code: OK } }`, code: codes.Unknown},

		// "If any of these fields fails validation, the ext_authz filter will treat the ext_authz request as having failed."
		{name: "an invalid request header", answer: `ok_response { headers ` + option("K", "v", "ADD_IF_ABSENT") + ` }`, code: codes.PermissionDenied, text: `header "K": the name is not in lower case`},
		{name: "an invalid removal", answer: `ok_response { headers_to_remove: "host" }`, code: codes.PermissionDenied, text: `header "host"`},
		{name: "an invalid response header", answer: `ok_response { response_headers_to_add ` + option("grpc-status", "0", "ADD_IF_ABSENT") + ` }`, code: codes.PermissionDenied, text: `header "grpc-status"`},
		{name: "an unknown action", answer: `ok_response { headers ` + option("n", "v", "9") + ` }`, code: codes.PermissionDenied, text: "append_action 9 is not known"},
		{name: "an invalid header of a denial", answer: denied + `headers ` + option("a b", "v", "ADD_IF_ABSENT") + ` }`, code: codes.PermissionDenied, text: `header "a b"`},
		{name: "an invalid header, failure_mode_allow", fields: `failure_mode_allow: true`, answer: `ok_response { headers ` + option("n", "1", "ADD_IF_ABSENT") + ` headers_to_remove: ":path" }`,
			sent: k, header: k, trailer: metadata.MD{"t": {"v"}}},

		// decoder_header_mutation_rules
		{name: "disallowed", fields: `decoder_header_mutation_rules { disallow_expression { regex: "k" } }`,
			answer: `ok_response { headers ` + option("k", "w", "ADD_IF_ABSENT") + `headers ` + option("n", "1", "ADD_IF_ABSENT") + ` headers_to_remove: "k" response_headers_to_add ` + option("k", "w", "ADD_IF_ABSENT") + `}`,
			sent:   metadata.MD{"k": {"v"}, "n": {"1"}}, header: k, trailer: metadata.MD{"t": {"v"}}},
		{name: "disallow_all of a denial", fields: `decoder_header_mutation_rules { disallow_all { value: true } }`, answer: denied + `headers ` + option("n", "1", "ADD_IF_ABSENT") + ` }`,
			code: codes.PermissionDenied, text: deniedText},
		// A102: "If true, the data plane RPC will be failed."
		{name: "disallow_is_error", fields: `failure_mode_allow: true decoder_header_mutation_rules { disallow_all { value: true } disallow_is_error { value: true } }`,
			answer: `ok_response { headers_to_remove: "k" }`, code: codes.Internal, text: `header "k": the mutation rules disallow it, with disallow_is_error`},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			a := start(t, test.answer, nil)
			r := send(metadata.AppendToOutgoingContext(testutils.Context(t), "k", "v"), interceptorOf(t, a.addr, test.fields))
			checkStatus(t, r.err, test.code, test.text)
			xdstest.Equal(t, "metadata of the RPC", test.sent, r.sent)
			xdstest.Equal(t, "response headers", test.header, r.header)
			xdstest.Equal(t, "trailers", test.trailer, r.trailer, cmpopts.EquateEmpty())
		})
	}
}

// gRFC A92, "Constructing the ext_authz Request"; A102, "Header Representation": -bin headers are in base64.
func TestRequest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, fields, headers string }{
		{"all headers", ``, `headers { key: "a" raw_value: "1" } headers { key: "a" raw_value: "2" } headers { key: "b" raw_value: "3" } headers { key: "c-bin" raw_value: "AP8=" }`},
		{"empty lists", `allowed_headers {} disallowed_headers {}`, `headers { key: "a" raw_value: "1" } headers { key: "a" raw_value: "2" } headers { key: "b" raw_value: "3" } headers { key: "c-bin" raw_value: "AP8=" }`},
		{"allowed_headers", `allowed_headers { patterns { exact: "B" ignore_case: true } patterns { prefix: "c-" } }`, `headers { key: "b" raw_value: "3" } headers { key: "c-bin" raw_value: "AP8=" }`},
		{"disallowed_headers", `disallowed_headers { patterns { exact: "a" } }`, `headers { key: "b" raw_value: "3" } headers { key: "c-bin" raw_value: "AP8=" }`},
		{"both", `allowed_headers { patterns { safe_regex { regex: "[ab]" } } } disallowed_headers { patterns { contains: "a" } }`, `headers { key: "b" raw_value: "3" }`},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			var got *authpb.CheckRequest
			var md metadata.MD
			a := startOver(t, nil, func(ctx context.Context, request *authpb.CheckRequest) (*authpb.CheckResponse, error) {
				got = request
				md, _ = metadata.FromIncomingContext(ctx)
				return &authpb.CheckResponse{}, nil
			})
			// The call to the service does not carry the RPC's metadata.
			i := interceptorOf(t, a.addr, test.fields+` include_peer_certificate: true grpc_service { initial_metadata { key: "initial" value: "1" } }`)
			before := time.Now()
			r := send(metadata.AppendToOutgoingContext(testutils.Context(t), "a", "1", "A", "2", "b", "3", "c-bin", "\x00\xff"), i)
			xdstest.NoError(t, r.err)
			if at := got.GetAttributes().GetRequest().GetTime().AsTime(); at.Before(before) || at.After(time.Now()) {
				t.Errorf("time is %v", at)
			}
			xdstest.Equal(t, "request", xdsmsg.With(new(authpb.CheckRequest), `attributes { request { http {
				method: "POST" path: "/s/m" size: -1 protocol: "HTTP/2" header_map { %s } } } }`, test.headers), got,
				protocmp.Transform(), protocmp.IgnoreFields(new(authpb.AttributeContext_Request), "time"),
				protocmp.SortRepeated(func(a, b *corepb.HeaderValue) bool {
					return a.GetKey()+string(a.GetRawValue()) < b.GetKey()+string(b.GetRawValue())
				}))
			xdstest.Equal(t, "metadata of the call", "1 ", strings.Join(md["initial"], ",")+" "+strings.Join(md["a"], ","))
		})
	}
}

// gRFC A92, "Filter Behavior": filter_enabled, deny_at_disable and status_on_error.
func TestShareOfRPCs(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	a := startOver(t, nil, func(context.Context, *authpb.CheckRequest) (*authpb.CheckResponse, error) {
		asked.Add(1)
		return &authpb.CheckResponse{}, nil
	})
	const deny = `deny_at_disable { default_value { value: true } } `
	const none, some = `filter_enabled { default_value {} } `, `filter_enabled { default_value { numerator: 50 } } `
	xdstest.NoError(t, send(testutils.Context(t), interceptorOf(t, a.addr, none)).err)
	i := interceptorOf(t, a.addr, none+deny)
	checkStatus(t, send(testutils.Context(t), i).err, codes.PermissionDenied, "ext_authz: the filter is disabled for this RPC, and deny_at_disable is set")
	i = interceptorOf(t, a.addr, none+deny+`status_on_error { code: ServiceUnavailable } failure_mode_allow: true`)
	checkStatus(t, send(testutils.Context(t), i).err, codes.Unavailable, "deny_at_disable")
	i = interceptorOf(t, a.addr, `filter_enabled { default_value { numerator: 200 } } `+deny)
	xdstest.NoError(t, send(testutils.Context(t), i).err)
	xdstest.Equal(t, "RPCs asked about", 1, asked.Load())
	// Explanations tell of the RPCs that end without being asked about.
	for fields, want := range map[string]float64{none: 0, none + deny: 100, some + deny: 50, deny: 0} {
		percent, code := interceptorOf(t, a.addr, fields).(*interceptor).Ends(t.Context(), nil)
		xdstest.Equal(t, "percent that "+fields+" ends", want, percent)
		xdstest.Equal(t, "its code", map[bool]codes.Code{true: codes.PermissionDenied}[want > 0], code)
	}

	i = interceptorOf(t, a.addr, some)
	for range 400 {
		xdstest.NoError(t, send(testutils.Context(t), i).err)
	}
	xdstest.CheckShares(t, "RPCs", []int{int(asked.Load()) - 1, 401 - int(asked.Load())}, 1, 1)
}

// gRFC A92, "Filter Behavior": what becomes of RPCs while the service does not decide.
func TestFailureModes(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context, _ *authpb.CheckRequest) (*authpb.CheckResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	gone := start(t, "", nil)
	gone.server.Stop()
	broken := start(t, "", status.Error(codes.Internal, "broken"))
	hanging := startOver(t, nil, hang)
	far := startOver(t, xdstest.SlowLink(time.Second, 0), func(context.Context, *authpb.CheckRequest) (*authpb.CheckResponse, error) {
		return &authpb.CheckResponse{}, nil
	})
	var dying *authorizer
	dying = startOver(t, nil, func(ctx context.Context, r *authpb.CheckRequest) (*authpb.CheckResponse, error) {
		go dying.server.Stop()
		return hang(ctx, r)
	})
	const short = ` grpc_service { timeout { nanos: 50000000 } }`
	for _, test := range []struct{ name, addr, fields, text string }{
		{"unreachable", gone.addr, ``, "Unavailable"},
		{"an error", broken.addr, ``, "code = Internal desc = broken"},
		{"not the service", xdstest.Serve(t, nil, grpc.NewServer()), ``, "Unimplemented"},
		{"no answer in time", hanging.addr, short, "DeadlineExceeded"},
		{"a slow network", far.addr, short, "DeadlineExceeded"},
		{"gone while it is asked", dying.addr, ``, "Unavailable"},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			ctx := metadata.AppendToOutgoingContext(testutils.Context(t), "k", "v")
			r := send(ctx, interceptorOf(t, test.addr, test.fields))
			checkStatus(t, r.err, codes.PermissionDenied, "ext_authz: the service has not decided: ")
			checkStatus(t, r.err, codes.PermissionDenied, test.text)
			r = send(ctx, interceptorOf(t, test.addr, `status_on_error { code: TooManyRequests }`+test.fields))
			checkStatus(t, r.err, codes.Unavailable, test.text)
			if r.sent != nil {
				t.Error("the RPC was sent")
			}
			r = send(ctx, interceptorOf(t, test.addr, `failure_mode_allow: true`+test.fields))
			xdstest.NoError(t, r.err)
			xdstest.Equal(t, "metadata", metadata.MD{"k": {"v"}}, r.sent)
			r = send(ctx, interceptorOf(t, test.addr, `failure_mode_allow: true failure_mode_allow_header_add: true`+test.fields))
			xdstest.NoError(t, r.err)
			xdstest.Equal(t, "metadata", metadata.MD{"k": {"v"}, "x-envoy-auth-failure-mode-allowed": {"true"}}, r.sent)
		})
	}
	// An RPC that has ended is not one that the service has not decided on.
	stuck := startOver(t, nil, func(context.Context, *authpb.CheckRequest) (*authpb.CheckResponse, error) {
		<-t.Context().Done()
		return &authpb.CheckResponse{}, nil
	})
	i := interceptorOf(t, stuck.addr, `failure_mode_allow: true`)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	checkStatus(t, send(ctx, i).err, codes.DeadlineExceeded, "")
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	checkStatus(t, send(ctx, i).err, codes.Canceled, "")
}

// recorder adds up recorded values by metric and labels.
type recorder struct {
	estats.UnimplementedMetricsRecorder
	counts map[string]int64
}

func (r *recorder) RecordInt64Count(h *estats.Int64CountHandle, n int64, labels ...string) {
	d := h.Descriptor()
	r.counts[fmt.Sprint(d.Name, slices.Concat(d.Labels, d.OptionalLabels), labels)] += n
}

// gRFC A92, "Client-Side Metrics". The trace of an RPC has the decision, and why.
func TestMetrics(t *testing.T) {
	t.Parallel()
	gone := start(t, "", nil)
	gone.server.Stop()
	for _, test := range []struct {
		addr, fields, metric, decision string
		why                            codes.Code
	}{
		{start(t, "", nil).addr, "", "allowed_rpcs", "allowed", codes.OK},
		{start(t, "status { code: 7 } denied_response { status { code: Unauthorized } }", nil).addr, "", "denied_rpcs", "denied", codes.Unauthenticated},
		{gone.addr, `filter_enabled { default_value {} }`, "filter_disabled_rpcs", "disabled", codes.OK},
		{gone.addr, "", "failed_rpcs", "failed", codes.Unavailable},
		{gone.addr, `failure_mode_allow: true`, "failed_rpcs", "failed_open", codes.Unavailable},
	} {
		r := &recorder{counts: map[string]int64{}}
		i := interceptorFor(t, httpfilter.ClientInstanceInfo{Name: "f", Target: "xds:///t", Metrics: r}, test.addr, test.fields)
		var decisions []string
		ctx := rpctrace.With(testutils.Context(t), &rpctrace.Trace{FilterDecided: func(f rpctrace.Filter) {
			decisions = append(decisions, fmt.Sprint(f.Name, " ", f.Decision, " ", status.Code(f.Err)))
		}})
		for range 2 {
			_, _ = httpfilter.NewNext(new(backend), i).NewStream(ctx, &httpfilter.RPC{Method: "/s/m", Cluster: "c"})
		}
		xdstest.Equal(t, "metrics", map[string]int64{"grpc.client_ext_authz." + test.metric + "[grpc.target grpc.lb.backend_service] [xds:///t c]": 2}, r.counts)
		xdstest.Equal(t, "decisions", slices.Repeat([]string{fmt.Sprint("f ", test.decision, " ", test.why)}, 2), decisions)
	}
}

// gRFC A92, "ExtAuthz Side Channel": the channel stays over updates while the target and credentials do. It is closed after
// the last filter that uses it.
func TestTheConnectionIsShared(t *testing.T) {
	t.Parallel()
	a := start(t, "", nil)
	for _, fields := range []string{``, `failure_mode_allow: true`, `grpc_service { timeout { seconds: 10 } initial_metadata { key: "k" value: "v" } }`} {
		first, next := interceptorOf(t, a.addr, fields), interceptorOf(t, a.addr, fields+` status_on_error { code: NotFound }`)
		xdstest.NoError(t, send(testutils.Context(t), first).err)
		xdstest.NoError(t, send(testutils.Context(t), next).err)
		runtime.KeepAlive(first)
	}
	opened := a.opened.Load()
	if opened > 3 { // a connection may be closed between two rounds, and within none
		t.Errorf("%d connections were opened by three updates", opened)
	}
	for ctx := testutils.Context(t); a.open.Load() > 0; runtime.GC() {
		if ctx.Err() != nil {
			t.Fatal("the connection is open, and nothing uses it")
		}
	}
}

// BenchmarkRPC measures what the filter adds to an RPC: an RPC to the service, over a network with a round trip of 0
// and of 2 ms.
func BenchmarkRPC(b *testing.B) {
	answer := func(context.Context, *authpb.CheckRequest) (*authpb.CheckResponse, error) {
		return &authpb.CheckResponse{}, nil
	}
	for name, i := range map[string]httpfilter.Interceptor{
		"without":      nil,
		"disabled":     interceptorOf(b, "127.0.0.1:1", `filter_enabled { default_value { numerator: 0 } }`),
		"loopback":     interceptorOf(b, startOver(b, nil, answer).addr, ""),
		"1ms each way": interceptorOf(b, startOver(b, xdstest.SlowLink(time.Millisecond, time.Millisecond), answer).addr, ""),
	} {
		b.Run(name, func(b *testing.B) {
			var chain []httpfilter.Interceptor
			if i != nil {
				chain = append(chain, i)
			}
			next := httpfilter.NewNext(new(backend), chain...)
			ctx := metadata.AppendToOutgoingContext(b.Context(), "k", "v")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := next.NewStream(ctx, &httpfilter.RPC{Method: "/s/m"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
