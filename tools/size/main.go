// Command size prints how many lines of Go the repository has by module and room, and its sums. It fails if a sum is above
// its ceiling. A line counts if it has a token that is not a comment; files that are generated do not count.
//
//	cd tools && go run ./size -C .. -plugin 42600 -other 44000 -tests 111600 -words 88000
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// sum is what a ceiling is for.
type sum struct {
	flag, what   string
	now, ceiling int
}

// The sums in the order in which they are printed.
var (
	plugin = sum{flag: "plugin", what: "code of the plugin"}
	other  = sum{flag: "other", what: "all other code"}
	tests  = sum{flag: "tests", what: "tests"}
	words  = sum{flag: "words", what: "words of docs, README and CHANGELOG"}
	sums   = []*sum{&plugin, &other, &tests, &words}
)

func main() {
	dir := flag.String("C", ".", "the repository's folder")
	for _, s := range sums {
		flag.IntVar(&s.ceiling, s.flag, 0, "ceiling of: "+s.what)
	}
	flag.Parse()
	modules, err := read(*dir)
	if err == nil {
		modules.print()
		err = check()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

// size is the lines of a room, or of a module.
type size struct{ code, tests int }

// modules are the rooms by module. A room is the module's folder itself, or a folder in it, or in its folder "internal".
type modules map[string]map[string]*size

// read counts what the files under the root have. Go's tools see no folders named testdata, and none that begin with
// a dot or an underscore.
func read(root string) (modules, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	list := exec.Command("go", "list", "-deps", "-f", "{{.Dir}}", ".")
	list.Dir, list.Stderr = root, os.Stderr
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -deps in %s: %v", root, err)
	}
	linked := strings.Split(string(output), "\n") // by a program that imports the plugin
	all, moduleOf := modules{}, map[string]string{}
	err = fs.WalkDir(os.DirFS(root), ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, folder := entry.Name(), path.Dir(file)
		if entry.IsDir() {
			if file != "." && (name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return fs.SkipDir
			}
			moduleOf[file] = moduleOf[folder]
			if _, err := os.Stat(filepath.Join(root, file, "go.mod")); err == nil {
				moduleOf[file] = file
			}
			return nil
		}
		isPage := strings.HasPrefix(file, "docs/") && strings.HasSuffix(name, ".md") || file == "README.md" || file == "CHANGELOG.md"
		if !isPage && !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if isPage {
			words.now += len(bytes.Fields(text))
			return err
		}
		n, room := lines(text), all.room(moduleOf[folder], folder)
		switch {
		case strings.HasSuffix(name, "_test.go"):
			room.tests += n
			tests.now += n
		case slices.Contains(linked, filepath.Join(root, folder)):
			room.code += n
			plugin.now += n
		default:
			room.code += n
			other.now += n
		}
		return err
	})
	return all, err
}

// room returns the room of a module that a folder is in.
func (m modules) room(module, folder string) *size {
	within, isIn := strings.CutPrefix(folder, module+"/")
	if module == "." {
		within, isIn = folder, folder != "."
	}
	name := module
	if isIn {
		parts := strings.SplitN(within, "/", 3)
		if name = path.Join(module, parts[0]); parts[0] == "internal" && len(parts) > 1 {
			name = path.Join(name, parts[1])
		}
	}
	if m[module] == nil {
		m[module] = map[string]*size{}
	}
	if m[module][name] == nil {
		m[module][name] = new(size)
	}
	return m[module][name]
}

// print writes a table of modules and rooms.
func (m modules) print() {
	fmt.Println("    code    tests")
	for _, module := range slices.Sorted(maps.Keys(m)) {
		var of size
		for _, room := range m[module] {
			of = size{of.code + room.code, of.tests + room.tests}
		}
		fmt.Printf("%8d %8d  module %s\n", of.code, of.tests, module)
		for _, name := range slices.Sorted(maps.Keys(m[module])) {
			fmt.Printf("%8d %8d    %s\n", m[module][name].code, m[module][name].tests, name)
		}
	}
}

// check prints the sums, and returns an error that names those above their ceiling.
func check() error {
	var above []error
	for _, s := range sums {
		fmt.Printf("%8d  %s; its ceiling is %d\n", s.now, s.what, s.ceiling)
		if s.now > s.ceiling {
			above = append(above, fmt.Errorf("  %s: %d, %d above its ceiling", s.what, s.now, s.now-s.ceiling))
		}
	}
	if above != nil {
		return fmt.Errorf("ceilings (SIZE_… in the Makefile) go down, and rise only for a feature that was asked for:\n%w", errors.Join(above...))
	}
	return nil
}

// lines returns how many lines of a Go file have a token that is not a comment, 0 if it is generated. All lines of a raw string count.
func lines(code []byte) int {
	files := token.NewFileSet()
	if file, err := parser.ParseFile(files, "", code, parser.PackageClauseOnly|parser.ParseComments); err == nil && ast.IsGenerated(file) {
		return 0
	}
	file := files.AddFile("", -1, len(code))
	var s scanner.Scanner
	s.Init(file, code, nil, 0)
	counted := map[int]bool{}
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			return len(counted)
		}
		if kind == token.SEMICOLON && text == "\n" {
			continue // a newline, which no one wrote as a semicolon
		}
		for i := range 1 + strings.Count(text, "\n") {
			counted[file.Line(pos)+i] = true
		}
	}
}
