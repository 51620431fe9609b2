package folder_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// writeConfigMap makes dir show these files and no others, by the steps of the kubelet (AtomicWriter in Kubernetes'
// pkg/volume/util), and calls step after each.
func writeConfigMap(t testing.TB, dir string, files map[string]string, step func()) {
	t.Helper()
	xdstest.NoError(t, os.MkdirAll(dir, 0o700))
	data := filepath.Join(dir, "..data")
	former, err := os.Readlink(data)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	next := writeRevision(t, dir, "..2026_", files, step)
	renameLink(t, filepath.Base(next), data, step)
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); !os.IsExist(err) {
			xdstest.NoError(t, err)
		}
		step()
	}
	if former == "" {
		return
	}
	entries, err := os.ReadDir(filepath.Join(dir, former))
	xdstest.NoError(t, err)
	for _, e := range entries {
		if _, stays := files[e.Name()]; !stays {
			xdstest.NoError(t, os.Remove(filepath.Join(dir, e.Name())))
		}
		step()
	}
	xdstest.NoError(t, os.RemoveAll(filepath.Join(dir, former)))
	step()
}

// gitSync makes dir, which is a link, show these files and no others, by the steps of git-sync, and calls step after each.
func gitSync(t testing.TB, dir string, files map[string]string, step func()) {
	t.Helper()
	root := filepath.Dir(dir)
	former, err := os.Readlink(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	next := writeRevision(t, root, "worktree-", files, step)
	renameLink(t, filepath.Base(next), dir, step)
	if former != "" {
		xdstest.NoError(t, os.RemoveAll(filepath.Join(root, former)))
		step()
	}
}

// writeRevision writes files into a new folder, and returns its path.
func writeRevision(t testing.TB, dir, prefix string, files map[string]string, step func()) (path string) {
	t.Helper()
	path, err := os.MkdirTemp(dir, prefix)
	xdstest.NoError(t, err)
	step()
	for name, text := range files {
		xdstest.NoError(t, os.WriteFile(filepath.Join(path, name), []byte(text), 0o600))
		step()
	}
	return path
}

// renameLink renames a link to a target over another link.
func renameLink(t testing.TB, target, link string, step func()) {
	t.Helper()
	xdstest.NoError(t, os.Symlink(target, link+"_tmp"))
	step()
	xdstest.NoError(t, os.Rename(link+"_tmp", link))
	step()
}
