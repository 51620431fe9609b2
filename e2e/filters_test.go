package e2e_test

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	xdspb "github.com/cncf/xds/go/xds/type/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	headerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	limitpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// serveFilters configures the service with one backend behind filters. Each of
// the overrides is the route's, by the name of the instance.
func (m *mesh) serveFilters(backend *testutils.Backend, overrides map[string]proto.Message, filters ...*hcmpb.HttpFilter) {
	m.t.Helper()
	route := toCluster(backend.ID())
	route.TypedPerFilterConfig = map[string]*anypb.Any{}
	for name, config := range overrides {
		route.TypedPerFilterConfig[name] = xdsmsg.Any(config)
	}
	m.set(clusterOf(backend.ID(), backend),
		xdsmsg.DefaultListener(service, service, filters...),
		xdsmsg.RouteConfig(service, service, route))
}

func abortWith(code codes.Code) *faultpb.HTTPFault {
	return with(new(faultpb.HTTPFault), `abort { grpc_status: %d percentage { numerator: 100 } }`, code)
}

// The filter for faults delays and aborts RPCs, as its configuration or their headers ask (gRFC A33).
func TestFaultEndToEnd(t *testing.T) {
	everyWay(t)
	t.Parallel()
	for _, test := range []struct {
		name      string
		config    proto.Message
		overrides map[string]proto.Message
		md        []string
		timeout   time.Duration
		want      codes.Code
	}{
		{name: "abort", config: abortWith(codes.DataLoss), want: codes.DataLoss},
		{name: "override of the route", config: new(faultpb.HTTPFault), overrides: map[string]proto.Message{"fault": abortWith(codes.Aborted)}, want: codes.Aborted},
		{name: "disabled by the route", config: abortWith(codes.DataLoss), overrides: map[string]proto.Message{"fault": &routepb.FilterConfig{Disabled: true}}, want: codes.OK},
		{name: "headers ask for a delay past the deadline", config: with(new(faultpb.HTTPFault), `delay { header_delay {} percentage { numerator: 100 } }`),
			md: []string{"x-envoy-fault-delay-request", "3600000"}, timeout: 50 * time.Millisecond, want: codes.DeadlineExceeded},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b")
			m.serveFilters(backend, test.overrides, xdsmsg.Filter("fault", test.config))
			cc := m.dial("xds:///" + service)
			cc.Connect()
			eachKind(t, func(t *testing.T, k kind) {
				ctx := testutils.Context(t)
				if test.timeout > 0 {
					short, cancel := context.WithTimeout(ctx, test.timeout)
					defer cancel()
					ctx = short
				}
				r := callFor(metadata.AppendToOutgoingContext(ctx, test.md...), cc, k)
				if test.want != codes.OK {
					checkStatus(t, r.err, test.want)
				} else if r.err != nil {
					t.Error(r.err)
				}
			})
		})
	}
}

func TestHeaderMutationEndToEnd(t *testing.T) {
	t.Parallel()
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	m.serveFilters(backend,
		map[string]proto.Message{"edit": with(new(headerpb.HeaderMutationPerRoute), `mutations {
			request_mutations { append { header { key: "q" value: "route" } } } request_mutations { remove: "removed" } }`)},
		xdsmsg.Filter("edit", with(new(headerpb.HeaderMutation), `mutations {
			request_mutations { append { header { key: "q" value: "listener" } } }
			request_mutations { append { header { key: ":path" value: "/no" } } }
			response_mutations { append { header { key: "r" value: "header" } } }
			response_trailers_mutations { append { header { key: "r" value: "trailer" } } } }`)))
	cc := m.dial("xds:///" + service)
	eachKind(t, func(t *testing.T, k kind) {
		r := callFor(metadata.AppendToOutgoingContext(testutils.Context(t), "removed", "v"), cc, k)
		xdstest.NoError(t, r.err)
		if md := backend.Last().Metadata; !slices.Equal(md["q"], []string{"listener", "route"}) || md["removed"] != nil {
			t.Errorf("the backend saw %v", md)
		}
		if !slices.Equal(r.header["r"], []string{"header"}) || !slices.Equal(r.trailer["r"], []string{"trailer"}) {
			t.Errorf("header %v, trailer %v", r.header, r.trailer)
		}
	})
}

func TestLocalRateLimitEndToEnd(t *testing.T) {
	t.Parallel()
	limit := func(enforced int) *hcmpb.HttpFilter {
		return xdsmsg.Filter("limit", with(new(limitpb.LocalRateLimit), `
			stat_prefix: "s" token_bucket { max_tokens: 3 fill_interval { seconds: 3600 } }
			filter_enabled { default_value { numerator: 100 } } filter_enforced { default_value { numerator: %d } }
			request_headers_to_add_when_not_enforced { header { key: "over" value: "limit" } }
			response_headers_to_add { header { key: "limited" value: "yes" } }`, enforced))
	}
	eachKindInParallel(t, func(t *testing.T, k kind) {
		m, backend := newMesh(t), testutils.StartBackend(t, "b")
		m.serveFilters(backend, nil, limit(100))
		cc := m.dial("xds:///" + service)
		for range 3 {
			xdstest.NoError(t, callFor(testutils.Context(t), cc, k).err)
		}
		r := callFor(testutils.Context(t), cc, k)
		checkStatus(t, r.err, codes.ResourceExhausted)
		if !slices.Equal(r.trailer["limited"], []string{"yes"}) || backend.Count() != 3 {
			t.Errorf("trailer %v, the backend saw %d RPCs", r.trailer, backend.Count())
		}
		// An update that does not change the bucket does not fill it; in shadow mode the
		// RPC continues.
		m.serveFilters(backend, nil, limit(0))
		m.MustWait(testutils.Context(t), t, xdstest.ACKOf(xdsmsg.ListenerType))
		for r.err != nil {
			checkStatus(t, r.err, codes.ResourceExhausted)
			r = callFor(testutils.Context(t), cc, k)
		}
		if got := backend.Last().Metadata["over"]; !slices.Equal(got, []string{"limit"}) {
			t.Errorf("an RPC over the limit has the header %q, want \"limit\"", got)
		}
	})
}

// counting is a filter that counts its instances, and does nothing.
type counting struct{ made, closed atomic.Int64 }

var countingFilter = new(counting)

const countingURL = "type.googleapis.com/dynxds.test.Counting"

func init() { httpfilter.Register(countingFilter) }

func (*counting) TypeURLs() []string { return []string{countingURL} }
func (*counting) IsTerminal() bool   { return false }

func (*counting) ParseConfig(*anypb.Any) (httpfilter.Config, error) { return countingURL, nil }

func (c *counting) NewClientInstance(httpfilter.ClientInstanceInfo) httpfilter.ClientInstance {
	c.made.Add(1)
	return new(countingInstance)
}

type countingInstance struct{ _ byte } // a value of its own, whose end the garbage collector notices

func (*countingInstance) Close() { countingFilter.closed.Add(1) }

func (*countingInstance) ClientInterceptor(_, _ httpfilter.Config) (httpfilter.Interceptor, error) {
	return nil, nil
}

// A channel that becomes idle closes the instances of its filters, and makes others when it wakes.
func TestAnIdleChannelClosesItsFilters(t *testing.T) {
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	m.serveFilters(backend, nil, xdsmsg.Filter("a", &xdspb.TypedStruct{TypeUrl: countingURL}))
	cc := m.dial("xds:///"+service, grpc.WithIdleTimeout(50*time.Millisecond))
	for i := range int64(3) {
		mustReachByEachKind(t, cc, backend)
		awaitState(t, cc, connectivity.Idle)
		// On a slow machine the channel may have been idle more often.
		for ctx := testutils.Context(t); ; runtime.GC() {
			made, closed := countingFilter.made.Load(), countingFilter.closed.Load()
			if made == closed && closed > i {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("%d instances made, %d closed; want as many, and more than %d", made, closed, i)
			}
		}
	}
}
