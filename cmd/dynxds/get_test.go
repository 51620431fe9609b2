package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/cmdtest"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// snapshotOf returns documents, each by its name and text.
func snapshotOf(texts ...string) (s *store.Snapshot, names []string) {
	s = &store.Snapshot{Documents: map[string]store.Document{}}
	for i := 0; i < len(texts); i += 2 {
		s.Documents[texts[i]] = store.Document{Data: []byte(texts[i+1])}
		names = append(names, texts[i])
	}
	return s, names
}

// Files are replaced, so that nobody reads half of one, and those that have the text already are left alone.
func TestDocumentsReplaceFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	before := func(name string) os.FileInfo {
		info, err := os.Stat(filepath.Join(dir, name))
		xdstest.NoError(t, err)
		return info
	}
	cmdtest.Write(t, dir, "a.yaml", "old")
	cmdtest.Write(t, dir, "b.yaml", "same")
	a, b := before("a.yaml"), before("b.yaml")
	s, names := snapshotOf("a.yaml", "new", "b.yaml", "same", "c.yaml", "c")
	xdstest.NoError(t, writeFolder(dir, s, names))
	if os.SameFile(a, before("a.yaml")) {
		t.Error("a changed file was written in place")
	}
	if !os.SameFile(b, before("b.yaml")) {
		t.Error("an unchanged file was replaced")
	}
	onlyHas(t, dir, map[string]string{"a.yaml": "new", "b.yaml": "same", "c.yaml": "c"})
}

// onlyHas fails the test unless a folder has just these files, hidden ones included.
func onlyHas(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	xdstest.NoError(t, err)
	got := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		xdstest.NoError(t, err)
		got[e.Name()] = string(text)
	}
	xdstest.Equal(t, "files", want, got)
}

const fullDiskEnv = "DYNXDS_TEST_FULL_DISK"

// A disk that is full in the midst of the documents leaves all files as they were. The limit on the size of files
// stands for it, in a process of its own.
func TestAFullDiskChangesNoFile(t *testing.T) {
	t.Parallel()
	s, names := snapshotOf("a.yaml", "new", "b.yaml", strings.Repeat("new ", 1<<10))
	if dir := os.Getenv(fullDiskEnv); dir != "" {
		limit := syscall.Rlimit{Cur: 1 << 10, Max: 1 << 10}
		xdstest.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
		cmdtest.ErrorHas(t, "a full disk", writeFolder(dir, s, names), "nothing was written into "+dir, "b.yaml")
		return
	}
	dir := t.TempDir()
	cmdtest.Write(t, dir, "a.yaml", "old")
	cmdtest.Write(t, dir, "b.yaml", "old")
	// Go ignores SIGXFSZ, so that writing fails with EFBIG.
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	again.Env = append(os.Environ(), fullDiskEnv+"="+dir)
	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v:\n%s", err, out)
	}
	onlyHas(t, dir, map[string]string{"a.yaml": "old", "b.yaml": "old"})
}
