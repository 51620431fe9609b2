package main

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"
)

func TestSize(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	source.WriteString("package p\ntype small struct{ a, b int }\ntype embedding struct { small; c int }\n")
	source.WriteString("type large struct { " + strings.Repeat("_ int; ", maxFields+1) + "}\n")
	for i := range maxMethods + 1 {
		fmt.Fprintf(&source, "func (small) m%d() {}\n", i)
	}
	source.WriteString("type listed interface { x(); y() }\n")
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "p.go", source.String(), 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := (&types.Config{Importer: importer.Default()}).Check("p", files, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]int{
		"small": {2, maxMethods + 1}, "embedding": {2, 0}, "large": {maxFields + 1, 0}, "listed": {0, 2},
	} {
		if fields, methods := size(p.Scope().Lookup(name).Type()); [2]int{fields, methods} != want {
			t.Errorf("%s has %d fields and %d methods, want %v", name, fields, methods, want)
		}
	}
}
