package main

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// tree is the Go code of the repository.
type tree struct {
	modules map[string]bool // folders with a go.mod, relative to the root
	folders map[string]room // by folder, relative to the root
}

// read counts the lines of all modules under the root. Go's tools see no folders named testdata, and none that begin with
// a dot or an underscore.
func read(root string) (*tree, error) {
	t := &tree{modules: map[string]bool{}, folders: map[string]room{}}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return filepath.SkipDir
			}
			return nil
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		if name == "go.mod" {
			t.modules[folder] = true
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		code, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines, found := lines(code), t.folders[folder]
		if strings.HasSuffix(name, "_test.go") {
			found.tests += lines
		} else {
			found.code += lines
		}
		t.folders[folder] = found
		return nil
	})
	return t, err
}

// moduleOf returns the module of a folder.
func (t *tree) moduleOf(folder string) string {
	for folder != "." && !t.modules[folder] {
		folder = filepath.Dir(folder)
	}
	return folder
}

// roomOf returns the room of a module that a folder is in: the module's folder itself, or one in it, or if that
// has no code, as "internal", one deeper.
func (t *tree) roomOf(module, folder string) string {
	within, err := filepath.Rel(module, folder)
	if err != nil || within == "." {
		return module
	}
	elements := strings.SplitN(filepath.ToSlash(within), "/", 3)
	room := filepath.Join(module, elements[0])
	if _, hasCode := t.folders[room]; !hasCode && len(elements) > 1 {
		room = filepath.Join(room, elements[1])
	}
	return room
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
	count, last := 0, 0
	for {
		pos, kind, text := s.Scan()
		if kind == token.EOF {
			return count
		}
		if kind == token.SEMICOLON && text == "\n" {
			continue // a newline, which no one wrote as a semicolon
		}
		first := file.Line(pos)
		end := first + strings.Count(text, "\n")
		count += end - max(first, last+1) + 1
		last = max(last, end)
	}
}
