// Command typesize fails if a type of a module, or of the modules of a workspace, has more than 20 fields or 30 methods:
// such a type is several types. Generated code and tests are not looked at.
//
//	go run ./typesize -C ..
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/types"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

const maxFields, maxMethods = 20, 30

func main() {
	dir := flag.String("C", ".", "the `folder` of the module or workspace")
	flag.Parse()
	large, err := largeTypes(*dir)
	if err == nil && len(large) > 0 {
		err = fmt.Errorf("types with more than %d fields or %d methods:\n%s", maxFields, maxMethods, strings.Join(large, "\n"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "typesize:", err)
		os.Exit(1)
	}
}

// largeTypes returns a line for each type of the modules in dir that is too large.
func largeTypes(dir string) ([]string, error) {
	loaded, err := packages.Load(&packages.Config{
		Dir:  dir,
		Mode: packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps | packages.NeedSyntax | packages.NeedTypesInfo,
	}, "work")
	if err != nil {
		return nil, err
	}
	var large []string
	var errs []error
	for _, p := range loaded {
		for _, e := range p.Errors {
			errs = append(errs, e)
		}
		if strings.Contains(p.PkgPath, "/proto/") {
			continue
		}
		scope := p.Types.Scope()
		for _, name := range scope.Names() {
			declared, ok := scope.Lookup(name).(*types.TypeName)
			if !ok || declared.IsAlias() {
				continue
			}
			if fields, methods := size(declared.Type()); fields > maxFields || methods > maxMethods {
				large = append(large, fmt.Sprintf("%s.%s: %d fields, %d methods", p.PkgPath, name, fields, methods))
			}
		}
	}
	slices.Sort(large)
	return large, errors.Join(errs...)
}

// size counts the fields of a struct, or none, and the methods of a type. Promoted
// ones do not count.
func size(t types.Type) (fields, methods int) {
	if named, ok := t.(*types.Named); ok {
		methods = named.NumMethods()
	}
	switch t := t.Underlying().(type) {
	case *types.Struct:
		fields = t.NumFields()
	case *types.Interface:
		methods = t.NumExplicitMethods()
	}
	return fields, methods
}
