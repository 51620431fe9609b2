package e2e_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
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
	"google.golang.org/protobuf/types/known/wrapperspb"

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
	t.Parallel()
	byHeader := with(new(faultpb.HTTPFault),
		`abort { header_abort {} percentage { numerator: 100 } } delay { header_delay {} percentage { numerator: 100 } }`)
	enabled := &routepb.FilterConfig{Config: &anypb.Any{}}
	for _, test := range []struct {
		name      string
		config    proto.Message
		disabled  bool // at the top
		overrides map[string]proto.Message
		md        []string
		timeout   time.Duration
		want      codes.Code
	}{
		{name: "abort", config: abortWith(codes.DataLoss), want: codes.DataLoss},
		{name: "override of the route", config: new(faultpb.HTTPFault), overrides: map[string]proto.Message{"fault": abortWith(codes.Aborted)}, want: codes.Aborted},
		{name: "override of another instance", config: new(faultpb.HTTPFault), overrides: map[string]proto.Message{"other": abortWith(codes.Aborted)}, want: codes.OK},
		{name: "disabled by the route", config: abortWith(codes.DataLoss), overrides: map[string]proto.Message{"fault": &routepb.FilterConfig{Disabled: true}}, want: codes.OK},
		{name: "disabled at the top", config: abortWith(codes.DataLoss), disabled: true, want: codes.OK},
		{name: "disabled at the top, enabled by the route", config: abortWith(codes.DataLoss), disabled: true, overrides: map[string]proto.Message{"fault": abortWith(codes.Aborted)}, want: codes.Aborted},
		{name: "disabled at the top, enabled as it is by the route", config: abortWith(codes.DataLoss), disabled: true, overrides: map[string]proto.Message{"fault": enabled}, want: codes.DataLoss},
		{name: "unknown and disabled at the top", config: wrapperspb.String("unknown"), disabled: true, want: codes.OK},
		{name: "unknown and disabled at the top, enabled as it is by the route", config: wrapperspb.String("unknown"), disabled: true, overrides: map[string]proto.Message{"fault": enabled}, want: codes.Unavailable},
		{name: "override of another type of filter", config: abortWith(codes.DataLoss), overrides: map[string]proto.Message{"fault": &headerpb.HeaderMutationPerRoute{}}, want: codes.DataLoss},
		{name: "headers ask for nothing", config: byHeader, want: codes.OK},
		{name: "headers ask for an abort", config: byHeader, md: []string{"x-envoy-fault-abort-request", "404"}, want: codes.Unimplemented},
		{name: "headers ask for a delay past the deadline", config: byHeader, md: []string{"x-envoy-fault-delay-request", "3600000"}, timeout: 50 * time.Millisecond, want: codes.DeadlineExceeded},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b")
			filter := xdsmsg.Filter("fault", test.config)
			filter.Disabled = test.disabled
			m.serveFilters(backend, test.overrides, filter)
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

// counting is a filter that keeps count of its instances and of the RPCs in
// them. Its configuration is a TypedStruct with the field "mark".
type counting struct {
	made, closed atomic.Int64
	entered      atomic.Int64 // RPCs
	wrong        atomic.Pointer[string]
}

var countingFilter = new(counting)

const countingURL = "type.googleapis.com/dynxds.test.Counting"

func init() { httpfilter.Register(countingFilter) }

type countingConfig struct {
	Mark string `json:"mark"`
}

func (*counting) TypeURLs() []string { return []string{countingURL} }
func (*counting) IsTerminal() bool   { return false }

func (*counting) ParseConfig(config *anypb.Any) (httpfilter.Config, error) {
	return httpfilter.ParseStruct[countingConfig](config)
}

func (c *counting) NewClientInstance(info httpfilter.ClientInstanceInfo) httpfilter.ClientInstance {
	c.made.Add(1)
	return &countingInstance{filter: c, name: info.Name}
}

func (c *counting) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.wrong.CompareAndSwap(nil, &text)
}

type countingInstance struct {
	filter *counting
	name   string
	active atomic.Int64
	closed atomic.Bool
}

func (in *countingInstance) Close() {
	in.filter.closed.Add(1)
	if in.closed.Swap(true) {
		in.filter.fail("%s was closed twice", in.name)
	}
	if n := in.active.Load(); n != 0 {
		in.filter.fail("%s was closed with %d RPCs in it", in.name, n)
	}
}

func (in *countingInstance) ClientInterceptor(config, _ httpfilter.Config) (httpfilter.Interceptor, error) {
	mark := config.(countingConfig).Mark
	return httpfilter.InterceptorFunc(func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
		if in.closed.Load() {
			in.filter.fail("%s got an RPC after Close", in.name)
		}
		in.active.Add(1)
		in.filter.entered.Add(1)
		done := sync.OnceFunc(func() { in.active.Add(-1) })
		s, err := next.NewStream(metadata.AppendToOutgoingContext(ctx, "via", in.name+"="+mark), rpc)
		if err != nil {
			done()
			return nil, err
		}
		return &countingStream{s, rpc.StreamDesc, done}, nil
	}), nil
}

type countingStream struct {
	grpc.ClientStream
	desc *grpc.StreamDesc
	done func()
}

func (s *countingStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil || s.desc == nil || !s.desc.ServerStreams {
		s.done()
	}
	return err
}

func countingEntry(name, mark string) *hcmpb.HttpFilter {
	return xdsmsg.Filter(name, with(new(xdspb.TypedStruct),
		`type_url: %q value { fields { key: "mark" value { string_value: %q } } }`, countingURL, mark))
}

// Filters are added, removed, reordered and reconfigured; RPCs keep the chain they began with, none
// fails, and every instance is closed once, after its last RPC, by the garbage collector.
func TestFiltersChangeWhileRPCsAreInFlight(t *testing.T) {
	overLinksInTurn(t, func(t *testing.T) {
		made0, closed0 := countingFilter.made.Load(), countingFilter.closed.Load()
		instances := func() (made, closed int64) {
			return countingFilter.made.Load() - made0, countingFilter.closed.Load() - closed0
		}
		ctx := testutils.Context(t)
		awaitClosed := func(when string, want int64) {
			t.Helper()
			for ; ; runtime.GC() {
				_, closed := instances()
				if closed == want {
					return
				}
				if ctx.Err() != nil {
					t.Fatalf("%d instances closed after %s, want %d", closed, when, want)
				}
			}
		}
		m, backend := newMesh(t), testutils.StartBackend(t, "b")
		m.serveFilters(backend, nil, countingEntry("a", "1"))
		cc := m.dial("xds:///" + service)
		l := loadOn(t, cc, backend)
		// 100 streams stay open over the updates.
		streams := openStreams(ctx, t, cc, 20)
		for _, step := range []struct {
			filters []*hcmpb.HttpFilter
			want    []string
		}{
			{[]*hcmpb.HttpFilter{countingEntry("a", "1"), countingEntry("b", "1")}, []string{"a=1", "b=1"}}, // added
			{[]*hcmpb.HttpFilter{countingEntry("b", "1"), countingEntry("a", "1")}, []string{"b=1", "a=1"}}, // reordered
			{[]*hcmpb.HttpFilter{countingEntry("b", "2"), countingEntry("a", "3")}, []string{"b=2", "a=3"}}, // reconfigured
			{[]*hcmpb.HttpFilter{countingEntry("b", "2")}, []string{"b=2"}},                                 // removed
		} {
			m.Skip()
			m.serveFilters(backend, nil, step.filters...)
			m.MustWait(ctx, t, xdstest.ACKOf(xdsmsg.ListenerType))
			until(t, cc, fmt.Sprintf("ran through %q", step.want), func(string, error) bool {
				return slices.Equal(backend.Last().Metadata["via"], step.want)
			}, grpc.WaitForReady(true))
			streams = append(streams, openStreams(ctx, t, cc, 20)...)
		}
		for range 5 {
			runtime.GC()
		}
		if made, closed := instances(); made != 2 || closed != 0 {
			t.Errorf("%d instances made, %d closed while streams are open, want 2 and 0", made, closed)
		}
		for _, s := range streams {
			xdstest.NoError(t, echo(s))
			end(t, s)
		}
		clear(streams)
		awaitClosed("the streams", 1) // the one that was removed
		l.stop(t)
		cc.Close()
		awaitClosed("the channel", 2)
		if wrong := countingFilter.wrong.Load(); wrong != nil {
			t.Error(*wrong)
		}
	})
}

// A channel that becomes idle closes its instances, and makes others when it wakes.
func TestAnIdleChannelClosesItsFilters(t *testing.T) {
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	made, closed := countingFilter.made.Load(), countingFilter.closed.Load()
	m.serveFilters(backend, nil, countingEntry("a", "1"))
	cc := m.dial("xds:///"+service, grpc.WithIdleTimeout(50*time.Millisecond))
	for i := range int64(3) {
		mustReach(t, cc, unary, backend)
		awaitState(t, cc, connectivity.Idle)
		// On a slow machine the channel may have been idle more often.
		for ctx := testutils.Context(t); ; runtime.GC() {
			made, closed := countingFilter.made.Load()-made, countingFilter.closed.Load()-closed
			if made == closed && closed > i {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("%d instances made, %d closed; want as many, and more than %d", made, closed, i)
			}
		}
	}
	if wrong := countingFilter.wrong.Load(); wrong != nil {
		t.Error(*wrong)
	}
}
