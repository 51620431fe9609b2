package configselector_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/configselector"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/explain"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

// tables makes random resources of routes, and RPCs.
type tables struct{ *rand.Rand }

func (r tables) one(of int) bool { return r.IntN(of) == 0 }

func oneOf[T any](r tables, from ...T) T { return from[r.IntN(len(from))] }

func (r tables) duration() *durationpb.Duration {
	return durationpb.New(oneOf(r, 0, time.Hour, 90*time.Minute))
}

func (r tables) streamDuration() *routepb.RouteAction_MaxStreamDuration {
	d := new(routepb.RouteAction_MaxStreamDuration)
	if r.one(2) {
		d.MaxStreamDuration = r.duration()
	}
	if r.one(3) {
		d.GrpcTimeoutHeaderMax = r.duration()
	}
	return d
}

func (r tables) text() *matcherpb.StringMatcher {
	m := &matcherpb.StringMatcher{IgnoreCase: r.one(3)}
	switch r.IntN(5) {
	case 0:
		m.MatchPattern = &matcherpb.StringMatcher_Prefix{Prefix: oneOf(r, "a", "A")}
	case 1:
		m.MatchPattern = &matcherpb.StringMatcher_Suffix{Suffix: oneOf(r, "b", "B")}
	case 2:
		m.MatchPattern = &matcherpb.StringMatcher_Contains{Contains: oneOf(r, "a", "b", "7")}
	case 3:
		m.IgnoreCase = false
		m.MatchPattern = &matcherpb.StringMatcher_SafeRegex{SafeRegex: &matcherpb.RegexMatcher{Regex: oneOf(r, "a+b?", ".*", "[0-9]")}}
	default:
		m.MatchPattern = &matcherpb.StringMatcher_Exact{Exact: oneOf(r, "a", "ab", "7", "")}
	}
	return m
}

var headerNames = []string{"x-a", "x-b", "x-bin", "content-type", ":path", ":authority", ":method", "host", "user-agent", "te"}

func (r tables) header() *routepb.HeaderMatcher {
	h := &routepb.HeaderMatcher{Name: oneOf(r, headerNames...), InvertMatch: r.one(4), TreatMissingHeaderAsEmpty: r.one(6)}
	switch r.IntN(4) {
	case 0:
		h.HeaderMatchSpecifier = &routepb.HeaderMatcher_PresentMatch{PresentMatch: r.one(2)}
	case 1:
		h.HeaderMatchSpecifier = &routepb.HeaderMatcher_RangeMatch{RangeMatch: &typepb.Int64Range{Start: 5, End: 9}}
	default:
		h.HeaderMatchSpecifier = &routepb.HeaderMatcher_StringMatch{StringMatch: r.text()}
	}
	return h
}

func (r tables) match() *routepb.RouteMatch {
	m := new(routepb.RouteMatch)
	switch r.IntN(6) {
	case 0:
		m.PathSpecifier = &routepb.RouteMatch_Path{Path: oneOf(r, "/p.S/M", "/P.s/m", "/p.S/N")}
	case 1:
		m.PathSpecifier = &routepb.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: oneOf(r, "/p.S", "/p")}
	case 2:
		m.PathSpecifier = &routepb.RouteMatch_SafeRegex{SafeRegex: &matcherpb.RegexMatcher{Regex: oneOf(r, "/p.S/.", "/p.*", "/q")}}
	default:
		m.PathSpecifier = &routepb.RouteMatch_Prefix{Prefix: oneOf(r, "", "/", "/p", "/p.S/", "/x")}
	}
	if r.one(4) {
		m.CaseSensitive = wrapperspb.Bool(r.one(2))
	}
	for range max(r.IntN(4)-2, 0) {
		m.Headers = append(m.Headers, r.header())
	}
	if r.one(5) {
		q := &routepb.QueryParameterMatcher{Name: oneOf(r, "q", "r")}
		if r.one(2) {
			q.QueryParameterMatchSpecifier = &routepb.QueryParameterMatcher_StringMatch{StringMatch: r.text()}
		}
		m.QueryParameters = []*routepb.QueryParameterMatcher{q}
	}
	if r.one(5) {
		m.RuntimeFraction = &corepb.RuntimeFractionalPercent{
			DefaultValue: &typepb.FractionalPercent{Numerator: oneOf[uint32](r, 0, 100, 100)},
		}
	}
	return m
}

// abort is a fault filter's configuration, which tells by the status which one is in force.
func (r tables) abort() *faultpb.HTTPFault {
	return &faultpb.HTTPFault{Abort: &faultpb.FaultAbort{
		ErrorType:  &faultpb.FaultAbort_GrpcStatus{GrpcStatus: 1 + r.Uint32N(16)},
		Percentage: &typepb.FractionalPercent{Numerator: 100},
	}}
}

func (r tables) overrides() map[string]*anypb.Any {
	config := xdsmsg.Any(oneOf(r, &faultpb.HTTPFault{}, r.abort()))
	switch r.IntN(12) {
	case 0:
		return map[string]*anypb.Any{"fault": config}
	case 1:
		return map[string]*anypb.Any{"fault": xdsmsg.Any(&routepb.FilterConfig{Config: config, Disabled: r.one(2)})}
	case 2:
		return map[string]*anypb.Any{"fault": xdsmsg.Any(&routepb.FilterConfig{Disabled: true})}
	default:
		return nil
	}
}

func (r tables) action() *routepb.RouteAction {
	a := new(routepb.RouteAction)
	switch r.IntN(6) {
	case 0:
		a.ClusterSpecifier = &routepb.RouteAction_ClusterHeader{ClusterHeader: oneOf(r, "x-a", "x-c")}
	case 1:
		a.ClusterSpecifier = &routepb.RouteAction_ClusterSpecifierPlugin{}
	case 2:
		w := new(routepb.WeightedCluster)
		for i := range 1 + r.IntN(3) {
			w.Clusters = append(w.Clusters, &routepb.WeightedCluster_ClusterWeight{
				Name: fmt.Sprint("w", i), Weight: wrapperspb.UInt32(oneOf[uint32](r, 0, 0, 1)), TypedPerFilterConfig: r.overrides(),
			})
		}
		w.Clusters = append(w.Clusters, &routepb.WeightedCluster_ClusterWeight{Name: "w", Weight: wrapperspb.UInt32(1), TypedPerFilterConfig: r.overrides()})
		a.ClusterSpecifier = &routepb.RouteAction_WeightedClusters{WeightedClusters: w}
	default:
		a.ClusterSpecifier = &routepb.RouteAction_Cluster{Cluster: oneOf(r, "a", "ab", "c")}
	}
	if r.one(3) {
		a.MaxStreamDuration = r.streamDuration()
	}
	switch r.IntN(8) {
	case 0:
		a.PrefixRewrite = oneOf(r, "/new", "/", "no")
	case 1:
		a.RegexRewrite = &matcherpb.RegexMatchAndSubstitute{Pattern: &matcherpb.RegexMatcher{Regex: "p"}, Substitution: oneOf(r, "z", " ")}
	}
	return a
}

func (r tables) route() *routepb.Route {
	route := &routepb.Route{Match: r.match(), TypedPerFilterConfig: r.overrides()}
	switch r.IntN(10) {
	case 0:
		route.Action = &routepb.Route_DirectResponse{DirectResponse: &routepb.DirectResponseAction{Status: oneOf[uint32](r, 200, 404, 503, 429)}}
	case 1:
		route.Action = &routepb.Route_Redirect{Redirect: &routepb.RedirectAction{PathRewriteSpecifier: &routepb.RedirectAction_PathRedirect{PathRedirect: "/x"}}}
	case 2:
		route.Action = &routepb.Route_NonForwardingAction{NonForwardingAction: &routepb.NonForwardingAction{}}
	default:
		route.Action = &routepb.Route_Route{Route: r.action()}
	}
	return route
}

func (r tables) routes() *routepb.RouteConfiguration {
	var routes []*routepb.Route
	for range r.IntN(8) {
		routes = append(routes, r.route())
	}
	config := xdsmsg.RouteConfig("r", "other", routes...)
	host := xdsmsg.VirtualHost("v", []string{oneOf(r, "*", "*", "*", "backend", "back*", "*end", "BACKEND", "no")}, routes...)
	host.TypedPerFilterConfig = r.overrides()
	config.VirtualHosts = append(config.VirtualHosts, host)
	return config
}

func (r tables) listener() proto.Message {
	fault := xdsmsg.Filter("fault", oneOf(r, &faultpb.HTTPFault{}, &faultpb.HTTPFault{}, r.abort()))
	fault.Disabled = r.one(5)
	l := xdsmsg.DefaultListener("backend", "r", fault)
	manager := new(hcmpb.HttpConnectionManager)
	if err := l.GetApiListener().GetApiListener().UnmarshalTo(manager); err != nil {
		panic(err)
	}
	if r.one(2) {
		manager.CommonHttpProtocolOptions = &corepb.HttpProtocolOptions{MaxStreamDuration: durationpb.New(oneOf(r, 0, 2*time.Hour))}
	}
	return xdsmsg.APIListener("backend", manager)
}

func (r tables) rpc() explain.Request {
	headers := make(map[string][]string)
	for _, name := range []string{"x-a", "x-b", "x-bin", "content-type", "user-agent", "te"} {
		for range max(r.IntN(4)-1, 0) {
			headers[name] = append(headers[name], oneOf(r, "a", "ab", "7", "B", ""))
		}
	}
	return explain.Request{
		Target: "xds:///backend", Headers: headers,
		Method: oneOf(r, "/p.S/M", "/p.S/N", "/x/M", "/p.S/M?q=a", "/p.S/M?r=&q=7", "/P.s/m"),
	}
}

// what becomes of an RPC.
type fate struct {
	// code is the status with which it fails, OK if it gets to a cluster.
	code    codes.Code
	cluster string
	path    string
	// limit is the bound on its duration, 0 for none.
	limit time.Duration
}

// explained returns the fate of the RPC as explained, and whether that is certain.
func explained(t *testing.T, e *explain.Explanation) (f fate, certain bool) {
	t.Helper()
	if len(e.VirtualHosts) > 0 && len(e.Routes) == 0 || e.Unrouted == 100 {
		return fate{code: codes.Unavailable}, true
	}
	var action *explain.Action
	for i := range e.Routes {
		if a := e.Routes[i].Action; a != nil {
			if e.Routes[i].Share != 100 {
				return fate{}, false
			}
			action = a
		}
	}
	if action == nil {
		t.Fatalf("all RPCs are routed, but take no route:\n%s", e.Text())
	}
	filters := action.Filters
	if len(action.Destinations) > 1 {
		return fate{}, false
	}
	for i := range action.Destinations {
		d := &action.Destinations[i]
		if d.Error != "" {
			return fate{code: codes.Unavailable}, true
		}
		f.cluster, f.path = d.Cluster, e.Request.Method
		if d.Filters != nil {
			filters = d.Filters
		}
	}
	if action.Kind == "unroutable" {
		return fate{code: codes.Unavailable}, true
	}
	if s := action.Timeout; s != nil && s.Value != "no limit" {
		var err error
		f.limit, err = time.ParseDuration(s.Value)
		xdstest.NoError(t, err)
	}
	fault := filters[0]
	config := fault.Config
	if fault.Override != nil {
		config = fault.Override
	}
	var abort struct {
		Abort *struct {
			Status uint32 `json:"grpc_status"`
		} `json:"abort"`
	}
	xdstest.NoError(t, json.Unmarshal(config, &abort))
	switch {
	case fault.Name != "fault":
		t.Fatalf("the first filter is %q", fault.Name)
	case !fault.Disabled && abort.Abort != nil:
		return fate{code: codes.Code(abort.Abort.Status)}, true
	case action.Kind != "forward":
		return fate{code: codes.Code(code.Code_value[action.Code])}, true
	}
	if p := action.Path; p != nil {
		f.path = p.To
		if p.Error != "" {
			return fate{code: codes.Unavailable}, true
		}
	}
	return f, true
}

// For every RPC whose way the resources determine, an explanation agrees with the Selector: on the
// cluster, or the status it fails with; on the path on the wire; on the filters' configuration; and on the
// bound on its duration.
func TestExplanationsAgreeWithRPCs(t *testing.T) {
	t.Parallel()
	cc := newClientConn(t)
	counts := make(map[codes.Code]int)
	for seed := range uint64(3000) {
		r := tables{rand.New(rand.NewPCG(23, seed))}
		source := &explain.Source{Client: explain.Client{Source: "a test", Name: "dynxds"}}
		var values []any
		for _, m := range []proto.Message{r.listener(), r.routes()} {
			a := xdsmsg.Any(m)
			typ := map[string]*xdsclient.ResourceType{typeurl.Listener: xdsresource.ListenerType, typeurl.RouteConfiguration: xdsresource.RouteConfigurationType}[a.GetTypeUrl()]
			name, value, err := typ.Decode(a, xdsclient.DecodeOptions{})
			if err != nil {
				break // It is NACKed.
			}
			values = append(values, value)
			source.Resources = append(source.Resources, &explain.Resource{TypeURL: a.GetTypeUrl(), Name: name, State: "ACKED", Raw: a})
		}
		if len(values) < 2 {
			continue
		}
		request := r.rpc()
		e, err := explain.Explain(source, request)
		xdstest.NoError(t, err)
		want, certain := explained(t, e)
		if !certain {
			continue
		}
		got := fate{code: codes.Unavailable}
		if vh := values[1].(*xdsresource.RouteConfiguration).VirtualHost("backend"); vh != nil {
			got = carryOut(t, cc, values[0].(*xdsresource.Listener), vh, request)
		}
		if counts[got.code]++; got != want {
			t.Fatalf("seed %d: the RPC has %+v, but is explained as %+v:\n%s", seed, got, want, e.Text())
		}
	}
	t.Logf("by status: %v", counts)
	for _, c := range []codes.Code{codes.OK, codes.Unavailable, codes.NotFound, codes.DataLoss} {
		if counts[c] < 4 {
			t.Errorf("%d RPCs have status %v: too few to learn much", counts[c], c)
		}
	}
}

// carryOut has a Selector carry out an RPC.
func carryOut(t *testing.T, cc *grpc.ClientConn, l *xdsresource.Listener, vh *xdsresource.VirtualHost, request explain.Request) (f fate) {
	t.Helper()
	ch := configselector.NewChannel(cc, "backend", false, nil)
	defer ch.Close()
	s := ch.NewSelector(configselector.Config{Version: 1, Listener: l, VirtualHost: vh, RouteConfigName: "r"})
	defer s.Retire()
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD(request.Headers))
	invoker := func(ctx context.Context, method string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		d := decision.FromContext(ctx)
		f.cluster, f.path = d.Cluster, d.WireMethod()
		if at, ok := ctx.Deadline(); ok {
			f.limit = time.Until(at).Round(time.Minute)
		}
		return nil
	}
	err := s.Unary(ctx, request.Method, bytesOf("x"), bytesOf(""), cc, invoker, nil)
	f.code = status.Code(err)
	if f.code != codes.OK && strings.Contains(err.Error(), "panic") {
		t.Error(err)
	}
	return f
}
