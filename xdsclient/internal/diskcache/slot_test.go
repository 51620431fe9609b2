package diskcache

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// Each process has a file. One that starts reads the one that was written last and can be used, and takes one
// whose process has ended.
func TestSlots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var processes []*Cache
	for i := range MaxSlots {
		c := New(dir, fingerprint, time.Hour)
		if _, err := c.Write(entries([]Record{resource(fmt.Sprint(i), now)}), false, now.Add(time.Duration(i))); err != nil {
			t.Fatal(err)
		}
		xdstest.Equal(t, "the records", []Record{resource(fmt.Sprint(i), now)}, load(t, dir, now))
		processes = append(processes, c)
	}
	further := New(dir, fingerprint, time.Hour)
	if _, err := further.Write(nil, false, now); err == nil || !strings.Contains(err.Error(), "16 processes of the program") {
		t.Errorf("got %v", err)
	}
	xdstest.Equal(t, "the path", further.base()+".*.resources", further.Path())
	if _, err := processes[3].Write(entries([]Record{resource("again", now)}), false, now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	xdstest.Equal(t, "the records", []Record{resource("again", now)}, load(t, dir, now))
	xdstest.NoError(t, os.WriteFile(processes[3].Path(), []byte("spoilt"), 0o600))
	got, faults := New(dir, fingerprint, time.Hour).Load(now)
	if len(faults) != 1 || !strings.Contains(faults[0].Error(), processes[3].Path()) || len(got.Records) != 1 || got.Records[0].Name != fmt.Sprint(MaxSlots-1) {
		t.Errorf("beside a spoilt file: got %v, %v", got, faults)
	}
	processes[5].Close()
	if _, err := processes[7].Write(nil, false, now); err != nil || processes[7].Path() != further.path(7) {
		t.Errorf("beside a slot that is free, process 7 writes %s, %v", processes[7].Path(), err)
	}
	if _, err := further.Write(nil, false, now); err != nil || further.Path() != processes[5].slot.path {
		t.Errorf("got %s, %v", further.Path(), err)
	}
	write(t, t.TempDir(), now, resource("a", now))
}

// What is refused is in no file of a process that has ended, and what such a process left goes with the first
// writing of another one. The files of processes that run stay.
func TestFreeSlotsAreEmptied(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var processes []*Cache
	for range 4 {
		c := New(dir, fingerprint, time.Hour)
		if _, err := c.Write(entries([]Record{resource("a", now)}), false, now); err != nil {
			t.Fatal(err)
		}
		processes = append(processes, c)
	}
	expect := func(when string, want ...bool) {
		t.Helper()
		for i, c := range processes {
			info, err := os.Stat(c.path(i))
			if err != nil || (info.Size() > 0) != want[i] {
				t.Errorf("%s: process %d has a file of %d bytes, %v", when, i, info.Size(), err)
			}
		}
	}
	processes[1].Close()
	if _, err := processes[0].Write(nil, false, now); err != nil {
		t.Fatal(err)
	}
	expect("later", true, true, true, true)
	if _, err := processes[0].Write(nil, true, now); err != nil {
		t.Fatal(err)
	}
	expect("refused", true, false, true, true)
	processes[2].Close()
	processes[0].Close()
	write(t, dir, now, resource("b", now))
	expect("first", true, false, false, true)
	for _, free := range []int{0, 1, 2} { // they are not held by the one that emptied them
		c := New(dir, fingerprint, time.Hour)
		if _, err := c.Write(nil, false, now); err != nil || c.Path() != c.path(free) {
			t.Errorf("got %s, %v", c.Path(), err)
		}
	}
}

// A file that cannot be replaced stays, and so do those of processes that have ended; unless something was refused: then
// the file is emptied. Nothing else is left.
func TestFileThatCannotBeReplaced(t *testing.T) {
	t.Parallel()
	secured := resource("b", now)
	secured.Secured = true
	for obstacle, starts := range map[string]bool{".0.tmp": false, securedSuffix: false, ".1.tmp": true} { // a process that starts has slot 1
		dir := t.TempDir()
		c, ended, another := New(dir, fingerprint, time.Hour), New(dir, fingerprint, time.Hour), New(dir, fingerprint, time.Hour)
		for _, c := range []*Cache{c, ended, another} {
			if _, err := c.Write(entries([]Record{resource("a", now)}), false, now); err != nil {
				t.Fatal(err)
			}
		}
		ended.Close()
		another.Close()
		writer := c
		if starts {
			writer = New(dir, fingerprint, time.Hour)
		}
		xdstest.NoError(t, os.MkdirAll(filepath.Join(c.base()+obstacle, "taken"), 0o700))
		has := func(slot int) bool {
			info, err := os.Stat(c.path(slot))
			xdstest.NoError(t, err)
			return info.Size() > 0
		}
		if _, err := writer.Write(entries([]Record{secured}), false, now); err == nil || errors.Is(err, ErrRemoved) || !has(0) || !has(1) || !has(2) {
			t.Errorf("%s: got %v; the slots have something: %t, %t, %t", obstacle, err, has(0), has(1), has(2))
		}
		if _, err := writer.Write(entries([]Record{secured}), true, now); !errors.Is(err, ErrRemoved) || has(0) != starts || has(1) || has(2) {
			t.Errorf("%s, and something is refused: got %v; the slots have something: %t, %t, %t", obstacle, err, has(0), has(1), has(2))
		}
		xdstest.NoError(t, os.RemoveAll(c.base()+obstacle))
		if files, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(files) > 0 {
			t.Errorf("%s: %v are left", obstacle, files)
		}
		write(t, dir, now.Add(1), secured)
		xdstest.Equal(t, obstacle, []Record{secured}, load(t, dir, now.Add(1)))
	}
}

// Where no slot can be opened, the error is that of the first.
func TestNoSlotCanBeOpened(t *testing.T) {
	t.Parallel()
	c := New(t.TempDir(), fingerprint, time.Hour)
	for i := range MaxSlots {
		xdstest.NoError(t, os.Mkdir(c.path(i), 0o700))
	}
	if _, err := c.Write(nil, false, now); err == nil || !strings.Contains(err.Error(), c.path(0)) {
		t.Errorf("got %v", err)
	}
}

// A slot whose file is replaced or removed by somebody else is taken again.
func TestSlotIsTakenAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := New(dir, fingerprint, time.Hour)
	for range 2 {
		if _, err := c.Write(entries([]Record{resource("a", now)}), false, now); err != nil {
			t.Fatal(err)
		}
		xdstest.NoError(t, os.Remove(only(t, dir)))
	}
	other := New(dir, fingerprint, time.Hour)
	for i, c := range []*Cache{other, c} { // the other one has the slot from now on
		if _, err := c.Write(entries([]Record{resource("b", now)}), false, now.Add(1)); err != nil || c.Path() != c.path(i) {
			t.Fatal(c.Path(), err)
		}
	}
	xdstest.Equal(t, "the records", []Record{resource("b", now)}, load(t, dir, now))
}

// What belongs to another user is not used.
func TestOwners(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	const nobody = 65534
	dir := t.TempDir()
	write(t, dir, now, resource("a", now))
	for of, want := range map[string]string{only(t, dir): "lets others read or write it", dir: "chown 0 " + dir} {
		xdstest.NoError(t, os.Chown(of, nobody, nobody))
		got, faults := New(dir, fingerprint, time.Hour).Load(now)
		if len(faults) != 1 || !strings.Contains(faults[0].Error(), want) || len(got.Records) > 0 {
			t.Errorf("%s is of another user: got %v, %v", of, got, faults)
		}
		xdstest.NoError(t, os.Chown(of, 0, 0))
	}
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
		own + ".tls": abandoned + time.Hour, "mine": 2 * abandoned,
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
	xdstest.Equal(t, "the files", []string{own + ".0.resources", own + ".tls", "dynxds-dir", "dynxds-new.0.resources", "mine"}, names())
	if info, err := os.Stat(filepath.Join(dir, own+".tls")); err != nil || now.Sub(info.ModTime()) > 0 {
		t.Errorf("the time of TLS is not kept as young as its file: %v, %v", info.ModTime(), err)
	}
	for i := range maxFiles { // beside two of the program
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
