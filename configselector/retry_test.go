package configselector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// retried is a route whose RPCs are retried.
func retried(p xdsresource.RetryPolicy) *xdsresource.Route {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = 3
	}
	if p.Codes == 0 {
		p.Codes = xdsresource.NewCodeSet(codes.Unavailable, codes.Internal)
	}
	if p.BaseBackoff == 0 {
		p.BaseBackoff, p.MaxBackoff = time.Millisecond, time.Millisecond
	}
	route := toC()
	route.Retry = &p
	return route
}

// failing answers the first times RPCs with a status, and then echoes.
func failing(times int, code codes.Code, trailer ...string) func(int, grpc.ServerStream) error {
	return func(n int, s grpc.ServerStream) error {
		s.SetTrailer(metadata.Pairs(append(trailer, "attempt", fmt.Sprint(n))...))
		if n < times {
			return status.Error(code, "try again")
		}
		_ = s.SetHeader(metadata.Pairs("attempt", fmt.Sprint(n)))
		return echo(s)
	}
}

// sentTwice are routes whose RPCs are sent twice, with the attempts that fail.
var sentTwice = []struct {
	name  string
	route *xdsresource.Route
	fail  int
}{
	{"retry", retried(xdsresource.RetryPolicy{}), 1},
	{"hedging", hedged(3), 1},
	{"mirror", mirrored(1), 0},
}

// Attempts and mirrors go with the content-type that the RPC has without them.
func TestContentTypeOfAttempts(t *testing.T) {
	t.Parallel()
	for _, test := range sentTwice {
		for want, opts := range map[string][]grpc.CallOption{
			"application/grpc":       nil,
			"application/grpc+proto": {grpc.CallContentSubtype("Proto")},
			"application/grpc+named": {grpc.ForceCodecV2(namedCodec{encoding.GetCodecV2("proto")})},
			"application/grpc+older": {grpc.ForceCodec(olderCodec{})},
		} {
			xdstest.Parallel(t, test.name+" "+want, func(t *testing.T) {
				eachKind(t, func(t *testing.T, k kind) {
					w := newWorld(t, worldConfig{routes: []*xdsresource.Route{test.route}, handle: failing(test.fail, codes.Unavailable)})
					xdstest.NoError(t, w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"}, opts...).err)
					for i, rpc := range w.await(t, 2) {
						xdstest.Equal(t, fmt.Sprint("content-type of RPC ", i), []string{want}, rpc.md["content-type"])
					}
				})
			})
		}
	}
}

// An RPC whose codec gRPC does not know fails, although the policy retries its status.
func TestAnUnknownCodec(t *testing.T) {
	t.Parallel()
	for _, test := range sentTwice {
		eachKind(t, func(t *testing.T, k kind) {
			w := newWorld(t, worldConfig{routes: []*xdsresource.Route{test.route}})
			r := w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"}, grpc.CallContentSubtype("unheard-of"))
			if status.Code(r.err) != codes.Internal || len(r.finished) != 1 {
				t.Errorf("%s: %v, OnFinish got %v", test.name, r.err, r.finished)
			}
		})
	}
}

// A response that cannot be decoded ends the RPC with a status, whichever attempt it answers.
func TestAResponseThatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	for _, test := range sentTwice {
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{test.route}, handle: failing(test.fail, codes.Unavailable)})
		err := w.s.Unary(testutils.Context(t), "/s/m", bytesOf("\xff is not UTF-8"), new(wrapperspb.StringValue), w.cc, w.invoker, nil)
		if status.Code(err) != codes.Internal {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// A response with a message and an error ends the RPC with the error.
func TestAMessageBeforeAnError(t *testing.T) {
	t.Parallel()
	for _, test := range sentTwice {
		eachKind(t, func(t *testing.T, k kind) {
			w := newWorld(t, worldConfig{routes: []*xdsresource.Route{test.route}, handle: func(_ int, s grpc.ServerStream) error {
				return errors.Join(s.SendMsg(bytesOf("x")), status.Error(codes.Unavailable, "afterwards"))
			}})
			if r := w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"}); status.Code(r.err) != codes.Unavailable || len(r.finished) != 1 {
				t.Errorf("%s: %v, OnFinish got %v", test.name, r.err, r.finished)
			}
		})
	}
}

// namedCodec is a codec of another name.
type namedCodec struct{ encoding.CodecV2 }

func (namedCodec) Name() string { return "Named" }

// olderCodec implements the older interface of codecs.
type olderCodec struct{}

func (olderCodec) Name() string                  { return "Older" }
func (olderCodec) Marshal(m any) ([]byte, error) { return proto.Marshal(m.(proto.Message)) }
func (olderCodec) Unmarshal(data []byte, m any) error {
	return proto.Unmarshal(data, m.(proto.Message))
}

// Attempts and mirrors are encoded by the codec that a filter sets.
func TestCodecOfAFilter(t *testing.T) {
	t.Parallel()
	for _, test := range sentTwice {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				received := make(chan string, 5)
				set := filterOf("f", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
					rpc.AddOptions(grpc.ForceCodecV2(doubling{encoding.GetCodecV2("proto")}))
					return next.NewStream(ctx, rpc)
				})
				w := newWorld(t, worldConfig{
					routes: []*xdsresource.Route{test.route}, listener: chainOf(set),
					handle: func(n int, s grpc.ServerStream) error {
						all, err := receiveAll(s)
						received <- all
						switch {
						case err != nil:
							return err
						case n < test.fail:
							return status.Error(codes.Unavailable, "try again")
						}
						return s.SendMsg(bytesOf(all))
					},
				})
				xdstest.NoError(t, w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"}).err)
				for i := range 2 {
					xdstest.Equal(t, fmt.Sprint("request of RPC ", i), "xx", <-received)
				}
			})
		})
	}
}

// doubling is a codec that sends the value of a message twice.
type doubling struct{ encoding.CodecV2 }

func (c doubling) Marshal(m any) (mem.BufferSlice, error) {
	value := m.(*wrapperspb.BytesValue).GetValue()
	return c.CodecV2.Marshal(bytesOf(string(value) + string(value)))
}

// TestRetry: gRFC A6, "Summary of Retry and Hedging Logic", "Pushback",
// "Limits on Retries and Hedges", "Exposed Retry Metadata"; gRFC A44.
func TestRetry(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		policy   xdsresource.RetryPolicy
		handle   func(int, grpc.ServerStream) error
		opts     []grpc.CallOption
		dial     []grpc.DialOption
		want     codes.Code
		attempts int
	}{
		{name: "success is not retried", handle: failing(0, 0), attempts: 1},
		{name: "a retryable code is retried", handle: failing(2, codes.Unavailable), attempts: 3},
		{name: "another code is fatal", handle: failing(2, codes.NotFound), want: codes.NotFound, attempts: 1},
		{name: "until the attempts are used up", handle: failing(9, codes.Internal), want: codes.Internal, attempts: 3},
		{name: "not more often than the channel allows", policy: xdsresource.RetryPolicy{MaxAttempts: 5},
			handle: failing(9, codes.Internal), dial: []grpc.DialOption{grpc.WithMaxCallAttempts(2)}, want: codes.Internal, attempts: 2},
		{name: "not if the application disabled retries", handle: failing(9, codes.Internal),
			dial: []grpc.DialOption{grpc.WithDisableRetry()}, want: codes.Internal, attempts: 1},
		{name: "pushback sets the delay", policy: xdsresource.RetryPolicy{BaseBackoff: time.Hour, MaxBackoff: time.Hour},
			handle: failing(2, codes.Unavailable, "grpc-retry-pushback-ms", "1"), attempts: 3},
		{name: "pushback forbids retries", handle: failing(2, codes.Unavailable, "grpc-retry-pushback-ms", "-1"), want: codes.Unavailable, attempts: 1},
		{name: "pushback that cannot be parsed forbids retries", handle: failing(2, codes.Unavailable, "grpc-retry-pushback-ms", "soon"), want: codes.Unavailable, attempts: 1},
		{name: "two pushbacks forbid retries", handle: failing(2, codes.Unavailable, "grpc-retry-pushback-ms", "1", "grpc-retry-pushback-ms", "1"), want: codes.Unavailable, attempts: 1},
		{name: "pushback does not make a code retryable", handle: failing(2, codes.NotFound, "grpc-retry-pushback-ms", "1"), want: codes.NotFound, attempts: 1},
		{name: "response headers commit", handle: func(n int, s grpc.ServerStream) error {
			_ = s.SendHeader(metadata.Pairs("attempt", fmt.Sprint(n)))
			return status.Error(codes.Unavailable, "too late")
		}, want: codes.Unavailable, attempts: 1},
		{name: "a message that the buffer does not take commits", handle: func(n int, s grpc.ServerStream) error {
			if err := s.RecvMsg(new(wrapperspb.BytesValue)); err != nil {
				return err
			}
			return status.Error(codes.Unavailable, "try again")
		}, opts: []grpc.CallOption{grpc.MaxRetryRPCBufferSize(4)}, want: codes.Unavailable, attempts: 1},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{retried(test.policy)}, handle: test.handle, dial: test.dial})
				r := w.makeRPC(testutils.Context(t), k, "/s/m", []string{"one ", "two ", "three"}, test.opts...)
				if status.Code(r.err) != test.want {
					t.Errorf("%v, want %v", r.err, test.want)
				}
				rpcs := w.seen()
				if len(rpcs) != test.attempts {
					t.Fatalf("%d attempts, want %d", len(rpcs), test.attempts)
				}
				for i, rpc := range rpcs {
					got := rpc.md.Get("grpc-previous-rpc-attempts")
					if want := fmt.Sprint(i); i == 0 && got != nil || i > 0 && !slices.Equal(got, []string{want}) {
						t.Errorf("attempt %d has grpc-previous-rpc-attempts %q", i, got)
					}
				}
				if test.want == codes.OK {
					want := "one two three"
					if k.desc == nil || !k.desc.ClientStreams {
						want = "one "
					}
					if !slices.Equal(r.replies, []string{want}) {
						t.Errorf("replies %q, want %q", r.replies, want)
					}
					if last := fmt.Sprint(test.attempts - 1); r.header.Get("attempt")[0] != last || r.trailer.Get("attempt")[0] != last {
						t.Errorf("header %v and trailer %v are not those of the last attempt", r.header, r.trailer)
					}
				}
				if len(r.finished) != 1 || status.Code(r.finished[0]) != test.want {
					t.Errorf("OnFinish got %v, want once %v", r.finished, test.want)
				}
			})
		})
	}
}

// TestRequestsOfAnySizeAreSentAgain: a message of no bytes is one too, and a large response is read from memory that gRPC uses again.
func TestRequestsOfAnySizeAreSentAgain(t *testing.T) {
	t.Parallel()
	for name, route := range map[string]*xdsresource.Route{"retried": retried(xdsresource.RetryPolicy{}), "hedged": hedged(3)} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{route}, handle: func(n int, s grpc.ServerStream) error {
					if n%3 < 2 {
						return status.Error(codes.Unavailable, "try again")
					}
					return echo(s)
				}})
				for _, request := range []string{"", strings.Repeat("x", 10000)} {
					r := w.makeRPC(testutils.Context(t), k, "/s/m", []string{request})
					xdstest.NoError(t, r.err)
					xdstest.Equal(t, "replies", []string{request}, r.replies)
				}
			})
		})
	}
}

// TestRetriableHeaders: Envoy, RetryPolicy.retriable_headers and retriable_request_headers.
func TestRetriableHeaders(t *testing.T) {
	t.Parallel()
	is := func(name, value string) []matching.Header {
		return []matching.Header{
			{Name: "x-never", Kind: matching.HeaderPresent, Present: true},
			{Name: name, String: matching.NewString(matching.StringExact, value, false)},
		}
	}
	for _, test := range []struct {
		name     string
		policy   xdsresource.RetryPolicy
		handle   func(int, grpc.ServerStream) error
		attempts int
	}{
		{"a header of the response", xdsresource.RetryPolicy{RetriableHeaders: is("again", "yes")}, failing(2, codes.NotFound, "again", "yes"), 3},
		{"another value", xdsresource.RetryPolicy{RetriableHeaders: is("again", "yes")}, failing(2, codes.NotFound, "again", "no"), 1},
		{"the status", xdsresource.RetryPolicy{RetriableHeaders: is("grpc-status", "2")}, failing(2, codes.Unknown), 3},
		{"another status", xdsresource.RetryPolicy{RetriableHeaders: is("grpc-status", "2")}, failing(2, codes.NotFound), 1},
		{"after response headers", xdsresource.RetryPolicy{RetriableHeaders: is("again", "yes")}, func(n int, s grpc.ServerStream) error {
			_ = s.SendHeader(metadata.Pairs("again", "yes"))
			return failing(2, codes.NotFound, "again", "yes")(n, s)
		}, 1},
		{"a header of the request", xdsresource.RetryPolicy{RequestHeaders: is("idempotent", "yes")}, failing(2, codes.Unavailable), 3},
		{"another request", xdsresource.RetryPolicy{RequestHeaders: is("idempotent", "maybe")}, failing(2, codes.Unavailable), 1},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{retried(test.policy)}, handle: test.handle})
				r := w.makeRPC(metadata.AppendToOutgoingContext(testutils.Context(t), "idempotent", "yes"), k, "/s/m", []string{"x"})
				if got := len(w.seen()); got != test.attempts || (r.err == nil) != (got == 3) {
					t.Errorf("%d attempts, want %d: %v", got, test.attempts, r.err)
				}
			})
		})
	}
}

// TestRetriesOfPicksThatFail: gRFC A6, "Transparent Retries": a failure of load balancing is a matter for
// the policy, but an RPC that the load-balancing policy drops fails at once. Envoy, retry_on
// connect-failure: no endpoint could be reached, which does not include an RPC that was sent and failed.
func TestRetriesOfPicksThatFail(t *testing.T) {
	t.Parallel()
	on := func(p xdsresource.RetryPolicy, c ...codes.Code) *xdsresource.Route {
		route := retried(p)
		route.Retry.Codes = xdsresource.NewCodeSet(c...)
		return route
	}
	onCodes, onConnectFailure := on(xdsresource.RetryPolicy{}, codes.Unavailable), on(xdsresource.RetryPolicy{ConnectFailure: true})
	nothing, unreachable := func(*decision.Decision) {}, func(d *decision.Decision) { d.Fail(rpctrace.Unreachable) }
	for _, test := range []struct {
		name     string
		route    *xdsresource.Route
		fail     func(*decision.Decision)
		code     codes.Code
		failures int
		attempts int
	}{
		{"once", onCodes, nothing, codes.Unavailable, 1, 2},
		{"twice", onCodes, nothing, codes.Unavailable, 2, 3},
		{"always", onCodes, nothing, codes.Unavailable, 9, 3},
		{"dropped", onCodes, func(d *decision.Decision) { d.Fail(rpctrace.Dropped) }, codes.Unavailable, 9, 1},
		{"a retry is dropped", onCodes, func(d *decision.Decision) {
			if a := d.Attempt(); a != nil && a.Retry {
				d.Fail(rpctrace.Dropped)
			}
		}, codes.Unavailable, 9, 2},
		{"no endpoint could be reached", onConnectFailure, unreachable, codes.Unavailable, 9, 3},
		{"no endpoint could be reached, which the policy does not retry", on(xdsresource.RetryPolicy{}), unreachable, codes.Unavailable, 9, 1},
		{"after the RPC was sent", onConnectFailure, func(d *decision.Decision) {
			d.Fail(rpctrace.Unreachable)
			d.Sent("endpoint")
		}, codes.Unavailable, 9, 1},
		{"no response, for a reason in the client", on(xdsresource.RetryPolicy{NoResponse: true}), nothing, codes.ResourceExhausted, 9, 1},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{test.route}})
				attempts := 0
				w.pick = func(ctx context.Context) error {
					if attempts++; attempts > test.failures {
						return nil
					}
					test.fail(decision.FromContext(ctx))
					return status.Error(test.code, "no endpoint")
				}
				r := w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"})
				xdstest.Equal(t, "attempts", test.attempts, attempts)
				if failed := test.failures >= test.attempts; !failed {
					xdstest.NoError(t, r.err)
				} else if status.Code(r.err) != test.code || status.Convert(r.err).Message() != "no endpoint" {
					t.Errorf("got %v, want %v: no endpoint", r.err, test.code)
				}
			})
		})
	}
}

// TestHostsOfAttempts: Envoy, RetryPolicy.retry_host_predicate and host_selection_retry_max_attempts: a pick that finds a
// host of an earlier attempt is repeated. Hedges avoid such hosts without being asked to.
func TestHostsOfAttempts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		policy xdsresource.RetryPolicy
		dial   []grpc.DialOption
		want   int // picks; 0: hosts are not known
	}{
		{name: "retries"},
		{name: "retries to other hosts", policy: xdsresource.RetryPolicy{PreviousHosts: 5}, want: 5},
		{name: "hedges", policy: xdsresource.RetryPolicy{Hedges: true, PerTryTimeout: time.Second}, want: 3},
		{name: "hedges with a number", policy: xdsresource.RetryPolicy{Hedges: true, PerTryTimeout: time.Second, PreviousHosts: 5}, want: 5},
		{name: "no retries", policy: xdsresource.RetryPolicy{PreviousHosts: 5}, dial: []grpc.DialOption{grpc.WithDisableRetry()}},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				w := newWorld(t, worldConfig{routes: []*xdsresource.Route{retried(test.policy)}, dial: test.dial, handle: failing(1, codes.Unavailable)})
				var hosts []*decision.Hosts
				w.pick = func(ctx context.Context) error {
					var h *decision.Hosts
					if a := decision.FromContext(ctx).Attempt(); a != nil {
						h = a.Hosts
					}
					hosts = append(hosts, h)
					return nil
				}
				w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"})
				for i, h := range hosts {
					if h != hosts[0] || (h != nil) != (test.want > 0) || h != nil && h.Picks != test.want {
						t.Errorf("attempt %d picks with %v, the first with %v, want %d picks", i, h, hosts[0], test.want)
					}
				}
			})
		})
	}
}

// TestFiltersDoNotNoticeRetries: retries happen in the router, behind the
// filters.
func TestFiltersDoNotNoticeRetries(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		runs := 0
		w := newWorld(t, worldConfig{
			routes: []*xdsresource.Route{retried(xdsresource.RetryPolicy{})},
			listener: chainOf(filterOf("f", func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
				runs++
				return next.NewStream(metadata.AppendToOutgoingContext(ctx, "via", "f"), rpc)
			})),
			handle: failing(2, codes.Unavailable),
		})
		r := w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"})
		if r.err != nil || runs != 1 || !slices.Equal(w.seen()[2].md["via"], []string{"f"}) {
			t.Errorf("error %v, the filter ran %d times, attempts %v", r.err, runs, w.seen())
		}
	})
}

// A retry that the picker refuses, for a limit of the cluster, leaves the RPC with what its last
// attempt got, and the reason.
func TestARetryThatThePickerRefuses(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		w := newWorld(t, worldConfig{routes: []*xdsresource.Route{retried(xdsresource.RetryPolicy{})}, handle: failing(9, codes.Internal)})
		attempts := 0
		w.pick = func(ctx context.Context) error {
			d := decision.FromContext(ctx)
			if attempts++; attempts == 1 {
				return nil
			}
			if a := d.Attempt(); a == nil || !a.Retry {
				t.Error("the picker does not know that it picks for a retry")
			}
			d.Fail(rpctrace.MaxRetries)
			return status.Error(codes.Unavailable, "too many retries")
		}
		r := w.makeRPC(testutils.Context(t), k, "/s/m", []string{"x"})
		if attempts != 2 || status.Code(r.err) != codes.Internal || status.Convert(r.err).Message() != "try again; not retried: too many retries" {
			t.Errorf("%d attempts: %v", attempts, r.err)
		}
		if !slices.Equal(r.trailer["attempt"], []string{"0"}) {
			t.Errorf("trailer %v is not that of the last attempt", r.trailer)
		}
		if len(r.finished) != 1 || fmt.Sprint(r.finished[0]) != fmt.Sprint(r.err) {
			t.Errorf("OnFinish got %v, want once %v", r.finished, r.err)
		}
	})
}

func TestTheDeadlineEndsTheWaitForARetry(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind) {
		w := newWorld(t, worldConfig{
			routes: []*xdsresource.Route{retried(xdsresource.RetryPolicy{BaseBackoff: time.Hour, MaxBackoff: time.Hour})},
			handle: failing(9, codes.Unavailable),
		})
		picks := 0
		w.pick = func(context.Context) error { picks++; return nil }
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if r := w.makeRPC(ctx, k, "/s/m", []string{"x"}); status.Code(r.err) != codes.DeadlineExceeded || len(r.finished) != 1 || picks != 1 {
			t.Errorf("%v after %d picks, OnFinish got %v", r.err, picks, r.finished)
		}
	})
}
