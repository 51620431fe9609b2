package dynxds_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mutationpb "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	commonfaultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	headerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	limitpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	rbacpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	sessionpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/testutils/xdsmsg"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsresource"
)

// faultsOf decodes a resource and returns what is wrong with it.
func faultsOf(t *testing.T, rt *xdsclient.ResourceType, resource proto.Message) []xdsresource.Fault {
	t.Helper()
	_, _, err := rt.Decode(xdsmsg.Any(resource), xdsclient.DecodeOptions{})
	var faults *xdsresource.Faults
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &faults):
		t.Fatal(err)
	}
	return faults.List
}

func managerOf(filters ...*hcmpb.HttpFilter) *hcmpb.HttpConnectionManager {
	return &hcmpb.HttpConnectionManager{
		RouteSpecifier: &hcmpb.HttpConnectionManager_Rds{Rds: &hcmpb.Rds{ConfigSource: xdsmsg.ADS(), RouteConfigName: "r"}},
		HttpFilters:    filters,
	}
}

// gRFC A39, of every built-in filter: on which side it is known ("The set of known
// filter config types will be different on the gRPC client and server": HTTP API
// Listener, TCP Listener), whether it takes overrides and of what type ("it will
// fail validation if the override config is of the filter's top-level config type
// and …"), and that an override is accepted whichever side the filter is for.
func TestBuiltInFiltersByA39(t *testing.T) {
	t.Parallel()
	limit := &limitpb.LocalRateLimit{StatPrefix: "s", TokenBucket: &typepb.TokenBucket{MaxTokens: 1, FillInterval: durationpb.New(1e9)}}
	sessionOff := &sessionpb.StatefulSessionPerRoute{Override: &sessionpb.StatefulSessionPerRoute_Disabled{Disabled: true}}
	for _, test := range []struct {
		name                     string
		config                   proto.Message
		client, server, terminal bool
		overrides                []proto.Message // accepted
		wrong                    []proto.Message // refused as overrides
	}{
		{"router", &routerpb.Router{}, true, true, true, nil, []proto.Message{&routerpb.Router{}}},
		{"fault", &faultpb.HTTPFault{}, true, false, false, []proto.Message{&faultpb.HTTPFault{}}, nil},
		{"header_mutation", &headerpb.HeaderMutation{}, true, false, false, []proto.Message{&headerpb.HeaderMutationPerRoute{}}, []proto.Message{&headerpb.HeaderMutation{}}},
		{"local_ratelimit", limit, true, false, false, []proto.Message{limit}, nil},
		{"stateful_session", &sessionpb.StatefulSession{}, true, false, false, []proto.Message{sessionOff}, []proto.Message{&sessionpb.StatefulSession{}}},
		{"rbac", &rbacpb.RBAC{}, false, true, false, []proto.Message{&rbacpb.RBACPerRoute{}}, []proto.Message{&rbacpb.RBAC{}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			chain := []*hcmpb.HttpFilter{xdsmsg.Filter("f", test.config)}
			if !test.terminal {
				chain = append(chain, xdsmsg.Router())
			}
			manager := managerOf(chain...)
			if faults := faultsOf(t, xdsresource.ListenerType, xdsmsg.APIListener("l", manager)); (len(faults) == 0) != test.client {
				t.Errorf("in an API listener: %v", faults)
			}
			tcp := &listenerpb.Listener{Name: "l", FilterChains: []*listenerpb.FilterChain{{Filters: []*listenerpb.Filter{{
				Name: "hcm", ConfigType: &listenerpb.Filter_TypedConfig{TypedConfig: xdsmsg.Any(manager)},
			}}}}}
			// The first fault is that this is no Listener for a client.
			if faults := faultsOf(t, xdsresource.ListenerType, tcp); (len(faults) == 1) != test.server {
				t.Errorf("in a TCP listener: %v", faults)
			}
			override := func(m proto.Message) []xdsresource.Fault {
				route := xdsmsg.PrefixRoute("", "c")
				route.TypedPerFilterConfig = map[string]*anypb.Any{"f": xdsmsg.Any(m)}
				return faultsOf(t, xdsresource.RouteConfigurationType, xdsmsg.RouteConfig("r", "*", route))
			}
			for _, m := range test.overrides {
				if faults := override(m); faults != nil {
					t.Errorf("override %T: %v", m, faults)
				}
				if faults := override(&routepb.FilterConfig{Config: xdsmsg.Any(m)}); faults != nil {
					t.Errorf("override %T in a FilterConfig: %v", m, faults)
				}
			}
			for _, m := range test.wrong {
				if override(m) == nil {
					t.Errorf("override %T is accepted", m)
				}
			}
		})
	}
}

// gRFC A39, "The Router Filter": "All fields will be ignored."
func TestTheRouterIgnoresItsFields(t *testing.T) {
	t.Parallel()
	router := &routerpb.Router{
		DynamicStats: wrapperspb.Bool(false), SuppressEnvoyHeaders: true, StrictCheckHeaders: []string{"no-such-header"},
	}
	api := xdsmsg.APIListener("l", managerOf(xdsmsg.Filter("router", router)))
	if faults := faultsOf(t, xdsresource.ListenerType, api); faults != nil {
		t.Error(faults)
	}
	broken := xdsmsg.Router()
	broken.GetTypedConfig().Value = []byte{0xff}
	api = xdsmsg.APIListener("l", managerOf(broken))
	if faults := faultsOf(t, xdsresource.ListenerType, api); len(faults) != 1 || !strings.Contains(fmt.Sprint(faults[0]), "router") {
		t.Errorf("a configuration that cannot be read: %v", faults)
	}
}

// Built-in filters are added, removed, reordered and reconfigured while 100 RPCs
// are in flight, half of them unary ones that wait in a filter and half streams.
// None fails, and later RPCs meet the filters of the day.
func TestBuiltInFiltersChangeWhileRPCsAreInFlight(t *testing.T) {
	overLinks(t, builtInFiltersChangeWhileRPCsAreInFlight)
}

func builtInFiltersChangeWhileRPCsAreInFlight(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	ctx := testutils.Context(t)
	backend := testutils.StartBackend(t, "b")
	delay := func(percent uint32) *hcmpb.HttpFilter {
		return xdsmsg.Filter("delay", &faultpb.HTTPFault{Delay: &commonfaultpb.FaultDelay{
			FaultDelaySecifier: &commonfaultpb.FaultDelay_HeaderDelay_{}, Percentage: &typepb.FractionalPercent{Numerator: percent},
		}})
	}
	edit := func(value string) *hcmpb.HttpFilter {
		return xdsmsg.Filter("edit", &headerpb.HeaderMutation{Mutations: &headerpb.Mutations{
			RequestMutations:  []*mutationpb.HeaderMutation{appendHeader("via", value)},
			ResponseMutations: []*mutationpb.HeaderMutation{appendHeader("back", value)},
		}})
	}
	limit := func(tokens uint32) *hcmpb.HttpFilter {
		return xdsmsg.Filter("limit", &limitpb.LocalRateLimit{
			StatPrefix: "s", TokenBucket: &typepb.TokenBucket{MaxTokens: tokens, FillInterval: durationpb.New(time.Hour)},
			FilterEnabled: &corepb.RuntimeFractionalPercent{DefaultValue: always},
			// Without filter_enforced RPCs go on, and say so.
			RequestHeadersToAddWhenNotEnforced: []*corepb.HeaderValueOption{header("via", "limit")},
		})
	}
	m.serveFilters(backend, nil, countingEntry("count", ""), delay(100), edit("0"))
	cc := m.dial("xds:///" + service)
	mustReach(t, cc, unary, backend)

	entered := countingFilter.entered.Load()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			r := callFor(metadata.AppendToOutgoingContext(ctx, "x-envoy-fault-delay-request", "1500"), cc, unary)
			if r.err != nil || !slices.Equal(r.header["back"], []string{"0"}) {
				t.Errorf("a unary RPC over the updates: header %v, %v", r.header, r.err)
			}
		})
	}
	var streams []testgrpc.TestService_FullDuplexCallClient
	for range 50 {
		s, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	for countingFilter.entered.Load() < entered+100 {
		runtime.Gosched()
	}
	l := startLoad(t, cc)
	for _, step := range []struct {
		filters    []*hcmpb.HttpFilter
		via        []string
		withCookie bool
	}{
		{[]*hcmpb.HttpFilter{edit("1")}, []string{"1"}, false},                                             // removed, reconfigured
		{[]*hcmpb.HttpFilter{edit("2"), limit(1)}, []string{"2", "limit"}, false},                          // added
		{[]*hcmpb.HttpFilter{limit(1), edit("2")}, []string{"limit", "2"}, false},                          // reordered
		{[]*hcmpb.HttpFilter{byCookie("/"), delay(50), limit(1), edit("3")}, []string{"limit", "3"}, true}, // added
		{[]*hcmpb.HttpFilter{edit("4"), byCookie("/other"), limit(2_000_000_000)}, []string{"4"}, false},   // reconfigured
		{nil, nil, false}, // all removed
	} {
		m.serveFilters(backend, nil, step.filters...)
		for _, k := range kinds {
			for {
				r := callFor(ctx, cc, k)
				if r.err != nil {
					t.Fatal(r.err)
				}
				if slices.Equal(backend.Last().Metadata["via"], step.via) && (r.header["set-cookie"] != nil) == step.withCookie {
					break
				}
			}
		}
	}
	l.stop(t)
	for _, s := range streams {
		if err := s.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		if md, err := s.Header(); err != nil || !slices.Equal(md["back"], []string{"0"}) {
			t.Errorf("a stream over the updates: header %v, %v", md, err)
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != io.EOF {
			t.Fatal(err)
		}
	}
	wg.Wait()
}
