package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A file finds nothing that the file before it left, but for programs.
func TestFill(t *testing.T) {
	t.Chdir("../..")
	clone := t.TempDir()
	for name, mode := range map[string]os.FileMode{
		"bin/program": 0o755, "bin/log": 0o644, "bin/folder/program": 0o755, "left": 0o755, "docs/left.md": 0o644, "README.md": 0o644,
	} {
		path := filepath.Join(clone, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := fill(clone); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bin/log", "bin/folder", "left", "docs/left.md"} {
		if _, err := os.Stat(filepath.Join(clone, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	for _, name := range []string{"bin/program", "docs/internals/architecture.md", "tools/doccheck/main.go"} {
		if _, err := os.Stat(filepath.Join(clone, name)); err != nil {
			t.Error(err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(clone, "README.md")); err != nil || len(text) == 0 {
		t.Errorf("README.md is not the repository's: %q, %v", text, err)
	}
}
