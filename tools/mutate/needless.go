package main

import (
	"cmp"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
)

// fateByAll runs all tests that reach a mutant, and notes which of them kill it.
func (m *mutation) fateByAll(ctx context.Context, x mutant) fate {
	all := survived
	for _, p := range m.programs {
		if f := m.noteKillers(ctx, x, m.reaching(p, x)); f != survived {
			all = f
		}
	}
	return all
}

// noteKillers runs tests of one program. A mutant that ends the program cuts other tests off, which are run one at a time
// then. Where a test never ends, they are not: a test may seem to kill less than it does, but never more.
func (m *mutation) noteKillers(ctx context.Context, x mutant, tests []*test) fate {
	if len(tests) == 0 || ctx.Err() != nil {
		return survived
	}
	output, f := m.runWith(ctx, x, tests)
	if f == survived {
		return f
	}
	passed, failed := endsOf(output)
	var cutOff []*test
	m.mu.Lock()
	for _, t := range tests {
		switch {
		case failed[t.name], len(tests) == 1:
			t.killed[x.n] = true
		case !passed[t.name]:
			cutOff = append(cutOff, t)
		}
	}
	m.mu.Unlock()
	if f == died {
		for _, t := range cutOff {
			m.noteKillers(ctx, x, []*test{t})
		}
	}
	return f
}

var (
	endLine = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+) `)
	// runningLine is a line of what the testing package prints when time is up.
	runningLine = regexp.MustCompile(`(?m)^\t([^\s/]+)\S* \([\d.]+m?s\)$`)
)

// endsOf returns the names of the tests that passed, and of those that failed or never ended.
func endsOf(output []byte) (passed, failed map[string]bool) {
	passed, failed = map[string]bool{}, map[string]bool{}
	for _, match := range endLine.FindAllSubmatch(output, -1) {
		if string(match[1]) == "FAIL" {
			failed[string(match[2])] = true
		} else {
			passed[string(match[2])] = true
		}
	}
	for _, match := range runningLine.FindAllSubmatch(output, -1) {
		failed[string(match[1])] = true
	}
	return passed, failed
}

// printNeedless prints the tests that could be left out together, the longest first.
func (m *mutation) printNeedless() error {
	type entry struct {
		*test
		place string
		lines int
	}
	var entries []entry
	killers, reachers := map[int]int{}, map[int]int{}
	places := map[*program]map[string]*ast.FuncDecl{}
	fset := token.NewFileSet()
	for _, t := range m.tests {
		if places[t.program] == nil {
			funcs, err := testFuncs(fset, t.program.dir)
			if err != nil {
				return err
			}
			places[t.program] = funcs
		}
		if f := places[t.program][t.name]; f != nil && len(t.reached) > 0 {
			from := f.Pos()
			if f.Doc != nil {
				from = f.Doc.Pos()
			}
			at := fset.Position(f.Pos())
			entries = append(entries, entry{t, fmt.Sprint(filepath.Base(at.Filename), ":", at.Line), fset.Position(f.End()).Line - fset.Position(from).Line + 2})
		}
		for n := range t.killed {
			killers[n]++
		}
		for n := range t.reached {
			reachers[n]++
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(b.lines, a.lines) })
	total := 0
	for _, e := range entries {
		if isNeeded(e.killed, killers) || isNeeded(e.reached, reachers) {
			continue
		}
		fmt.Fprintf(m.out, "%s: needless: %s, %d lines, kills %d that others kill\n", e.place, e.name, e.lines, len(e.killed))
		total += e.lines
		for n := range e.killed {
			killers[n]--
		}
		for n := range e.reached {
			reachers[n]--
		}
	}
	fmt.Fprintf(m.out, "%d lines of tests are needless\n", total)
	return nil
}

// isNeeded reports whether a test is the only one left for a mutant.
func isNeeded(mutants map[int]bool, tests map[int]int) bool {
	for n := range mutants {
		if tests[n] == 1 {
			return true
		}
	}
	return false
}

// testFuncs returns the functions in the test files of a folder, by name.
func testFuncs(fset *token.FileSet, dir string) (map[string]*ast.FuncDecl, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	funcs := map[string]*ast.FuncDecl{}
	for _, path := range paths {
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				funcs[f.Name.Name] = f
			}
		}
	}
	return funcs, nil
}
