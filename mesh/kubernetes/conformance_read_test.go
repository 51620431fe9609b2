package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// This file reads the cases of the Gateway API's conformance module from its source: what they apply, the requests that they make,
// and what they expect. The suite itself needs pods, in which it starts programs.

// conformanceCase is a ConformanceTest.
type conformanceCase struct {
	name      string
	manifests []string
	requests  []conformanceRequest
	// weights are the expected shares of backends, or nil.
	weights map[string]float64
}

// conformanceRequest is an ExpectedResponse, of HTTP or of gRPC, with the fields that are for RPCs.
type conformanceRequest struct {
	// list is the name of the variable that has it, and method the full name of the gRPC method, empty for HTTP.
	list, method string

	Request struct {
		Host, Path, Protocol string
		Headers              map[string]string
	}
	RequestMetadata struct{ Metadata map[string]string }
	// One of these says that it is of gRPC.
	EchoRequest, EchoTwoRequest, EchoThreeRequest any
	// ExpectedRequest is what the backend gets, as far as it is said.
	ExpectedRequest struct {
		Request struct {
			Host, Path string
			Headers    map[string]string
		}
		AbsentHeaders []string
	}
	// Response is what the client gets. A StatusCode of 0 is 200, and an empty Code is OK.
	Response struct {
		StatusCode    int
		Code          string
		Headers       map[string]string
		AbsentHeaders []string
	}
	Backend                   string
	BackendSetResponseHeaders map[string]string
	// MirroredTo get copies, Percent of the requests if that is not 0.
	MirroredTo []struct {
		BackendRef struct{ Name string }
		Percent    int
	}
}

// conformanceReader evaluates the literals of the module.
type conformanceReader struct {
	t      testing.TB
	consts map[string]string
	// locals are the texts that variables of the function have.
	locals map[string]ast.Expr
	// tests are the literals of the cases by the names of their variables.
	tests map[string]map[string]ast.Expr
}

// readConformance returns all cases of the module in a folder, by their short names.
func readConformance(t testing.TB, dir string) map[string]*conformanceCase {
	t.Helper()
	r := &conformanceReader{t: t, consts: map[string]string{}, tests: map[string]map[string]ast.Expr{}}
	for _, pattern := range []string{"utils/suite/*.go", "tests/*.go", "tests/mesh/*.go"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		xdstest.NoError(t, err)
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			text, err := os.ReadFile(path)
			xdstest.NoError(t, err)
			file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
			xdstest.NoError(t, err)
			r.declarations(file)
		}
	}
	all := map[string]*conformanceCase{}
	for _, fields := range r.tests {
		c := &conformanceCase{}
		r.decode(r.value(fields["ShortName"]), &c.name)
		r.decode(r.value(fields["Manifests"]), &c.manifests)
		test := fields["Test"]
		for {
			of, isOther := test.(*ast.SelectorExpr)
			if !isOther {
				break
			}
			test = r.tests[of.X.(*ast.Ident).Name]["Test"]
		}
		if test != nil {
			r.requests(c, test)
		}
		all[c.name] = c
	}
	return all
}

// declarations notes the constants and the cases of a file.
func (r *conformanceReader) declarations(file *ast.File) {
	for _, decl := range file.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			values, ok := spec.(*ast.ValueSpec)
			if !ok || len(values.Values) != len(values.Names) {
				continue
			}
			for i, name := range values.Names {
				switch v := values.Values[i].(type) {
				case *ast.BasicLit:
					if text, err := strconv.Unquote(v.Value); err == nil && general.Tok == token.CONST {
						r.consts[name.Name] = text
					}
				case *ast.CompositeLit:
					if typeName(v.Type) == "ConformanceTest" {
						r.tests[name.Name] = fieldsOf(v)
					}
				}
			}
		}
	}
}

// requests notes the ExpectedResponses in a function, in the order of the text.
func (r *conformanceReader) requests(c *conformanceCase, test ast.Expr) {
	list := ""
	r.locals = map[string]ast.Expr{}
	ast.Inspect(test, func(n ast.Node) bool {
		if assign, ok := n.(*ast.AssignStmt); ok {
			if name, ok := assign.Lhs[0].(*ast.Ident); ok {
				list = name.Name
				if text, ok := assign.Rhs[0].(*ast.BasicLit); ok && text.Kind == token.STRING {
					r.locals[list] = text
				}
			}
		}
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		switch of := literal.Type.(type) {
		case *ast.MapType:
			if typeName(of.Value) == "float64" {
				c.weights = map[string]float64{}
				for key, e := range fieldsOf(literal) {
					share, err := strconv.ParseFloat(e.(*ast.BasicLit).Value, 64)
					xdstest.NoError(r.t, err)
					c.weights[r.named(key)] = share
				}
			}
		case *ast.ArrayType:
			if typeName(of.Elt) == "ExpectedResponse" {
				for _, e := range literal.Elts {
					c.requests = append(c.requests, r.request(list, e.(*ast.CompositeLit)))
				}
				return false
			}
		default:
			if typeName(literal.Type) == "ExpectedResponse" {
				c.requests = append(c.requests, r.request(list, literal))
				return false
			}
		}
		return true
	})
}

func (r *conformanceReader) request(list string, literal *ast.CompositeLit) conformanceRequest {
	q := conformanceRequest{list: list}
	r.decode(r.value(literal), &q)
	if q.Request.Protocol == "grpc" {
		q.method = echoMethod
	}
	for method, of := range map[string]any{"Echo": q.EchoRequest, "EchoTwo": q.EchoTwoRequest, "EchoThree": q.EchoThreeRequest} {
		if of != nil {
			q.method, q.Request.Headers = strings.TrimSuffix(echoMethod, "Echo")+method, q.RequestMetadata.Metadata
		}
	}
	return q
}

// decode fills in what has the values' names. A value of another type, as the name of a variable is, counts as none.
func (r *conformanceReader) decode(values, into any) {
	text, err := json.Marshal(values)
	xdstest.NoError(r.t, err)
	if err := json.Unmarshal(text, into); !errors.As(err, new(*json.UnmarshalTypeError)) {
		xdstest.NoError(r.t, err)
	}
}

// value evaluates an expression: a text, a number, a list, a map of a struct's fields or of a map's keys. Names that are no constants
// of the module are their own values, and what else there may be is nil.
func (r *conformanceReader) value(e ast.Expr) any {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.INT {
			n, err := strconv.Atoi(e.Value)
			xdstest.NoError(r.t, err)
			return n
		}
		text, err := strconv.Unquote(e.Value)
		xdstest.NoError(r.t, err)
		return text
	case *ast.UnaryExpr:
		return r.value(e.X)
	case *ast.Ident:
		if text, ok := r.locals[e.Name]; ok {
			return r.value(text)
		}
		return r.named(e.Name)
	case *ast.CallExpr: // new(int32(20))
		if len(e.Args) == 1 {
			return r.value(e.Args[0])
		}
	case *ast.SelectorExpr:
		return r.named(e.Sel.Name)
	case *ast.CompositeLit:
		fields := fieldsOf(e)
		if _, isList := e.Type.(*ast.ArrayType); isList {
			list := []any{}
			for _, of := range e.Elts {
				list = append(list, r.value(of))
			}
			return list
		}
		values := map[string]any{}
		for key, of := range fields {
			values[key] = r.value(of)
		}
		return values
	}
	return nil
}

func (r *conformanceReader) named(name string) string {
	if text, ok := r.consts[name]; ok {
		return text
	}
	return name
}

// fieldsOf are the values of a literal by the names of fields, or by the texts of keys.
func fieldsOf(literal *ast.CompositeLit) map[string]ast.Expr {
	fields := map[string]ast.Expr{}
	for _, e := range literal.Elts {
		pair, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch key := pair.Key.(type) {
		case *ast.Ident:
			fields[key.Name] = pair.Value
		case *ast.SelectorExpr:
			fields[key.Sel.Name] = pair.Value
		case *ast.BasicLit:
			if text, err := strconv.Unquote(key.Value); err == nil {
				fields[text] = pair.Value
			}
		}
	}
	return fields
}

// typeName is the name of a type, without its package.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
