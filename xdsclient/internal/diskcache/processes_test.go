package diskcache

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// A file that cannot be replaced stays, unless something was refused: then it is emptied. Nothing else is left.
func TestFileThatCannotBeReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secured := resource("b", now)
	secured.Secured = true
	write(t, dir, now, resource("a", now))
	c := New(dir, fingerprint, time.Hour)
	obstacle := c.mark()
	xdstest.NoError(t, os.MkdirAll(filepath.Join(obstacle, "taken"), 0o700))
	size := func() int64 {
		info, err := os.Stat(c.Path())
		xdstest.NoError(t, err)
		return info.Size()
	}
	if _, err := c.Write(entries([]Record{secured}), false, now); err == nil || errors.Is(err, ErrRemoved) || size() == 0 {
		t.Errorf("got %v, and a file of %d bytes", err, size())
	}
	if _, err := c.Write(entries([]Record{secured}), true, now); !errors.Is(err, ErrRemoved) || size() != 0 {
		t.Errorf("something is refused: got %v, and a file of %d bytes", err, size())
	}
	xdstest.NoError(t, os.RemoveAll(obstacle))
	if files, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(files) > 0 {
		t.Errorf("%v are left", files)
	}
	write(t, dir, now.Add(1), secured)
	xdstest.Equal(t, "the records", []Record{secured}, load(t, dir, now.Add(1)))
}

// Files that nobody writes any more go, and nothing else.
func TestPrune(t *testing.T) {
	t.Parallel()
	dir, own := t.TempDir(), "dynxds-"+fingerprint[:32]
	age := func(name string, age time.Duration) {
		xdstest.NoError(t, os.Chtimes(filepath.Join(dir, name), now.Add(-age), now.Add(-age)))
	}
	for name, old := range map[string]time.Duration{
		"dynxds-old.0.resources": abandoned + time.Hour, "dynxds-old.tls": abandoned + time.Hour, "dynxds-new.0.resources": abandoned,
		own + ".tls": abandoned + time.Hour, "mine": 2 * abandoned, own + ".1.tmp": unfinished + time.Second, own + ".2.tmp": unfinished,
	} {
		xdstest.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("1\n"), 0o600))
		age(name, old)
	}
	xdstest.NoError(t, os.Mkdir(filepath.Join(dir, "dynxds-dir"), 0o700))
	age("dynxds-dir", 2*abandoned)
	write(t, dir, now, resource("a", now))
	names := func() (names []string) {
		files, _ := os.ReadDir(dir)
		for _, e := range files {
			names = append(names, e.Name())
		}
		return names
	}
	xdstest.Equal(t, "the files", []string{own + ".2.tmp", own + ".resources", own + ".tls", "dynxds-dir", "dynxds-new.0.resources", "mine"}, names())
	if info, err := os.Stat(filepath.Join(dir, own+".tls")); err != nil || now.Sub(info.ModTime()) > 0 {
		t.Errorf("the time of TLS is not kept as young as its file: %v, %v", info.ModTime(), err)
	}
	for i := range maxFiles { // beside three of the program
		name := fmt.Sprintf("dynxds-%04d", i)
		xdstest.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		age(name, time.Duration(maxFiles-i)*time.Minute)
	}
	write(t, dir, now, resource("a", now))
	xdstest.Equal(t, "the last of many files", []string{"dynxds-1023", "dynxds-dir", "mine"}, names()[maxFiles-1:])
}

// childDir has a process of TestProcesses write in that directory.
const childDir = "DISKCACHE_TEST_DIR"

// Processes that write at the same time do not spoil each other's files: a reader always finds a whole view of
// one of them.
func TestProcesses(t *testing.T) {
	const processes, writes = 4, 20
	if dir := os.Getenv(childDir); dir != "" {
		c := New(dir, fingerprint, time.Hour)
		name := fmt.Sprint(os.Getpid())
		for range writes {
			if _, err := c.Write(entries([]Record{resource(name, now), resource(name+"-too", now)}), false, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	dir := t.TempDir()
	write(t, dir, now, resource("a", now), resource("a-too", now))
	done := make(chan error, processes)
	for range processes {
		child := exec.Command(os.Args[0], "-test.run=^TestProcesses$")
		child.Env = append(os.Environ(), childDir+"="+dir)
		go func() {
			out, err := child.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			done <- err
		}()
	}
	for left := processes; left > 0; {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			left--
		default:
			if got := load(t, dir, now); len(got) != 2 || got[1].Name != got[0].Name+"-too" {
				t.Fatalf("got %v", got)
			}
		}
	}
}
