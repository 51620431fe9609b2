package folder_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/folder"
)

// inPlace writes a file in place, as editors and "cp" may do.
func (d dir) inPlace(name, text string) {
	d.t.Helper()
	xdstest.NoError(d.t, os.WriteFile(filepath.Join(d.path, name), []byte(text), 0o600))
}

// names reads a valid folder, and returns the names of its services, in order.
func names(t *testing.T, r *folder.Reader) string {
	t.Helper()
	return namesIn(read(t, r))
}

func namesIn(c *folder.Content) string {
	if c == nil {
		return ""
	}
	var list []string
	for _, s := range c.Services {
		list = append(list, s.Name)
	}
	return strings.Join(list, " ")
}

// settle waits until every change counts. An error that counts then is for the next read to return.
func settle(t *testing.T, r *folder.Reader) {
	t.Helper()
	if _, ok := r.Again(); !ok {
		t.Fatal("nothing is left to settle")
	}
	_, _ = r.Settled(t.Context())
}

// A file that is written in place counts with its last text until two looks find the same.
func TestAHalfWrittenFileDoesNotCount(t *testing.T) {
	t.Parallel()
	const a, b = "kind: Service\nname: a\n", "kind: Service\nname: b\n"
	d := newDir(t, "all.yaml", a+"---\n"+b, "other.yaml", "kind: Service\nname: c\n")
	r := folder.New(d.path)
	xdstest.Equal(t, "services", "a b c", names(t, r))
	file, err := os.OpenFile(filepath.Join(d.path, "all.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
	xdstest.NoError(t, err)
	defer file.Close()
	before := read(t, r)
	for _, part := range []string{"", a, "---\n", b, "---\nkind: Service\nname: d\n"} {
		_, err := file.WriteString(part)
		xdstest.NoError(t, err)
		if c := read(t, r); c != before {
			t.Fatalf("after a part of the file there is another content")
		}
	}
	// Other files do not wait for it.
	d.write("other.yaml", "kind: Service\nname: e\n")
	xdstest.Equal(t, "services before it is settled", "a b e", names(t, r))
	settle(t, r)
	xdstest.Equal(t, "services", "a b d e", names(t, r))
	if _, ok := r.Again(); ok {
		t.Error("all is settled, and there is something to look for again")
	}
}

// A new file, and one that another one replaces after "rm", count once they are settled, as does the end of a file.
func TestFilesThatComeAndGo(t *testing.T) {
	t.Parallel()
	d := newDir(t, "a.yaml", "kind: Service\nname: a\n")
	r := folder.New(d.path)
	names(t, r)
	d.inPlace("b.yaml", "kind: Service\nname: b\n")
	d.remove("a.yaml")
	xdstest.Equal(t, "services", "a", names(t, r))
	d.inPlace("a.yaml", "kind: Service\nname: a2\n")
	xdstest.Equal(t, "services", "a", names(t, r))
	settle(t, r)
	xdstest.Equal(t, "services", "a2 b", names(t, r))
	d.remove("b.yaml")
	xdstest.Equal(t, "services while a deletion is new", "a2 b", names(t, r))
	settle(t, r)
	xdstest.Equal(t, "services", "a2", names(t, r))
	// A file that is there for a moment leaves nothing.
	d.inPlace("c.yaml", "kind: Nonsense")
	xdstest.Equal(t, "services", "a2", names(t, r))
	d.remove("c.yaml")
	xdstest.Equal(t, "services", "a2", names(t, r))
	if _, ok := r.Again(); ok {
		t.Error("nothing is unsettled, and there is something to look for again")
	}
}

// A renamed file counts at once, under its new name only, and so do links that lead to another folder, as those of a
// ConfigMap.
func TestRenamedFilesCountAtOnce(t *testing.T) {
	t.Parallel()
	d := newDir(t, "a.yaml", "kind: Service\nname: a\n", "b.yaml", "kind: Service\nname: b\n")
	r := folder.New(d.path)
	names(t, r)
	xdstest.NoError(t, os.Rename(filepath.Join(d.path, "a.yaml"), filepath.Join(d.path, "z.yaml")))
	xdstest.Equal(t, "services", "b a", names(t, r))
	xdstest.NoError(t, os.Rename(filepath.Join(d.path, "z.yaml"), filepath.Join(d.path, "b.yaml")))
	xdstest.Equal(t, "services", "a", names(t, r))

	config := newDir(t)
	version := func(name, text string) {
		xdstest.NoError(t, os.Mkdir(filepath.Join(config.path, name), 0o700))
		dir{t, filepath.Join(config.path, name)}.inPlace("mesh.yaml", text)
		xdstest.NoError(t, os.Symlink(name, filepath.Join(config.path, ".next")))
		xdstest.NoError(t, os.Rename(filepath.Join(config.path, ".next"), filepath.Join(config.path, "..data")))
	}
	version("..1", "kind: Service\nname: one\n")
	xdstest.NoError(t, os.Symlink(filepath.Join("..data", "mesh.yaml"), filepath.Join(config.path, "mesh.yaml")))
	r = folder.New(config.path)
	xdstest.Equal(t, "services", "one", names(t, r))
	version("..2", "kind: Service\nname: two\n")
	xdstest.Equal(t, "services", "two", names(t, r))
}

// A link that leads nowhere is an error, which says where it leads; a link that is replaced is none.
func TestADanglingLinkIsAFault(t *testing.T) {
	t.Parallel()
	d := newDir(t, "a.yaml", "kind: Service\nname: a\n", "target", "kind: Service\nname: b\n")
	link, target := filepath.Join(d.path, "b.yaml"), filepath.Join(d.path, "target")
	xdstest.NoError(t, os.Symlink(target, link))
	r := folder.New(d.path)
	xdstest.Equal(t, "services", "a b", names(t, r))
	xdstest.NoError(t, os.Remove(target))
	d.inPlace("z.yaml", "kind: Service\nname: z\n") // which the error hides
	xdstest.Equal(t, "services while the link dangles since just now", "a b", names(t, r))
	settle(t, r)
	_, err := r.Read()
	cmdtest.ErrorHas(t, "a dangling link", err, link+" is a link to "+target+", which does not exist")
	if _, again := r.Read(); again != err {
		t.Error("nothing changed, and the error is another one")
	}
	if _, ok := r.Again(); ok {
		t.Error("the fault is known, and there is something to look for again")
	}
	d.write("target", "kind: Service\nname: c\n")
	xdstest.Equal(t, "services", "a c z", names(t, r))

	xdstest.NoError(t, os.Remove(target))
	_, err = folder.New(d.path).Settled(t.Context())
	cmdtest.ErrorHas(t, "a dangling link at the first look", err, "which does not exist: put the file there, or delete the link")
}

// Settled waits for files that are new, and no longer than the context or its patience.
func TestSettled(t *testing.T) {
	t.Parallel()
	d := newDir(t)
	d.inPlace("a.yaml", "kind: Service\nname: a\n")
	c, err := folder.New(d.path).Settled(t.Context())
	if err != nil || len(c.Services) != 1 {
		t.Fatalf("got %v, %v of a new file, want 1 service", c, err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for text := "#\n"; ; text += "#\n" {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				_ = os.WriteFile(filepath.Join(d.path, "b.yaml"), []byte(text), 0o600)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	d.inPlace("b.yaml", "#")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := folder.New(d.path).Settled(ctx); err != context.DeadlineExceeded {
		t.Errorf("got error %v, want that of the context", err)
	}
	_, err = folder.New(d.path).Settled(t.Context())
	cmdtest.ErrorHas(t, "a file that changes all the time", err, "b.yaml never stops changing: write a temporary file and rename it")
}
