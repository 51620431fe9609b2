package main

import (
	"fmt"
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

// conformanceRequest is an ExpectedResponse, of HTTP or of gRPC.
type conformanceRequest struct {
	// list is the name of the variable that has it.
	list string
	// method is the full name of the gRPC method, empty for HTTP.
	method, httpMethod, host, path string
	headers                        map[string]string
	// status is 0 for 200; code is that of gRPC, empty for OK.
	status  int
	code    string
	backend string
	// arrives has the path, host and headers that the backend gets, as far as they are said; absent are headers that it does not get.
	arrivesPath, arrivesHost string
	arrives                  map[string]string
	absent                   []string
	// sets are headers that the backend answers with; gets and lacks are about those that the client gets.
	sets, gets map[string]string
	lacks      []string
	// mirrors get copies, percents of the requests if that is not 0.
	mirrors  []string
	percents int
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
		c.name, _ = r.value(fields["ShortName"]).(string)
		c.manifests = texts(r.value(fields["Manifests"]))
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
	v := r.value(literal).(map[string]any)
	q := conformanceRequest{list: list}
	sent, arrives, response, grpcMetadata := child(v, "Request"), child(v, "ExpectedRequest"), child(v, "Response"), child(v, "RequestMetadata")
	q.httpMethod, _ = sent["Method"].(string)
	q.host, _ = sent["Host"].(string)
	q.path, _ = sent["Path"].(string)
	q.headers = textMap(sent["Headers"])
	if protocol, _ := sent["Protocol"].(string); protocol == "grpc" {
		q.method = echoMethod
	}
	for field, method := range map[string]string{"EchoRequest": "Echo", "EchoTwoRequest": "EchoTwo", "EchoThreeRequest": "EchoThree"} {
		if _, ok := v[field]; ok {
			q.method, q.headers = strings.TrimSuffix(echoMethod, "Echo")+method, textMap(grpcMetadata["Metadata"])
		}
	}
	q.status, _ = response["StatusCode"].(int)
	q.code, _ = response["Code"].(string)
	q.gets, q.lacks = textMap(response["Headers"]), texts(response["AbsentHeaders"])
	q.backend, _ = v["Backend"].(string)
	of := child(arrives, "Request")
	q.arrivesPath, _ = of["Path"].(string)
	q.arrivesHost, _ = of["Host"].(string)
	q.arrives, q.absent = textMap(of["Headers"]), texts(arrives["AbsentHeaders"])
	q.sets = textMap(v["BackendSetResponseHeaders"])
	mirrors, _ := v["MirroredTo"].([]any)
	for _, m := range mirrors {
		m, _ := m.(map[string]any)
		name, _ := child(m, "BackendRef")["Name"].(string)
		q.mirrors = append(q.mirrors, name)
		q.percents, _ = m["Percent"].(int)
	}
	return q
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

func child(v map[string]any, key string) map[string]any {
	of, _ := v[key].(map[string]any)
	return of
}

func texts(v any) (all []string) {
	list, _ := v.([]any)
	for _, e := range list {
		all = append(all, fmt.Sprint(e))
	}
	return all
}

func textMap(v any) map[string]string {
	all := map[string]string{}
	of, _ := v.(map[string]any)
	for key, value := range of {
		all[key] = fmt.Sprint(value)
	}
	return all
}
