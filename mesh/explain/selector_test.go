package explain_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/configselector"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/xdsclient"
)

// tables makes random resources of routes, and RPCs.
type tables struct{ *rand.Rand }

func (r tables) one(of int) bool { return r.IntN(of) == 0 }

func oneOf[T any](r tables, from ...T) T { return from[r.IntN(len(from))] }

// maybe returns a text in one of so many cases, or else "".
func (r tables) maybe(of int, text string) string {
	if r.one(of) {
		return text
	}
	return ""
}

// The following return text protos.

func (r tables) duration() string { return oneOf(r, "{}", "{ seconds: 3600 }", "{ seconds: 5400 }") }

func (r tables) stringMatcher() string {
	if r.one(5) {
		return fmt.Sprintf("string_match { safe_regex { regex: %q } }", oneOf(r, "a+b?", ".*", "[0-9]"))
	}
	return fmt.Sprintf("string_match { %s ignore_case: %t }", oneOf(r, `prefix: "a"`, `prefix: "A"`, `suffix: "b"`, `suffix: "B"`,
		`contains: "a"`, `contains: "b"`, `contains: "7"`, `exact: "a"`, `exact: "ab"`, `exact: "7"`, `exact: ""`), r.one(3))
}

var headerNames = []string{"x-a", "x-b", "x-bin", "content-type", ":path", ":authority", ":method", "host", "user-agent", "te"}

func (r tables) header() string {
	return fmt.Sprintf("headers { name: %q invert_match: %t treat_missing_header_as_empty: %t %s } ",
		oneOf(r, headerNames...), r.one(4), r.one(6),
		oneOf(r, "present_match: true", "present_match: false", "range_match { start: 5 end: 9 }", r.stringMatcher(), r.stringMatcher()))
}

func (r tables) match() string {
	prefix := fmt.Sprintf("prefix: %q", oneOf(r, "", "/", "/p", "/p.S/", "/x"))
	text := "match { " + oneOf(r, prefix, prefix, prefix,
		fmt.Sprintf("path: %q", oneOf(r, "/p.S/M", "/P.s/m", "/p.S/N")),
		fmt.Sprintf("path_separated_prefix: %q", oneOf(r, "/p.S", "/p")),
		fmt.Sprintf("safe_regex { regex: %q }", oneOf(r, "/p.S/.", "/p.*", "/q"))) +
		r.maybe(4, fmt.Sprintf(" case_sensitive { value: %t }", r.one(2)))
	for range max(r.IntN(4)-2, 0) {
		text += " " + r.header()
	}
	text += r.maybe(5, fmt.Sprintf(" query_parameters { name: %q %s }", oneOf(r, "q", "r"), r.maybe(2, r.stringMatcher())))
	return text + r.maybe(5, fmt.Sprintf(" runtime_fraction { default_value { numerator: %d } }", oneOf(r, 0, 100, 100))) + " }"
}

// abort is a fault filter's configuration, which is identified by its status.
func (r tables) abort() string {
	return fmt.Sprintf("abort { grpc_status: %d percentage { numerator: 100 } }", 1+r.IntN(16))
}

func (r tables) overrides() string {
	const filterConfig = "[type.googleapis.com/envoy.config.route.v3.FilterConfig]"
	config := "[type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault] { " + r.maybe(2, r.abort()) + " }"
	switch r.IntN(12) {
	case 0:
	case 1:
		config = fmt.Sprintf("%s { config { %s } disabled: %t }", filterConfig, config, r.one(2))
	case 2:
		config = filterConfig + " { disabled: true }"
	default:
		return ""
	}
	return `typed_per_filter_config { key: "fault" value { ` + config + " } } "
}

func (r tables) action() string {
	var text string
	switch r.IntN(6) {
	case 0:
		text = oneOf(r, `cluster_header: "x-a"`, `cluster_header: "x-c"`)
	case 1:
		text = `cluster_specifier_plugin: ""`
	case 2:
		text = `weighted_clusters { clusters { name: "w" weight { value: 1 } ` + r.overrides() + "} "
		for i := range 1 + r.IntN(3) {
			text += fmt.Sprintf(`clusters { name: "w%d" weight { value: %d } %s} `, i, oneOf(r, 0, 0, 1), r.overrides())
		}
		text += "}"
	default:
		text = fmt.Sprintf("cluster: %q", oneOf(r, "a", "ab", "c"))
	}
	text += r.maybe(3, " max_stream_duration { "+r.maybe(2, "max_stream_duration "+r.duration())+
		r.maybe(3, " grpc_timeout_header_max "+r.duration())+" }")
	switch r.IntN(8) {
	case 0:
		text += fmt.Sprintf(" prefix_rewrite: %q", oneOf(r, "/new", "/", "no"))
	case 1:
		text += fmt.Sprintf(` regex_rewrite { pattern { regex: "p" } substitution: %q }`, oneOf(r, "z", " "))
	}
	return text
}

func (r tables) route() string {
	text := "routes { " + r.match() + " " + r.overrides()
	switch r.IntN(10) {
	case 0:
		text += fmt.Sprintf("direct_response { status: %d }", oneOf(r, 200, 404, 503, 429))
	case 1:
		text += `redirect { path_redirect: "/x" }`
	case 2:
		text += "non_forwarding_action {}"
	default:
		text += "route { " + r.action() + " }"
	}
	return text + " } "
}

func (r tables) routes() *routepb.RouteConfiguration {
	var routes string
	for range r.IntN(8) {
		routes += r.route()
	}
	domain := oneOf(r, "*", "*", "*", "backend", "back*", "*end", "BACKEND", "no")
	return parsed(new(routepb.RouteConfiguration), fmt.Sprintf(
		`name: "r" virtual_hosts { name: "other" domains: "other" %s } virtual_hosts { name: "v" domains: %q %s %s }`,
		routes, domain, routes, r.overrides()))
}

// parsed fills a message in from a text proto.
func parsed[M proto.Message](m M, text string) M {
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		panic(fmt.Sprintf("%v in %s", err, text))
	}
	return m
}

func (r tables) listener() proto.Message {
	fault := xdsmsg.Filter("fault", parsed(new(faultpb.HTTPFault), r.maybe(3, r.abort())))
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

// fate is the outcome of an RPC.
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
	var action *explain.Action
	for i := range e.Routes {
		if a := e.Routes[i].Action; a != nil {
			if e.Routes[i].Share != 100 || len(a.Destinations) > 1 {
				return fate{}, false
			}
			action = a
		}
	}
	switch {
	case e.Code != "":
		return fate{code: codes.Code(code.Code_value[e.Code])}, true
	case action == nil || len(action.Destinations) == 0:
		t.Fatalf("the RPC goes nowhere, and has no status:\n%s", e.Text())
	}
	f.cluster, f.path = action.Destinations[0].Cluster, e.Request.Method
	for _, s := range action.Settings {
		switch s.Name {
		case "timeout":
			if s.Value != "no limit" {
				var err error
				f.limit, err = time.ParseDuration(s.Value)
				xdstest.NoError(t, err)
			}
		case "path":
			_, to, _ := strings.Cut(s.Value, " → ")
			quoted, err := strconv.QuotedPrefix(to)
			xdstest.NoError(t, err)
			f.path, err = strconv.Unquote(quoted)
			xdstest.NoError(t, err)
		}
	}
	return f, true
}

// For every RPC whose way the resources determine, an explanation agrees with the Selector: on the
// cluster, or the status it fails with; on the path on the wire; and on the bound on its duration.
func TestExplanationsAgreeWithRPCs(t *testing.T) {
	t.Parallel()
	cc, err := grpc.NewClient("passthrough:///unused", grpc.WithTransportCredentials(insecure.NewCredentials()))
	xdstest.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	counts := make(map[codes.Code]int)
	for seed := range uint64(3000) {
		r := tables{rand.New(rand.NewPCG(23, seed))}
		source := &explain.Source{Client: explain.Client{Source: "a test", Name: "dynxds"}}
		var values []any
		for _, m := range []proto.Message{r.listener(), r.routes()} {
			a := xdsmsg.Any(m)
			typ := map[string]*xdsclient.ResourceType{typeurl.Listener: xdsresource.ListenerType, typeurl.RouteConfiguration: xdsresource.RouteConfigurationType}[a.GetTypeUrl()]
			value, err := typ.Decode(a, xdsclient.DecodeOptions{})
			if err != nil {
				break // It is NACKed.
			}
			values = append(values, value)
			source.Resources = append(source.Resources, &explain.Resource{TypeURL: a.GetTypeUrl(), Raw: a, ResourceStatus: explain.ResourceStatus{Name: string(typ.NameOf(a.GetValue())), State: "ACKED"}})
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
	s := ch.NewSelector(configselector.Config{Version: 1, Listener: l, VirtualHost: vh, RouteConfigName: "r"})
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD(request.Headers))
	invoker := func(ctx context.Context, method string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
		d := decision.FromContext(ctx)
		f.cluster, f.path = d.Cluster, d.WireMethod()
		if at, ok := ctx.Deadline(); ok {
			f.limit = time.Until(at).Round(time.Minute)
		}
		return nil
	}
	err := s.Unary(ctx, request.Method, wrapperspb.Bytes([]byte("x")), wrapperspb.Bytes(nil), cc, invoker, nil)
	f.code = status.Code(err)
	if f.code != codes.OK && strings.Contains(err.Error(), "panic") {
		t.Error(err)
	}
	return f
}
