package folder_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/folder"
)

// dir is a folder of a test.
type dir struct {
	t    *testing.T
	path string
}

// newDir returns a folder with files, each by its name and its text.
func newDir(t *testing.T, files ...string) dir {
	d := dir{t, t.TempDir()}
	for i := 0; i < len(files); i += 2 {
		d.write(files[i], files[i+1])
	}
	return d
}

func (d dir) write(name, text string) {
	d.t.Helper()
	cmdtest.Write(d.t, d.path, name, text)
}

func (d dir) remove(name string) {
	d.t.Helper()
	xdstest.NoError(d.t, os.RemoveAll(filepath.Join(d.path, name)))
}

// content reads the folder, which is valid.
func (d dir) content() *folder.Content {
	d.t.Helper()
	return read(d.t, folder.New(d.path))
}

// rejected fails the test unless reading the folder fails, with the texts in the error. what says what is in it.
func (d dir) rejected(what string, texts ...string) {
	d.t.Helper()
	_, err := folder.New(d.path).Read()
	cmdtest.ErrorHas(d.t, what, err, texts...)
}

// read reads a valid folder.
func read(t *testing.T, r *folder.Reader) *folder.Content {
	t.Helper()
	c, err := r.Read()
	xdstest.NoError(t, err)
	return c
}

const (
	frontend = "kind: Service\nname: frontend\n"
	backend  = "kind: Service\nname: backend\nendpoints: [{address: 10.0.0.1:8080}]\n"
)

func TestIgnoresOtherFiles(t *testing.T) {
	t.Parallel()
	d := newDir(t)
	d.write("a.yaml", frontend)
	d.write("b.yml", "kind: Service\nname: b\n")
	d.write("c.json", `{"kind": "Service", "name": "c"}`)
	d.write("notes.txt", "kind: nonsense")
	d.write(".hidden.yaml", "kind: nonsense")
	xdstest.NoError(t, os.Mkdir(filepath.Join(d.path, "folder.yaml"), 0o700))
	c := d.content()
	xdstest.Equal(t, "services and files", [2]int{3, 3}, [2]int{len(c.Services), c.Files})
}

// The content of an unchanged folder or file stays the same pointer.
func TestReadsOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	d := newDir(t, "a.yaml", frontend, "b.yaml", backend)
	r := folder.New(d.path)
	first := read(t, r)
	if second := read(t, r); second != first {
		t.Error("nothing changed, and the content is another one")
	}
	// The same text written again, with another time, is no change.
	d.write("a.yaml", frontend)
	later := time.Now().Add(time.Hour)
	xdstest.NoError(t, os.Chtimes(filepath.Join(d.path, "a.yaml"), later, later))
	if second := read(t, r); second != first {
		t.Error("the text did not change, and the content is another one")
	}
	d.write("b.yaml", strings.Replace(backend, "10.0.0.1", "10.0.0.2", 1))
	changed := read(t, r)
	xdstest.Equal(t, "address", "10.0.0.2:8080", changed.Services[1].Endpoints[0].Address)
	if changed.Services[0] != first.Services[0] {
		t.Error("the service of the file that did not change is another one")
	}
	d.remove("b.yaml")
	if c, err := r.Settled(t.Context()); err != nil || len(c.Services) != 1 {
		t.Errorf("got %v, %v after the deletion of a file, want 1 service", c, err)
	}
}

// A change is noticed even if it keeps the size and the time.
func TestNoticesAChangeThatTheClockMisses(t *testing.T) {
	t.Parallel()
	d := newDir(t)
	path, written := filepath.Join(d.path, "a.yaml"), time.Now().Add(-time.Hour) // as archives may have it
	write := func(name string) {
		d.inPlace("a.yaml", "kind: Service\nname: "+name+"\n")
		xdstest.NoError(t, os.Chtimes(path, written, written))
	}
	r := folder.New(d.path)
	for _, name := range []string{"aa", "bb", "cc"} {
		write(name)
		xdstest.Equal(t, "service", name, names(t, r))
	}
}

// The error has the mistakes of all files, and is the same value until something changes.
func TestReportsEveryFault(t *testing.T) {
	t.Parallel()
	d := newDir(t, "a.yaml", "name: a", "b.yaml", "kind: Nonsense")
	r := folder.New(d.path)
	_, err := r.Read()
	var faults *document.Faults
	if !errors.As(err, &faults) {
		t.Fatalf("got error %v, want faults", err)
	}
	cmdtest.ErrorHas(t, "Read", err, "a.yaml:1: the document has no kind", "b.yaml:1")
	if _, again := r.Read(); again != err {
		t.Error("nothing changed, and the error is another one")
	}
}

func TestARepairedFolderIsValid(t *testing.T) {
	t.Parallel()
	d := newDir(t, "a.yaml", "name: a", "b.yaml", "kind: Nonsense")
	r := folder.New(d.path)
	if _, err := r.Read(); err == nil {
		t.Fatal("a faulty folder is accepted")
	}
	d.write("a.yaml", frontend)
	d.remove("b.yaml")
	if c, err := r.Settled(t.Context()); err != nil || len(c.Services) != 1 {
		t.Errorf("got %v, %v of the repaired folder, want 1 service", c, err)
	}
}

func TestAFolderThatComesLater(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mesh")
	r := folder.New(path)
	_, err := r.Read()
	if want := "there is no folder " + path; err == nil || err.Error() != want {
		t.Fatalf("got error %v, want %s", err, want)
	}
	if _, again := r.Read(); again != err {
		t.Error("nothing changed, and the error is another one")
	}
	xdstest.NoError(t, os.Mkdir(path, 0o700))
	dir{t, path}.write("a.yaml", frontend)
	xdstest.Equal(t, "services", 1, len(read(t, r).Services))
}

func TestOnlyRegularFilesAreRead(t *testing.T) {
	t.Parallel()
	d := newDir(t, "a.yaml", "kind: Servce")
	if err := os.Symlink(os.DevNull, filepath.Join(d.path, "b.yaml")); err != nil {
		t.Skipf("no links: %v", err)
	}
	r := folder.New(d.path)
	_, err := r.Read()
	cmdtest.ErrorHas(t, "Read", err, "b.yaml is not a regular file", `did you mean "Service"?`)
	d.write("a.yaml", frontend)
	d.remove("b.yaml")
	xdstest.NoError(t, os.Symlink("b.yaml", filepath.Join(d.path, "b.yaml")))
	_, err = r.Read()
	cmdtest.ErrorHas(t, "Read", err, filepath.Join(d.path, "b.yaml")+": too many levels of symbolic links")
	d.remove("b.yaml")
	if c, err := r.Settled(t.Context()); err != nil || len(c.Services) != 1 {
		t.Errorf("got %v, %v, want 1 service", c, err)
	}
}

func TestAFileThatIsTooLarge(t *testing.T) {
	t.Parallel()
	d := newDir(t, "a.yaml", "kind: Nonsense", "b.yaml", "# "+strings.Repeat("a", document.MaxSize))
	d.rejected("Read", "a.yaml:1", "b.yaml: the file has")
}
