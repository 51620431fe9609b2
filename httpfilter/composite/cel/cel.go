// Package cel lets composite filters have CEL expressions in their matcher trees (gRFC A106, "CEL Integration"). Import it for its
// side effect:
//
//	import _ "github.com/dynxds/dynxds/httpfilter/composite/cel"
//
// It is a module of its own, so that programs without it do not depend on cel-go. An expression is a checked one in its canonical
// form (cel_expr_checked), and is checked again. It may use the attributes "request.*" of gRFC A106, and has no comprehensions, string
// conversions or concatenations.
package cel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/env"
	"cel.dev/cel-go/common/types"
	xdstypepb "github.com/cncf/xds/go/xds/type/v3"
	exprpb "google.golang.org/genproto/googleapis/api/expr/v1alpha1"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/httpfilter/internal/attributes"
	"github.com/dynxds/dynxds/httpfilter/internal/unifiedmatcher"
	"github.com/dynxds/dynxds/internal/bounds"
)

func init() { unifiedmatcher.CompileCEL = compile }

// maxRegexSize is the largest size of the program of a regular expression (gRFC A106, "CEL: Runtime Restrictions").
const maxRegexSize = 100

// root is the variable whose fields the attributes are.
const root = "request"

// environment has the variables and functions of gRFC A106, "CEL: Supported Variables" and "CEL: Runtime Restrictions".
var environment = sync.OnceValues(func() (*cel.Env, error) {
	functions := env.NewLibrarySubset().SetDisableMacros(true).AddExcludedFunctions(
		env.NewFunction("string"),
		env.NewFunction("_+_", env.NewOverload("add_string", nil, nil), env.NewOverload("add_bytes", nil, nil), env.NewOverload("add_list", nil, nil)),
	)
	options := []cel.EnvOption{
		cel.StdLib(cel.StdLibSubset(functions)),
		cel.RegexProgramSizeLimit(maxRegexSize),
		cel.Variable(root, cel.MapType(cel.StringType, cel.DynType)), // for has(request.referer)
	}
	for _, name := range attributes.Names() {
		options = append(options, cel.Variable(name, typeOf(name)))
	}
	return cel.NewCustomEnv(options...)
})

func typeOf(attribute string) *cel.Type {
	switch attribute {
	case "request.headers":
		return cel.MapType(cel.StringType, cel.StringType)
	case "request.time":
		return cel.TimestampType
	default:
		return cel.StringType
	}
}

func compile(pb *xdstypepb.CelExpression) (unifiedmatcher.Predicate, error) {
	switch {
	case pb.GetCelExprString() != "":
		return nil, errors.New("cel_expr_string: is not supported")
	case pb.GetCelExprChecked() == nil:
		return nil, errors.New("cel_expr_checked: must be set")
	}
	program, err := programOf(pb.GetCelExprChecked())
	if err != nil {
		return nil, fmt.Errorf("cel_expr_checked: %w", err)
	}
	// An evaluation with an error matches no RPC, as in Envoy.
	return func(ctx context.Context, rpc *httpfilter.RPC) bool {
		value, _, err := program.Eval(activation{attributes.Of(ctx, rpc)})
		return err == nil && value == types.True
	}, nil
}

// programOf checks an expression, whatever its sender has found out of its types, and compiles it.
func programOf(pb proto.Message) (cel.Program, error) {
	e, err := environment()
	if err != nil {
		return nil, err
	}
	// The canonical form is the one of cel-go under another name.
	var checked exprpb.CheckedExpr
	raw, err := proto.Marshal(pb)
	if err != nil {
		return nil, err
	}
	if err := proto.Unmarshal(raw, &checked); err != nil {
		return nil, err
	}
	parsed := cel.ParsedExprToAst(&exprpb.ParsedExpr{Expr: checked.GetExpr(), SourceInfo: checked.GetSourceInfo()})
	if err := restrict(parsed.NativeRep()); err != nil {
		return nil, err
	}
	ours, issues := e.Check(parsed)
	switch {
	case issues.Err() != nil:
		return nil, issues.Err()
	case !ours.OutputType().IsExactType(cel.BoolType):
		return nil, fmt.Errorf("must be of type bool, is of type %v", ours.OutputType())
	}
	return e.Program(ours, cel.CostLimit(bounds.CELCost), cel.EvalOptions(cel.OptOptimize))
}

// restrict refuses what types do not tell: comprehensions, and attributes that do not exist.
func restrict(tree *ast.AST) error {
	var errs []error
	ast.PreOrderVisit(ast.NavigateAST(tree), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.UnspecifiedExprKind:
			errs = append(errs, errors.New("has an empty expression in it"))
		case ast.ComprehensionKind:
			errs = append(errs, errors.New("comprehensions such as exists() and all() are not supported"))
		case ast.IdentKind:
			selected, ok := e.(ast.NavigableExpr).Parent()
			if name := e.AsIdent(); name != root {
				return
			}
			if !ok || selected.Kind() != ast.SelectKind || !slices.Contains(attributes.Names(), root+"."+selected.AsSelect().FieldName()) {
				errs = append(errs, fmt.Errorf("%s must be used as one of %s", root, strings.Join(attributes.Names(), ", ")))
			}
		}
	}))
	return errors.Join(errs...)
}

// activation has the attributes of an RPC as the variables of an expression.
type activation struct{ *attributes.RPC }

func (a activation) ResolveName(name string) (any, bool) {
	if name != root {
		return a.Value(name)
	}
	all := make(map[string]any)
	for _, name := range attributes.Names() {
		if value, ok := a.Value(name); ok {
			all[strings.TrimPrefix(name, root+".")] = value
		}
	}
	return all, true
}

func (activation) Parent() cel.Activation { return nil }
