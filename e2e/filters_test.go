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
	mutationpb "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	commonfaultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	headerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	limitpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

var always = &typepb.FractionalPercent{Numerator: 100}

// serveFilters configures the service with one backend behind filters. Each of
// the overrides is the route's, by the name of the instance.
func (m *mesh) serveFilters(backend *testutils.Backend, overrides map[string]proto.Message, filters ...*hcmpb.HttpFilter) {
	m.t.Helper()
	route := toCluster(backend.ID())
	route.TypedPerFilterConfig = map[string]*anypb.Any{}
	for name, config := range overrides {
		route.TypedPerFilterConfig[name] = xdsmsg.Any(config)
	}
	m.set(append(clusterOf(backend.ID(), backend),
		xdsmsg.DefaultListener(service, service, filters...),
		xdsmsg.RouteConfig(service, service, route))...)
}

func abortWith(code codes.Code) *faultpb.HTTPFault {
	return &faultpb.HTTPFault{Abort: &faultpb.FaultAbort{ErrorType: &faultpb.FaultAbort_GrpcStatus{GrpcStatus: uint32(code)}, Percentage: always}}
}

// The filter for faults delays and aborts RPCs, as its configuration or their headers ask (gRFC A33).
func TestFaultEndToEnd(t *testing.T) {
	t.Parallel()
	byHeader := &faultpb.HTTPFault{
		Abort: &faultpb.FaultAbort{ErrorType: &faultpb.FaultAbort_HeaderAbort_{}, Percentage: always},
		Delay: &commonfaultpb.FaultDelay{FaultDelaySecifier: &commonfaultpb.FaultDelay_HeaderDelay_{}, Percentage: always},
	}
	for _, test := range []struct {
		name      string
		config    *faultpb.HTTPFault
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

func appendHeader(name, value string) *mutationpb.HeaderMutation {
	return &mutationpb.HeaderMutation{Action: &mutationpb.HeaderMutation_Append{Append: header(name, value)}}
}

func TestHeaderMutationEndToEnd(t *testing.T) {
	t.Parallel()
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	m.serveFilters(backend,
		map[string]proto.Message{"edit": &headerpb.HeaderMutationPerRoute{Mutations: &headerpb.Mutations{
			RequestMutations: []*mutationpb.HeaderMutation{appendHeader("q", "route"), {Action: &mutationpb.HeaderMutation_Remove{Remove: "removed"}}},
		}}},
		xdsmsg.Filter("edit", &headerpb.HeaderMutation{Mutations: &headerpb.Mutations{
			RequestMutations:          []*mutationpb.HeaderMutation{appendHeader("q", "listener"), appendHeader(":path", "/no")},
			ResponseMutations:         []*mutationpb.HeaderMutation{appendHeader("r", "header")},
			ResponseTrailersMutations: []*mutationpb.HeaderMutation{appendHeader("r", "trailer")},
		}}))
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
	config := func(enforced uint32) *limitpb.LocalRateLimit {
		return &limitpb.LocalRateLimit{
			StatPrefix:                         "s",
			TokenBucket:                        &typepb.TokenBucket{MaxTokens: 3, FillInterval: durationpb.New(time.Hour)},
			FilterEnabled:                      &corepb.RuntimeFractionalPercent{DefaultValue: always},
			FilterEnforced:                     &corepb.RuntimeFractionalPercent{DefaultValue: &typepb.FractionalPercent{Numerator: enforced}},
			RequestHeadersToAddWhenNotEnforced: []*corepb.HeaderValueOption{header("over", "limit")},
			ResponseHeadersToAdd:               []*corepb.HeaderValueOption{header("limited", "yes")},
		}
	}
	eachKindInParallel(t, func(t *testing.T, k kind) {
		m, backend := newMesh(t), testutils.StartBackend(t, "b")
		m.serveFilters(backend, nil, xdsmsg.Filter("limit", config(100)))
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
		m.serveFilters(backend, nil, xdsmsg.Filter("limit", config(0)))
		m.MustWait(testutils.Context(t), t, xdstest.ACKOf(xdsmsg.ListenerType))
		for {
			r := callFor(testutils.Context(t), cc, k)
			if r.err == nil {
				break
			}
			checkStatus(t, r.err, codes.ResourceExhausted)
		}
		if got := backend.Last().Metadata["over"]; !slices.Equal(got, []string{"limit"}) {
			t.Errorf("a RPC over the limit has the header %q", got)
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

func (c *counting) complain(format string, args ...any) {
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
		in.filter.complain("%s was closed twice", in.name)
	}
	if n := in.active.Load(); n != 0 {
		in.filter.complain("%s was closed with %d RPCs in it", in.name, n)
	}
}

func (in *countingInstance) ClientInterceptor(config, _ httpfilter.Config) (httpfilter.Interceptor, error) {
	mark := config.(countingConfig).Mark
	return httpfilter.InterceptorFunc(func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
		if in.closed.Load() {
			in.filter.complain("%s got an RPC after Close", in.name)
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
	return xdsmsg.Filter(name, &xdspb.TypedStruct{
		TypeUrl: countingURL,
		Value:   &structpb.Struct{Fields: map[string]*structpb.Value{"mark": structpb.NewStringValue(mark)}},
	})
}

// Filters are added, removed, reordered and reconfigured; RPCs keep the chain they began with, none
// fails, and every instance is closed once, after its last RPC.
func TestFiltersChangeWhileRPCsAreInFlight(t *testing.T) {
	overLinksInTurn(t, func(t *testing.T) {
		made0, closed0 := countingFilter.made.Load(), countingFilter.closed.Load()
		instances := func() (made, closed int64) {
			return countingFilter.made.Load() - made0, countingFilter.closed.Load() - closed0
		}
		m, backend := newMesh(t), testutils.StartBackend(t, "b")
		m.serveFilters(backend, nil, countingEntry("a", "1"))
		cc := m.dial("xds:///" + service)
		l := loadOn(t, cc, backend)
		ctx := testutils.Context(t)
		client := testgrpc.NewTestServiceClient(cc)
		open := func() (streams []duplex) {
			for range 20 {
				s, err := client.FullDuplexCall(ctx)
				xdstest.NoError(t, err)
				streams = append(streams, s)
			}
			return streams
		}
		// 100 streams stay open over the updates.
		streams := open()
		for _, filters := range [][]*hcmpb.HttpFilter{
			{countingEntry("a", "1"), countingEntry("b", "1")}, // added
			{countingEntry("b", "1"), countingEntry("a", "1")}, // reordered
			{countingEntry("b", "2"), countingEntry("a", "3")}, // reconfigured
			{countingEntry("b", "2")},                          // removed
		} {
			m.Skip()
			m.serveFilters(backend, nil, filters...)
			m.MustWait(ctx, t, xdstest.ACKOf(xdsmsg.ListenerType))
			want := ""
			for _, f := range filters {
				config := new(xdspb.TypedStruct)
				xdstest.NoError(t, f.GetTypedConfig().UnmarshalTo(config))
				want += f.GetName() + "=" + config.GetValue().GetFields()["mark"].GetStringValue() + " "
			}
			for {
				callFor(ctx, cc, unary)
				got := ""
				for _, via := range backend.Last().Metadata["via"] {
					got += via + " "
				}
				if got == want {
					break
				}
				if ctx.Err() != nil {
					t.Fatalf("filters run as %q, want %q", got, want)
				}
			}
			streams = append(streams, open()...)
		}
		if made, closed := instances(); made != 2 || closed != 0 {
			t.Errorf("%d instances made, %d closed while streams are open, want 2 and 0", made, closed)
		}
		for _, s := range streams {
			xdstest.NoError(t, echo(s))
			end(t, s)
		}
		if _, closed := instances(); closed != 1 {
			t.Errorf("%d instances closed after the streams have ended, want the one that was removed", closed)
		}
		l.stop(t)
		cc.Close()
		if made, closed := instances(); made != closed {
			t.Errorf("%d instances made, %d closed after the channel was", made, closed)
		}
		if wrong := countingFilter.wrong.Load(); wrong != nil {
			t.Error(*wrong)
		}
	})
}

// A channel that becomes idle gives its instances up, and has others when it
// wakes.
func TestAnIdleChannelClosesItsFilters(t *testing.T) {
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	made, closed := countingFilter.made.Load(), countingFilter.closed.Load()
	m.serveFilters(backend, nil, countingEntry("a", "1"))
	cc := m.dial("xds:///"+service, grpc.WithIdleTimeout(50*time.Millisecond))
	for i := range int64(3) {
		mustReach(t, cc, unary, backend)
		for s := cc.GetState(); s != connectivity.Idle; s = cc.GetState() {
			cc.WaitForStateChange(testutils.Context(t), s)
		}
		// On a slow machine the channel may have been idle more often.
		for ctx := testutils.Context(t); ; runtime.Gosched() {
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
