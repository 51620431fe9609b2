package extauthz

import (
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	authpb "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/testutils"
)

// authorizer is the service.
type authorizer struct {
	authpb.UnimplementedAuthorizationServer
	target       string
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
	a.target = xdstest.Target(xdstest.Serve(t, link, a.server))
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

// interceptorOf returns the interceptor of a configuration in text that asks the service at target.
func interceptorOf(t testing.TB, target, fields string) httpfilter.Interceptor {
	t.Helper()
	return interceptorFor(t, httpfilter.ClientInstanceInfo{}, target, fields)
}

func interceptorFor(t testing.TB, info httpfilter.ClientInstanceInfo, target, fields string) httpfilter.Interceptor {
	t.Helper()
	pb := xdsmsg.With(new(filterpb.ExtAuthz), `grpc_service { google_grpc { target_uri: "%s" } }`, target)
	pb = xdsmsg.With(pb, "%s", fields)
	c, err := newFilter(anyService).ParseConfig(xdsmsg.Any(pb))
	xdstest.NoError(t, err)
	i, err := newFilter(nil).NewClientInstance(info).ClientInterceptor(c, nil)
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
	s, err := httpfilter.NewNext(b, i).NewStream(ctx, &httpfilter.RPC{Method: "/s/m", Cluster: "c"})
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

// option is what cases write for a HeaderValueOption.
var option = regexp.MustCompile(`\$(\w+)\(([^,)]*),([^)]*)\)`)

// TestCases has RPCs with the metadata k, a and b-bin, by the config of the filter and the answer of the service, with $ACTION(name,value) for a
// HeaderValueOption: how each ends, what is sent on and comes back, what the service is asked, and how explanations tell of it.
func TestCases(t *testing.T) {
	t.Parallel()
	var answer string
	var asked *authpb.CheckRequest
	var call metadata.MD
	a := startOver(t, nil, func(ctx context.Context, request *authpb.CheckRequest) (*authpb.CheckResponse, error) {
		asked = request
		call, _ = metadata.FromIncomingContext(ctx)
		return xdsmsg.With(new(authpb.CheckResponse), "%s", answer), nil
	})
	golden.Cases(t, "testdata/cases.txt", func(section, input string) string {
		asked, answer = nil, ""
		fields, _, _ := strings.Cut(strings.TrimPrefix(input, "config"), "\nanswer ")
		if _, text, ok := strings.Cut(input, "answer "); ok {
			answer = option.ReplaceAllString(golden.Repeat(text), `{ header { key: "$2" raw_value: "$3" } append_action: $1 }`)
		}
		counted, decided, before := &recorder{counts: map[string]int64{}}, "", time.Now()
		i := interceptorFor(t, httpfilter.ClientInstanceInfo{Name: "f", Target: "xds:///t", Metrics: counted}, a.target, fields)
		ctx := rpctrace.With(testutils.Context(t), &rpctrace.Trace{FilterDecided: func(f rpctrace.Filter) {
			decided += fmt.Sprintf("\n%s decides: %s, %v", f.Name, f.Decision, status.Code(f.Err))
		}})
		r := send(metadata.AppendToOutgoingContext(ctx, "k", "v", "a", "1", "A", "2", "b-bin", "\x00\xff"), i)
		out := fmt.Sprintf("%v %s", status.Code(r.err), status.Convert(r.err).Message())
		for _, md := range []struct {
			name string
			md   metadata.MD
		}{{"sent", r.sent}, {"header", r.header}, {"trailer", r.trailer}} {
			if md.md != nil {
				out += "\n" + md.name + show(md.md)
			}
		}
		if request := asked.GetAttributes().GetRequest(); request != nil {
			if at := request.GetTime().AsTime(); at.Before(before) || at.After(time.Now()) {
				t.Errorf("time is %v", at)
			}
			headers := metadata.MD{}
			for _, h := range request.GetHttp().GetHeaderMap().GetHeaders() {
				headers.Append(h.GetKey(), string(h.GetRawValue())+h.GetValue())
			}
			request.Time, request.Http.HeaderMap = nil, nil
			rest, err := protojson.Marshal(asked)
			xdstest.NoError(t, err)
			if strings.Contains(section, "Constructing") {
				out += fmt.Sprintf("\nasked %s%s, with %q and %q", strings.ReplaceAll(string(rest), " ", ""), show(headers), call["initial"], call["k"])
			}
		} else {
			out += "\nnot asked"
		}
		if strings.Contains(section, "Metrics") {
			out += fmt.Sprintf("\n%v%s", counted.counts, decided)
		}
		if percent, code := i.(*interceptor).Ends(t.Context(), nil); percent > 0 {
			out += fmt.Sprintf("\nexplained: ends %v%% with %v", percent, code)
		}
		return strings.ReplaceAll(out, " \n", "\n")
	})
}

func show(md metadata.MD) (text string) {
	for _, name := range slices.Sorted(maps.Keys(md)) {
		text += fmt.Sprintf(" %s=%+q", name, md[name])
	}
	return text
}

// gRFC A92, "Filter Behavior": filter_enabled.
func TestShareOfRPCs(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	a := startOver(t, nil, func(context.Context, *authpb.CheckRequest) (*authpb.CheckResponse, error) {
		asked.Add(1)
		return &authpb.CheckResponse{}, nil
	})
	const some = `filter_enabled { default_value { numerator: 50 } } `
	percent, code := interceptorOf(t, a.target, some+`deny_at_disable { default_value { value: true } }`).(*interceptor).Ends(t.Context(), nil)
	xdstest.Equal(t, "explanation of RPCs that end", "50 PermissionDenied", fmt.Sprint(percent, " ", code))
	i := interceptorOf(t, a.target, some)
	for range 400 {
		xdstest.NoError(t, send(testutils.Context(t), i).err)
	}
	xdstest.CheckShares(t, "RPCs", []int{int(asked.Load()), 400 - int(asked.Load())}, 1, 1)
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
	for _, test := range []struct{ name, target, fields, text string }{
		{"unreachable", gone.target, ``, "Unavailable"},
		{"an error", broken.target, ``, "code = Internal desc = broken"},
		{"not the service", xdstest.Target(xdstest.Serve(t, nil, grpc.NewServer())), ``, "Unimplemented"},
		{"no answer in time", hanging.target, short, "DeadlineExceeded"},
		{"a slow network", far.target, short, "DeadlineExceeded"},
		{"gone while it is asked", dying.target, ``, "Unavailable"},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			ctx := metadata.AppendToOutgoingContext(testutils.Context(t), "k", "v")
			r := send(ctx, interceptorOf(t, test.target, test.fields))
			checkStatus(t, r.err, codes.PermissionDenied, "ext_authz: the service has not decided: ")
			checkStatus(t, r.err, codes.PermissionDenied, test.text)
			r = send(ctx, interceptorOf(t, test.target, `status_on_error { code: TooManyRequests }`+test.fields))
			checkStatus(t, r.err, codes.Unavailable, test.text)
			if r.sent != nil {
				t.Error("the RPC was sent")
			}
			r = send(ctx, interceptorOf(t, test.target, `failure_mode_allow: true`+test.fields))
			xdstest.NoError(t, r.err)
			xdstest.Equal(t, "metadata", metadata.MD{"k": {"v"}}, r.sent)
			r = send(ctx, interceptorOf(t, test.target, `failure_mode_allow: true failure_mode_allow_header_add: true`+test.fields))
			xdstest.NoError(t, r.err)
			xdstest.Equal(t, "metadata", metadata.MD{"k": {"v"}, "x-envoy-auth-failure-mode-allowed": {"true"}}, r.sent)
		})
	}
	// An RPC that has ended is not one that the service has not decided on.
	stuck := startOver(t, nil, func(context.Context, *authpb.CheckRequest) (*authpb.CheckResponse, error) {
		<-t.Context().Done()
		return &authpb.CheckResponse{}, nil
	})
	i := interceptorOf(t, stuck.target, `failure_mode_allow: true`)
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

// gRFC A92, "ExtAuthz Side Channel": the channel stays over updates while the target and credentials do. It is closed after
// the last filter that uses it.
func TestTheConnectionIsShared(t *testing.T) {
	t.Parallel()
	a := start(t, "", nil)
	for _, fields := range []string{``, `failure_mode_allow: true`, `grpc_service { timeout { seconds: 10 } initial_metadata { key: "k" value: "v" } }`} {
		first, next := interceptorOf(t, a.target, fields), interceptorOf(t, a.target, fields+` status_on_error { code: NotFound }`)
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
		"loopback":     interceptorOf(b, startOver(b, nil, answer).target, ""),
		"1ms each way": interceptorOf(b, startOver(b, xdstest.SlowLink(time.Millisecond, time.Millisecond), answer).target, ""),
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
