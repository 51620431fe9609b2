package main

import (
	"errors"
	"fmt"
	"go/types"
	"maps"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// hidden are the folders whose packages are not offered to other modules.
var hidden = []string{"internal", "proto", "examples", "interop", "tools", "e2e", "meshtest"}

// An api is what a module exports.
type api struct {
	lines    []string // sorted; "path: declaration", path relative to the module
	packages int
	unusable []string // the lines of those that need an internal type
}

// load reads the packages of the module in dir: their types from what the compiler exports, which
// Go's build cache has.
func load(dir string) (api, error) {
	loaded, err := packages.Load(&packages.Config{
		Dir:  dir,
		Mode: packages.NeedName | packages.NeedModule | packages.NeedTypes | packages.NeedImports | packages.NeedExportFile,
	}, "./...")
	if err != nil {
		return api{}, err
	}
	var errs []error
	packages.Visit(loaded, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			errs = append(errs, e)
		}
	})
	if len(errs) > 0 {
		return api{}, errors.Join(errs...)
	}
	var a api
	for _, p := range loaded {
		path := strings.TrimPrefix(strings.TrimPrefix(p.PkgPath, p.Module.Path), "/")
		if p.Name == "main" || isHidden(path) {
			continue
		}
		a.packages++
		a.add(p.Types, p.Module.Path, path)
	}
	slices.Sort(a.lines)
	slices.Sort(a.unusable)
	return a, nil
}

// isHidden reports whether a folder of the path is one of hidden.
func isHidden(path string) bool {
	for folder := range strings.SplitSeq(path, "/") {
		if slices.Contains(hidden, folder) {
			return true
		}
	}
	return false
}

// add lists the declarations of one package, whose path in the module is path.
func (a *api) add(pkg *types.Package, module, path string) {
	if path == "" {
		path = "."
	}
	qualifier := types.RelativeTo(pkg)
	declare := func(object types.Object, text string) {
		line := path + ": " + text
		a.lines = append(a.lines, line)
		if name := internalType(module, object); name != "" {
			a.unusable = append(a.unusable, fmt.Sprintf("%s (%s)", line, name))
		}
	}
	scope := pkg.Scope()
	for _, name := range scope.Names() {
		object := scope.Lookup(name)
		if !object.Exported() {
			continue
		}
		declare(object, describe(object, qualifier))
		if t, ok := object.(*types.TypeName); ok && !t.IsAlias() {
			for _, method := range methods(t) {
				declare(method, types.ObjectString(method, qualifier))
			}
		}
	}
}

// describe returns a declaration as text. Of a struct it leaves out the fields that are
// not exported, as they are no part of the API.
func describe(object types.Object, qualifier types.Qualifier) string {
	text := types.ObjectString(object, qualifier)
	fields, ok := object.Type().Underlying().(*types.Struct)
	if _, isType := object.(*types.TypeName); !isType || !ok || object.(*types.TypeName).IsAlias() {
		return text
	}
	head, _, _ := strings.Cut(text, " struct{")
	var exported []string
	for field := range fields.Fields() {
		if field.Exported() {
			exported = append(exported, field.Name()+" "+types.TypeString(field.Type(), qualifier))
		}
	}
	return head + " struct{" + strings.Join(exported, "; ") + "}"
}

// methods returns the exported methods that are declared on a type.
func methods(t *types.TypeName) []*types.Func {
	named, ok := t.Type().(*types.Named)
	if !ok {
		return nil
	}
	byName := make(map[string]*types.Func)
	for method := range named.Methods() {
		if method.Exported() {
			byName[method.Name()] = method
		}
	}
	sorted := make([]*types.Func, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		sorted = append(sorted, byName[name])
	}
	return sorted
}

// internalType returns the first type of an internal package of the module that the
// parameters and results of a function need, or "". A type that a public package has an
// alias for can be named, and what is in a struct need not be.
func internalType(module string, object types.Object) string {
	w := walker{module: module, seen: make(map[types.Type]bool)}
	if f, ok := object.(*types.Func); ok {
		w.tuple(f.Signature().Params())
		w.tuple(f.Signature().Results())
	}
	return w.found
}

// A walker looks through the parts of a type.
type walker struct {
	module string // the one whose internal types count
	seen   map[types.Type]bool
	found  string
}

// isInternal reports whether no other module can import a package.
func (w *walker) isInternal(path string) bool {
	inner, ours := strings.CutPrefix(path, w.module+"/")
	return ours && slices.Contains(strings.Split(inner, "/"), "internal")
}

func (w *walker) tuple(t *types.Tuple) {
	for v := range t.Variables() {
		w.walk(v.Type())
	}
}

func (w *walker) walk(t types.Type) {
	if w.found != "" || w.seen[t] {
		return
	}
	w.seen[t] = true
	switch t := t.(type) {
	case *types.Alias:
		if pkg := t.Obj().Pkg(); pkg == nil || w.isInternal(pkg.Path()) {
			w.walk(t.Rhs())
		}
	case *types.Named:
		if pkg := t.Obj().Pkg(); pkg != nil && w.isInternal(pkg.Path()) {
			w.found = types.TypeString(t, nil)
		}
	case *types.Pointer:
		w.walk(t.Elem())
	case *types.Slice:
		w.walk(t.Elem())
	case *types.Array:
		w.walk(t.Elem())
	case *types.Chan:
		w.walk(t.Elem())
	case *types.Map:
		w.walk(t.Key())
		w.walk(t.Elem())
	case *types.Signature:
		w.tuple(t.Params())
		w.tuple(t.Results())
	case *types.Interface:
		for method := range t.ExplicitMethods() {
			w.walk(method.Type())
		}
	}
}
