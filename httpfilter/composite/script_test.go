package composite

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	_ "github.com/cncf/xds/go/xds/type/matcher/v3" // for $attributes
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matchingpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3" // for $rbac
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	_ "github.com/dynxds/dynxds/httpfilter/inert"  // RBAC and CORS
	_ "github.com/dynxds/dynxds/httpfilter/router" // the end of chains
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/xdsclient"
)

// TestScripts runs the cases in testdata. "go test -update" writes what is indented by spaces.
func TestScripts(t *testing.T) {
	t.Parallel()
	const file = "testdata/composite.txt"
	head, cases, _ := strings.Cut(golden.Read(t, file), "\n== ")
	for given := range strings.SplitSeq(cases, "\n== ") {
		title, lines, _ := strings.Cut(strings.TrimSpace(given), "\n")
		head += "\n== " + title + "\n"
		s := script{T: t}
		for _, statement := range statements(lines) {
			head += statement + "\n" + s.run(statement)
		}
	}
	golden.Check(t, file, head)
}

// statements are lines with the lines below them that are indented by tabs.
func statements(lines string) (list []string) {
	for line := range strings.Lines(lines) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "  "): // what was printed
		case strings.HasPrefix(line, "\t"):
			list[len(list)-1] += "\n" + line
		case line != "":
			list = append(list, line)
		}
	}
	return list
}

// script is a case: a configuration, maybe an override, and RPCs.
type script struct {
	*testing.T
	top, override httpfilter.Config
}

// run returns what comes of a statement.
func (s *script) run(statement string) (printed string) {
	verb, text, _ := strings.Cut(statement, "\n")
	words := strings.Fields(verb)
	text = expand(s, text)
	var err error
	switch words[0] {
	case "config":
		s.top, err = parse(xdsmsg.With(new(matchingpb.ExtensionWithMatcher), "%s", text))
	case "matcher":
		s.top, err = parse(top("xds_matcher{%s}", text))
	case "override":
		s.override, err = parseOverride(xdsmsg.With(new(matchingpb.ExtensionWithMatcherPerRoute), "%s", text))
	case "rpc":
		said, _ := s.rpc(words[1:])
		return said
	case "traced": // an RPC
		_, trace := s.rpc(words[1:])
		return trace
	default:
		s.Fatalf("what is %q?", verb)
	}
	if err != nil {
		return "  NACK: " + err.Error() + "\n"
	}
	return ""
}

// rpc returns what becomes of an RPC with metadata: the filters that it meets, or its error, and how that is explained.
// And it returns what the trace of the RPC has.
func (s *script) rpc(words []string) (said, trace string) {
	rpc := &httpfilter.RPC{Method: "/s/m", Authority: "host"}
	ctx := s.Context()
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case ":path":
			rpc.Method = value
		case ":authority":
			rpc.Authority = value
		default:
			ctx = metadata.AppendToOutgoingContext(ctx, name, value)
		}
	}
	ctx = rpctrace.With(ctx, &rpctrace.Trace{
		FilterDecided: func(f rpctrace.Filter) { trace += fmt.Sprintf("  %s decides: %s\n", f.Name, f.Decision) },
		FilterStarted: func(f rpctrace.Filter) { trace += fmt.Sprintf("  %s starts\n", f.Name) },
		FilterEnded:   func(f rpctrace.Filter) { trace += fmt.Sprintf("  %s ends: passed on %t\n", f.Name, f.PassedOn) },
	})
	i, err := newFilter(nil).NewClientInstance(httpfilter.ClientInstanceInfo{Name: "composite"}).ClientInterceptor(s.top, s.override)
	xdstest.NoError(s, err)
	if i == nil {
		return "  no interceptor\n", ""
	}
	c := s.top
	if s.override != nil {
		c = s.override
	}
	result := send(ctx, rpc, i, mark("behind"))
	return "  " + result + "\n  explained: " + c.(*config).Chooses(ctx, rpc) + "\n", trace
}

// send returns the filters that an RPC meets on its way through interceptors, or the error of the RPC.
func send(ctx context.Context, rpc *httpfilter.RPC, interceptors ...httpfilter.Interceptor) string {
	end := new(backend)
	if _, err := httpfilter.NewNext(end, interceptors...).NewStream(ctx, rpc); err != nil {
		return err.Error()
	}
	return "meets " + strings.Join(end.met, ", ")
}

// backend is the end of a chain.
type backend struct {
	grpc.ClientStream
	met []string
}

func (b *backend) Send(ctx context.Context, _ *httpfilter.RPC) (grpc.ClientStream, error) {
	md, _ := metadata.FromOutgoingContext(ctx)
	b.met = md["met"]
	return b, nil
}

// mark is the interceptor of a filter that adds its name to the header "met".
func mark(name string) httpfilter.Interceptor {
	return httpfilter.InterceptorFunc(func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
		return next.NewStream(metadata.AppendToOutgoingContext(ctx, "met", name), rpc)
	})
}

var pass = httpfilter.InterceptorFunc(func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
	return next.NewStream(ctx, rpc)
})

// marker is the type of filters with these interceptors, by their names: none for "out", an error for "unbuildable", pass for "pass".
type marker struct{}

func init() { httpfilter.Register(marker{}) }

func (marker) TypeURLs() []string { return []string{"type.googleapis.com/test.Filter"} }
func (marker) IsTerminal() bool   { return false }

func (marker) ParseConfig(a *anypb.Any) (httpfilter.Config, error) {
	return httpfilter.ParseStruct[struct{ Name string }](a)
}

func (marker) NewClientInstance(info httpfilter.ClientInstanceInfo) httpfilter.ClientInstance {
	return &markerInstance{name: info.Name}
}

type markerInstance struct{ name string }

func (m *markerInstance) ClientInterceptor(c, _ httpfilter.Config) (httpfilter.Interceptor, error) {
	switch m.name {
	case "unbuildable":
		return nil, errors.New("no")
	case "out":
		return nil, nil
	case "pass":
		return pass, nil
	}
	return mark(m.name), nil
}

// top returns a configuration with these fields besides the Composite.
func top(fields string, args ...any) *matchingpb.ExtensionWithMatcher {
	pb := xdsmsg.With(new(matchingpb.ExtensionWithMatcher), `extension_config{name:"composite" typed_config{[type.googleapis.com/`+
		`envoy.extensions.filters.http.composite.v3.Composite]{}}}`)
	return xdsmsg.With(pb, fields, args...)
}

// parse decodes a Listener with the filter. Errors begin in its configuration.
func parse(m proto.Message) (httpfilter.Config, error) {
	value, err := xdsresource.ListenerType.Decode(xdsmsg.Any(xdsmsg.DefaultListener("l", "r", xdsmsg.Filter("f", m))), xdsclient.DecodeOptions{})
	if err != nil {
		return nil, within(err)
	}
	return value.(*xdsresource.Listener).Filters[0].Config, nil
}

// parseOverride decodes a RouteConfiguration with an override.
func parseOverride(m proto.Message) (httpfilter.Config, error) {
	route := &routepb.Route{Match: xdsmsg.Prefix("/"), Action: &routepb.Route_Route{Route: xdsmsg.ToCluster("c")}}
	route.TypedPerFilterConfig = map[string]*anypb.Any{"f": xdsmsg.Any(m)}
	value, err := xdsresource.RouteConfigurationType.Decode(xdsmsg.Any(xdsmsg.RouteConfig("r", "*", route)), xdsclient.DecodeOptions{})
	if err != nil {
		return nil, within(err)
	}
	return value.(*xdsresource.RouteConfiguration).VirtualHosts[0].Routes[0].Overrides["f"].Config, nil
}

func within(err error) error {
	_, inside, _ := strings.Cut(err.Error(), `filter "f": `)
	return errors.New(strings.ReplaceAll(inside, "\u00a0", " "))
}

const extension = "typed_config{[type.googleapis.com/"

// macro is the innermost use of what scripts write for a typed configuration.
var macro = regexp.MustCompile(`\$(\w+)\(([^()]*)\)`)

// expand replaces the macros in a text.
func expand(t testing.TB, text string) string {
	t.Helper()
	replace := func(use string) string {
		m := macro.FindStringSubmatch(use)
		arg := m[2]
		switch m[1] {
		case "header":
			return fmt.Sprintf(`input{%senvoy.type.matcher.v3.HttpRequestHeaderMatchInput]{header_name:%q}}}`, extension, arg)
		case "attributes":
			return "input{" + extension + "xds.type.matcher.v3.HttpAttributesCelMatchInput]{}}}"
		case "is":
			name, value, _ := strings.Cut(arg, "=")
			return fmt.Sprintf(`single_predicate{$header(%s) value_match{exact:%q}}`, name, value)
		case "skip":
			return "action{" + extension + "envoy.extensions.filters.common.matcher.action.v3.SkipFilter]{}}}"
		case "execute":
			return "action{" + extension + "envoy.extensions.filters.http.composite.v3.ExecuteFilterAction]{" + arg + "}}}"
		case "run":
			var filters string
			for name := range strings.FieldsSeq(arg) {
				filters += "typed_config{$filter(" + name + ")}"
			}
			return "$execute(filter_chain{" + filters + "})"
		case "closing":
			return fmt.Sprintf(`name:%q %sxds.type.v3.TypedStruct]{type_url:"test.Closing"}}`, arg, extension)
		case "filter":
			return fmt.Sprintf(`name:%q %sxds.type.v3.TypedStruct]{type_url:"test.Filter" value{fields{key:"Name" value{string_value:%[1]q}}}}}`, arg, extension)
		case "router", "rbac", "cors":
			name := map[string]string{"router": "router.v3.Router", "rbac": "rbac.v3.RBAC", "cors": "cors.v3.Cors"}[m[1]]
			return fmt.Sprintf(`name:%q %senvoy.extensions.filters.http.%s]{}}`, m[1], extension, name)
		case "composite":
			return fmt.Sprintf(`name:"inner" %senvoy.extensions.common.matching.v3.ExtensionWithMatcher]{extension_config{%[1]senvoy.extensions.filters.http.composite.v3.Composite]{}}} xds_matcher{%s}}}`, extension, arg)
		}
		t.Fatalf("what is %q?", use)
		return ""
	}
	for macro.MatchString(text) {
		text = macro.ReplaceAllStringFunc(text, replace)
	}
	return text
}
