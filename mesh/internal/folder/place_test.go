package folder_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/folder"
)

// revisions have the services of each file. Keys are added, removed and renamed, and services move from one to another.
var revisions = []map[string]string{
	{"a.yaml": "a b", "c.yaml": "c"},
	{"a.yaml": "a", "b.yaml": "b d", "c.yaml": "c"},
	{"a.yaml": "a b c"},
	{"z.yaml": "a b c"},
	{"a.yaml": "c", "z.yaml": "b"},
	{"b.yaml": "b c e"},
}

// texts returns the files of a revision, and the names of its services in order.
func texts(revision map[string]string) (files map[string]string, services string) {
	files = make(map[string]string)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(revision)) {
		all = append(all, revision[name])
		for word := range strings.FieldsSeq(revision[name]) {
			files[name] += fmt.Sprintf("kind: Service\nname: %s\n---\n", word)
		}
	}
	return files, strings.Join(all, " ")
}

// swaps are what replaces all files that a folder shows, with a look after each step.
var swaps = map[string]func(testing.TB, string, map[string]string, func()){
	"a ConfigMap": writeConfigMap,
	"git-sync":    gitSync,
}

// A look between any two steps of a swap finds a whole revision, and no error.
func TestASwapCountsAsAWhole(t *testing.T) {
	t.Parallel()
	for name, swap := range swaps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "mesh")
			files, before := texts(revisions[0])
			swap(t, path, files, func() {})
			r := folder.New(path)
			_, err := r.Settled(t.Context())
			xdstest.NoError(t, err)
			for i, revision := range revisions[1:] {
				files, after := texts(revision)
				var found []string
				swap(t, path, files, func() { found = append(found, names(t, r)) })
				want := slices.Compact([]string{before, after})
				if found = slices.Compact(found); !slices.Equal(found, want) {
					t.Fatalf("looks at revision %d found %q, want %q", i+1, found, want)
				}
				before = after
			}
			if _, ok := r.Again(); ok {
				t.Error("all is settled, and there is something to look for again")
			}
		})
	}
}

// Looks at the same time as swaps, too, find whole revisions.
func TestLooksDuringSwaps(t *testing.T) {
	t.Parallel()
	for name, swap := range swaps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "mesh")
			known := make(map[string]bool)
			for _, revision := range revisions {
				_, services := texts(revision)
				known[services] = true
			}
			files, _ := texts(revisions[0])
			swap(t, path, files, func() {})
			r := folder.New(path)
			_, err := r.Settled(t.Context())
			xdstest.NoError(t, err)
			var looking sync.WaitGroup
			ended, looked := make(chan struct{}), make(chan struct{})
			looking.Go(func() {
				for {
					c, err := r.Read()
					if err != nil || !known[namesIn(c)] {
						t.Errorf("a look found %q, which no revision has, error %v", namesIn(c), err)
					}
					select {
					case looked <- struct{}{}:
					case <-ended:
						return
					default:
					}
				}
			})
			defer looking.Wait()
			defer close(ended)
			for i := range 200 {
				files, _ := texts(revisions[i%len(revisions)])
				swap(t, path, files, func() {})
				if i%4 == 0 {
					<-looked // so that no look gives up
				}
			}
		})
	}
}

// Files beside the link of a ConfigMap count as in any folder.
func TestFilesBesideAConfigMap(t *testing.T) {
	t.Parallel()
	config := newDir(t, "b.yaml", "kind: Service\nname: beside\n")
	one, _ := texts(map[string]string{"a.yaml": "a", "b.yaml": "hidden"})
	writeConfigMap(t, config.path, one, func() {})
	r := folder.New(config.path)
	xdstest.Equal(t, "services", "a beside", names(t, r))
}
