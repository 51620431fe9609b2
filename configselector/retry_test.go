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
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
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
