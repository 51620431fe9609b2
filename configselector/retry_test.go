package configselector_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/testutils"
)

// retried is a route whose RPCs are retried.
func retried(p xdsresource.RetryPolicy) *xdsresource.Route {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = 3
	}
	if p.Codes == 0 {
		p.Codes = xdsresource.SetOf(codes.Unavailable, codes.Internal)
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
