package cel

import (
	"fmt"
	"strings"
	"testing"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/ext"
	celpb "cel.dev/expr"
	xdstypepb "github.com/cncf/xds/go/xds/type/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/httpfilter/internal/unifiedmatcher"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// Expressions as a control plane checks them: with the attributes as fields of maps, or as variables of their own.
var senders = map[string][]cel.EnvOption{
	"maps": {ext.Strings(), cel.Variable("request", cel.MapType(cel.StringType, cel.DynType)), cel.Variable("xds", cel.DynType), cel.Variable("source", cel.DynType)},
	"names": {ext.Strings(), cel.Variable("request", cel.DynType), cel.Variable("xds", cel.DynType), cel.Variable("source.address", cel.StringType),
		cel.Variable("request.path", cel.StringType), cel.Variable("request.url_path", cel.StringType), cel.Variable("request.host", cel.StringType),
		cel.Variable("request.method", cel.StringType), cel.Variable("request.time", cel.TimestampType),
		cel.Variable("request.headers", cel.MapType(cel.StringType, cel.StringType))},
}

// expression returns an expression in the form of xDS.
func expression(t testing.TB, sender, text string) *xdstypepb.CelExpression {
	t.Helper()
	e, err := cel.NewEnv(senders[sender]...)
	xdstest.NoError(t, err)
	tree, issues := e.Compile(text)
	xdstest.NoError(t, issues.Err())
	checked, err := cel.AstToCheckedExpr(tree)
	xdstest.NoError(t, err)
	raw, err := proto.Marshal(checked)
	xdstest.NoError(t, err)
	canonical := new(celpb.CheckedExpr)
	xdstest.NoError(t, proto.Unmarshal(raw, canonical))
	return &xdstypepb.CelExpression{CelExprChecked: canonical}
}

// gRFC A106 (A106-xds-unified-matcher-and-cel.md of grpc/proposal, pull request 520): each expression holds for an RPC to /pkg.S/M at host with
// metadata, or not ("no"), or is refused with an error.
func TestExpressions(t *testing.T) {
	t.Parallel()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "k", "a", "k", "b", "pattern", "^a", "large", strings.Repeat("ab", 200), "user-agent", "me")
	rpc := &httpfilter.RPC{Method: "/pkg.S/M", Authority: "host"}
	for _, heading := range []struct {
		name  string
		holds map[string]string // "": yes
	}{
		{"CEL: Supported Variables", map[string]string{
			"request.path == '/pkg.S/M'":              "",
			"request.url_path == request.path":        "",
			"request.host == 'host'":                  "",
			"request.method == 'POST'":                "",
			"request.headers['k'] == 'a,b'":           "",
			"request.headers[':authority'] == 'host'": "",
			"request.useragent == 'me'":               "",
			"request.query == ''":                     "",
			"has(request.useragent)":                  "",
			"has(request.referer)":                    "no",
			"request.scheme != ''":                    "no", // not set
			"request.protocol != ''":                  "no",
			"request.time > timestamp(0)":             "no",
			"request.referer == ''":                   "no",
			"request.headers['none'] == ''":           "no",
			"request.headers['none'] != 'x'":          "no",
			"request.size > 0":                        "must be used as one of request.headers",
			"has(request.size)":                       "must be used as one of",
			"'path' in request":                       "must be used as one of",
			"source.address == ''":                    "undeclared reference to 'source",
			"xds.cluster_name == ''":                  "undeclared reference to 'xds'",
		}},
		{"CEL: Supported Functions", map[string]string{
			"size(request.path) == 8":                                       "",
			"request.path.matches('S/.$')":                                  "", // "partially matched"
			"matches(request.path, '^S')":                                   "no",
			"request.path.matches(request.headers['pattern'])":              "no",
			"'abc'.matches(request.headers['pattern'])":                     "",
			"request.path.contains('.S/')":                                  "",
			"request.path.startsWith('/pkg')":                               "",
			"request.path.endsWith('M')":                                    "",
			"timestamp('2026-01-02T00:00:00Z').getFullYear() == 2026":       "",
			"duration('1m') < duration('1h')":                               "",
			"request.method in ['GET', 'POST']":                             "",
			"has(request.headers.k) && !has(request.headers.none)":          "",
			"'k' in request.headers":                                        "",
			"int('1') + 2 == 3 && uint(1) == 1u && double(1) == 1.0":        "",
			"bytes('a') == b'a' && bool('true')":                            "",
			"(1 > 2 || 7 % 4 == 3) && 6 / 2 * 2 - 1 >= 5 && 'a' != 'b'":     "",
			"request.path == '/x' ? request.referer == '' : size('ab') < 3": "",
			"'a'.upperAscii() == 'A'":                                       "undeclared reference to 'upperAscii'",
		}},
		{"CEL: Runtime Restrictions", map[string]string{
			"[1, 2].exists(x, x == 1)": "comprehensions",
			"[1, 2].all(x, x == 1)":    "comprehensions",
			"string(1) == '1'":         "undeclared reference to 'string'",
			"'a' + 'b' == 'ab'":        "no matching overload",
			"b'a' + b'b' == b'ab'":     "no matching overload",
			"[1] + [2] == [1, 2]":      "no matching overload",
			"request.path.matches('" + strings.Repeat("a", 98) + "')":  "no",
			"request.path.matches('" + strings.Repeat("a", 101) + "')": "regex program size 103 exceeds limit of 100",
			"request.path.matches('(')":                                "error parsing regexp",
			"!request.path.matches(request.headers['large'])":          "no", // an error, as the pattern is too large
		}},
		{"Unified Matcher: CelMatcher: the output type must be boolean", map[string]string{
			"request.path":             "must be of type bool",
			"size(request.path)":       "must be of type bool",
			"dyn(request.path) == '/'": "no",
			"dyn(true)":                "must be of type bool",
		}},
	} {
		for text, want := range heading.holds {
			for sender := range senders {
				matches, err := compile(expression(t, sender, text))
				switch got := ""; {
				case err != nil && (want == "" || !strings.Contains(err.Error(), want)):
					t.Errorf("%s: %s, by %s: %v", heading.name, text, sender, err)
				case err == nil:
					if !matches(ctx, rpc) {
						got = "no"
					}
					xdstest.Equal(t, heading.name+": "+text+", by "+sender, want, got)
				}
			}
		}
	}
}

// gRFC A106, "CEL: CelExpression": the forms of expressions.
func TestForms(t *testing.T) {
	t.Parallel()
	checked := expression(t, "maps", "request.path == '/'")
	for name, test := range map[string]struct {
		pb   *xdstypepb.CelExpression
		want string // of the error
	}{
		"cel_expr_checked":          {checked, ""},
		"with ignored ones":         {&xdstypepb.CelExpression{CelExprChecked: checked.CelExprChecked, CelExprParsed: &celpb.ParsedExpr{}}, ""},
		"nothing":                   {new(xdstypepb.CelExpression), "cel_expr_checked: must be set"},
		"cel_expr_parsed":           {&xdstypepb.CelExpression{CelExprParsed: &celpb.ParsedExpr{Expr: checked.CelExprChecked.Expr}}, "cel_expr_checked: must be set"},
		"cel_expr_string":           {&xdstypepb.CelExpression{CelExprString: "true", CelExprChecked: checked.CelExprChecked}, "cel_expr_string: is not supported"},
		"an empty cel_expr_checked": {&xdstypepb.CelExpression{CelExprChecked: new(celpb.CheckedExpr)}, "empty expression"},
		"a call without a name":     {&xdstypepb.CelExpression{CelExprChecked: &celpb.CheckedExpr{Expr: &celpb.Expr{ExprKind: &celpb.Expr_CallExpr{CallExpr: new(celpb.Expr_Call)}}}}, "undeclared reference"},
		"a selection from nothing":  {&xdstypepb.CelExpression{CelExprChecked: &celpb.CheckedExpr{Expr: &celpb.Expr{ExprKind: &celpb.Expr_SelectExpr{SelectExpr: new(celpb.Expr_Select)}}}}, "empty expression"},
	} {
		if _, err := compile(test.pb); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An evaluation has a limit, beyond which the expression does not hold.
func TestCostLimit(t *testing.T) {
	t.Parallel()
	matches, err := compile(expression(t, "names", "!request.headers['k'].contains('b')"))
	xdstest.NoError(t, err)
	for length, want := range map[int]bool{bounds.CELCost: true, 200 * bounds.CELCost: false} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "k", strings.Repeat("a", length))
		xdstest.Equal(t, fmt.Sprintf("a header of %d bytes", length), want, matches(ctx, new(httpfilter.RPC)))
	}
}

// The package is what composite filters compile expressions with.
func TestRegistered(t *testing.T) {
	t.Parallel()
	if unifiedmatcher.CompileCEL == nil {
		t.Error("no package compiles CEL expressions")
	}
}

func BenchmarkExpression(b *testing.B) {
	for name, text := range map[string]string{"path": "request.path.startsWith('/pkg')", "metadata": "request.headers['k'] == 'a'"} {
		b.Run(name, func(b *testing.B) {
			matches, err := compile(expression(b, "names", text))
			xdstest.NoError(b, err)
			ctx, rpc := metadata.AppendToOutgoingContext(b.Context(), "k", "a"), &httpfilter.RPC{Method: "/pkg.S/M"}
			b.ReportAllocs()
			for b.Loop() {
				if !matches(ctx, rpc) {
					b.Fatal("the expression does not hold")
				}
			}
		})
	}
}
