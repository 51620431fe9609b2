package folder

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The links of a ConfigMap, and of git-sync, replace many files at once: one link is renamed over another one. Files that
// appear in such a way count together, at once, as do those that disappear.
//
//	mesh/..data -> ..2026_07_01           a ConfigMap: the kubelet makes a new folder beside this one, renames a link to it
//	mesh/a.yaml -> ..data/a.yaml          over ..data, and then adds and deletes the links of single files
//
//	mesh -> .worktrees/4f2a/mesh          git-sync: mesh, or a folder above it, is the link

// maxSwaps bounds the swaps during one look.
const maxSwaps = 10

// dataLink leads to the files of a ConfigMap, and of other volumes that the kubelet writes.
const dataLink = "..data"

// place is where a look finds the files of a folder: in the folder itself, and where its dataLink leads, if it has one. Both
// are paths without links; they are empty for what is not there.
type place struct{ folder, data string }

func placeOf(dir string) (p place) {
	var err error
	if p.folder, err = filepath.EvalSymlinks(dir); err != nil {
		return place{} // list has the error
	}
	link := filepath.Join(p.folder, dataLink)
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return p
	}
	if p.data, err = filepath.EvalSymlinks(link); err != nil {
		p.data = ""
	}
	return p
}

// isSwapped reports whether links lead elsewhere than at the last look, whose place is zero if there was none. At the first
// look only a ConfigMap is known to be complete.
func (p place) isSwapped(last place) bool {
	return p != last && (p.data != "" || last != place{})
}

// list returns the paths of the files to read, by name. dir is how the folder is called.
func (p place) list(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(cmp.Or(p.folder, dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no folder %s", dir)
	case errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("%s is not a folder; name the folder that has the files", dir)
	case err != nil:
		return nil, err
	}
	paths := make(map[string]string, len(entries))
	for _, e := range entries {
		path := filepath.Join(cmp.Or(p.folder, dir), e.Name())
		if IsName(e.Name()) && (p.data == "" || !leadsToData(e, path)) {
			paths[e.Name()] = path
		}
	}
	if p.data == "" {
		return paths, nil
	}
	entries, err = os.ReadDir(p.data)
	for _, e := range entries {
		if IsName(e.Name()) && paths[e.Name()] == "" {
			paths[e.Name()] = filepath.Join(p.data, e.Name())
		}
	}
	return paths, err
}

// Unread returns the names of the files in a folder that are not read because of their extension.
func Unread(dir string) (names []string) {
	entries, _ := os.ReadDir(dir) // Read has the error
	for _, e := range entries {
		if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !IsName(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

// leadsToData reports whether an entry of the folder is the kubelet's link to a file of the same name.
func leadsToData(e os.DirEntry, path string) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return false
	}
	target, err := os.Readlink(path)
	return err == nil && target == filepath.Join(dataLink, e.Name())
}

// IsName reports whether a file of this name is read: its extension is .yaml, .yml or .json, and it is
// neither hidden nor in a folder.
func IsName(name string) bool {
	if strings.HasPrefix(name, ".") || strings.Contains(name, "/") {
		return false
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}
