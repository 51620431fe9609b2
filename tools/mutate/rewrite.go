package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// mutant is one change of the code.
type mutant struct {
	n    int
	file string
	line int
	what string
}

// rewriter adds the mutants of one file to its text. It adds no lines, so that an error of the
// compiler leads to the mutants of its line.
type rewriter struct {
	fset    *token.FileSet
	path    string
	source  []byte
	next    int // the number of the next mutant
	wanted  func(from, to int) bool
	mutants []mutant
	edits   []edit
}

// edit is text that comes before the byte at the offset. Of edits at one offset those that
// close come first, the inner ones of them before the outer; then those that open, the outer
// ones first.
type edit struct {
	offset int
	opens  bool
	size   int // of the code that the edit is about
	text   string
}

// rewrite returns the file with mutants of the code whose lines, from first to last, are wanted, whose numbers begin with first.
func rewrite(path string, source []byte, first int, wanted func(from, to int) bool) (string, []mutant, error) {
	r := &rewriter{fset: token.NewFileSet(), path: path, source: source, next: first, wanted: wanted}
	file, err := parser.ParseFile(r.fset, path, source, parser.SkipObjectResolution)
	if err != nil {
		return "", nil, err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			ast.Inspect(f.Body, r.visit)
		}
	}
	slices.SortStableFunc(r.edits, func(a, b edit) int {
		switch {
		case a.offset != b.offset:
			return cmp.Compare(a.offset, b.offset)
		case a.opens != b.opens:
			if a.opens {
				return 1
			}
			return -1
		case a.opens:
			return cmp.Compare(b.size, a.size)
		}
		return cmp.Compare(a.size, b.size)
	})
	var out strings.Builder
	at := 0
	for _, e := range r.edits {
		out.Write(source[at:e.offset])
		out.WriteString(e.text)
		at = e.offset
	}
	out.Write(source[at:])
	return out.String(), r.mutants, nil
}

func (r *rewriter) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		r.condition(n.Cond, true)
	case *ast.ForStmt:
		r.condition(n.Cond, false) // An endless loop would take all memory.
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, clause := range n.Body.List {
				for _, e := range clause.(*ast.CaseClause).List {
					r.condition(e, true)
				}
			}
		}
		r.leaveOut(n.Body)
	case *ast.BinaryExpr:
		switch {
		case isLogic(n.Op):
			r.condition(n.X, true)
			r.condition(n.Y, true)
		case swapped(n.Op) != token.ILLEGAL:
			r.boundary(n)
		}
	case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
		r.leaveOut(n)
	case *ast.GenDecl:
		return n.Tok != token.CONST
	}
	return true
}

// condition makes two mutants of an expression that decides.
func (r *rewriter) condition(e ast.Expr, mayBeTrue bool) {
	for {
		p, ok := e.(*ast.ParenExpr)
		if !ok {
			break
		}
		e = p.X
	}
	if e == nil {
		return
	}
	if b, ok := e.(*ast.BinaryExpr); ok && isLogic(b.Op) {
		return // Its operands are mutated.
	}
	text := r.text(e)
	open, end := "(", ")"
	if n, ok := r.add(e, "always false: "+text); ok {
		open, end = fmt.Sprintf("(!mutantOn(%d) && (", n), "))"
	}
	if mayBeTrue {
		if n, ok := r.add(e, "always true: "+text); ok {
			open, end = fmt.Sprintf("(mutantOn(%d) || %s", n, open), end+")"
		}
	}
	r.wrap(e, 1, open, end)
}

// boundary makes a mutant of a comparison: with equality, or without.
func (r *rewriter) boundary(e *ast.BinaryExpr) {
	other := swapped(e.Op)
	n, ok := r.add(e, fmt.Sprintf("%s for %s: %s", other, e.Op, r.text(e)))
	if !ok {
		return
	}
	r.wrap(e, 0, fmt.Sprintf("(mutantOn(%d) && %s %s %s || !mutantOn(%d) && ", n, r.text(e.X), other, r.text(e.Y), n), ")")
}

// leaveOut makes a mutant of each statement of a list that can be left out.
func (r *rewriter) leaveOut(n ast.Node) {
	var list []ast.Stmt
	switch n := n.(type) {
	case *ast.BlockStmt:
		list = n.List
	case *ast.CaseClause:
		list = n.Body
	case *ast.CommClause:
		list = n.Body
	}
	for _, s := range list {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.ExprStmt:
			if isLock(s.X) {
				continue // Only the race detector would see it.
			}
			if isPanic(s.X) {
				continue // A function that ends without a return would not compile.
			}
		case *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt:
			if d, ok := s.(*ast.DeferStmt); ok && isLock(d.Call) {
				continue
			}
		case *ast.BranchStmt:
			if s.Tok == token.GOTO || s.Tok == token.FALLTHROUGH {
				continue
			}
		default:
			continue
		}
		if n, ok := r.add(s, "left out: "+r.text(s)); ok {
			r.wrap(s, 0, fmt.Sprintf("if !mutantOn(%d) { ", n), " }")
		}
	}
}

// add takes note of a mutant, unless its lines are not wanted.
func (r *rewriter) add(n ast.Node, what string) (number int, ok bool) {
	line := r.fset.Position(n.Pos()).Line
	if !r.wanted(line, r.fset.Position(n.End()).Line) {
		return 0, false
	}
	first, _, more := strings.Cut(what, "\n")
	if more {
		first += " …"
	}
	r.mutants = append(r.mutants, mutant{n: r.next, file: r.path, line: line, what: first})
	r.next++
	return r.next - 1, true
}

// wrap puts text around a node. Of two wraps of one node the one with the higher level is outside.
func (r *rewriter) wrap(n ast.Node, level int, open, end string) {
	from, to := r.offset(n.Pos()), r.offset(n.End())
	size := 4*(to-from) + level
	r.edits = append(r.edits, edit{from, true, size, open}, edit{to, false, size, end})
}

func (r *rewriter) offset(p token.Pos) int { return r.fset.Position(p).Offset }

func (r *rewriter) text(n ast.Node) string {
	return string(r.source[r.offset(n.Pos()):r.offset(n.End())])
}

func isLogic(op token.Token) bool { return op == token.LAND || op == token.LOR }

// swapped is the comparison that differs where both sides are equal.
func swapped(op token.Token) token.Token {
	switch op {
	case token.LSS:
		return token.LEQ
	case token.LEQ:
		return token.LSS
	case token.GTR:
		return token.GEQ
	case token.GEQ:
		return token.GTR
	}
	return token.ILLEGAL
}

func isLock(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Lock", "Unlock", "RLock", "RUnlock"}, s.Sel.Name)
}

func isPanic(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	id, ok := call.Fun.(*ast.Ident)
	return ok && id.Name == "panic"
}

// switchFile is the file that mutants call, in a package with so many of them. The program notes
// each mutant that it reaches in the file that MUTANTS_REACHED names. Tests may count allocations,
// so only the first time allocates.
func switchFile(pkg string, mutants int) string {
	return fmt.Sprintf(`package %s

import (
	mutantOS "os"
	mutantConv "strconv"
	mutantAtomic "sync/atomic"
)

var (
	mutantNumber, _ = mutantConv.Atoi(mutantOS.Getenv("MUTANT"))
	mutantsFile, _  = mutantOS.OpenFile(mutantOS.Getenv("MUTANTS_REACHED"), mutantOS.O_APPEND|mutantOS.O_WRONLY, 0)
	mutantsReached  [%d]mutantAtomic.Bool
)

func mutantOn(n int) bool {
	if mutantsFile != nil && !mutantsReached[n].Load() && mutantsReached[n].CompareAndSwap(false, true) {
		_, _ = mutantsFile.WriteString(mutantConv.Itoa(n) + "\n")
	}
	return n == mutantNumber
}
`, pkg, mutants+1)
}
