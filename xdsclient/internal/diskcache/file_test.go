package diskcache

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/internal/xdstest"
)

const fingerprint = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

var now = time.Unix(1_700_000_000, 0)

func resource(name string, at time.Time) Record {
	return Record{Key: Key{TypeURL: "type", Name: name}, Server: "server", Time: at, Resource: []byte("resource " + name)}
}

func merge(t *testing.T, f *File, at time.Time, records ...Record) {
	t.Helper()
	if left, err := f.Merge(records, at); err != nil || left != 0 {
		t.Fatalf("got %d records left out, %v", left, err)
	}
}

func load(t *testing.T, f *File, at time.Time) Contents {
	t.Helper()
	c, err := f.Load(at)
	xdstest.NoError(t, err)
	return c
}

// What is written is read, with mode 0600, and no other file stays.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	f := New(filepath.Join(t.TempDir(), "new"), fingerprint, time.Hour)
	if _, err := f.Merge(nil, now); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory, merging gives %v", err)
	}
	xdstest.NoError(t, f.MakeDir())
	if c := load(t, f, now); len(c.Records) != 0 {
		t.Errorf("no file has %v", c)
	}
	want := []Record{
		{
			Key:    Key{TypeURL: "t", Name: "n", Constraints: "\xff\x00", Member: "m", Parameters: "\xfe"},
			Server: "s", Time: now, Versioned: true, Resource: []byte{1, 2, 3},
		},
		resource("b", now.Add(-time.Minute)),
	}
	merge(t, f, now, want...)
	c := load(t, f, now)
	if diff := cmp.Diff(want, c.Records); diff != "" || !c.Written.Equal(now) {
		t.Errorf("written %v; the records differ (-want +got):\n%s", c.Written, diff)
	}
	info, err := os.Stat(f.Path())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	if files, _ := os.ReadDir(filepath.Dir(f.Path())); len(files) != 1 {
		t.Errorf("the directory has %v", files)
	}
}

// The newer record counts, a refusal takes the place of a resource only, unless the name has variants, and
// what is too old goes.
func TestMerge(t *testing.T) {
	t.Parallel()
	refused := func(name string, at time.Time) Record {
		return Record{Key: Key{TypeURL: "type", Name: name}, Server: "server", Time: at, Refused: true}
	}
	changed := func(name string, at time.Time) Record {
		r := resource(name, at)
		r.Resource = []byte("changed")
		return r
	}
	variant := func(r Record, constraints string) Record {
		r.Constraints = constraints
		return r
	}
	later := now.Add(time.Minute)
	for name, test := range map[string]struct {
		old, more, want []Record
	}{
		"others stay":            {[]Record{resource("a", now)}, []Record{resource("b", later)}, []Record{resource("b", later), resource("a", now)}},
		"newer":                  {[]Record{resource("a", now)}, []Record{changed("a", later)}, []Record{changed("a", later)}},
		"older":                  {[]Record{resource("a", later)}, []Record{changed("a", now)}, []Record{resource("a", later)}},
		"refused":                {[]Record{resource("a", now)}, []Record{refused("a", later)}, []Record{refused("a", later)}},
		"refused, unknown":       {[]Record{resource("b", now)}, []Record{refused("a", later)}, []Record{resource("b", now)}},
		"refused, a variant":     {nil, []Record{variant(refused("a", later), "c")}, []Record{variant(refused("a", later), "c")}},
		"refused, for others":    {[]Record{variant(resource("a", now), "c")}, []Record{refused("a", later)}, []Record{refused("a", later), variant(resource("a", now), "c")}},
		"old after refusal":      {[]Record{refused("a", later), resource("a", later)}, []Record{changed("a", now)}, []Record{resource("a", later)}},
		"too old":                {[]Record{resource("a", now.Add(-2*time.Hour)), resource("b", now)}, nil, []Record{resource("b", now)}},
		"a clock ahead":          {[]Record{resource("a", now.Add(24*time.Hour))}, []Record{changed("a", later)}, []Record{changed("a", later)}},
		"refused, a clock ahead": {[]Record{resource("a", now.Add(24*time.Hour))}, []Record{refused("a", now)}, []Record{refused("a", now)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := New(t.TempDir(), fingerprint, time.Hour)
			merge(t, f, now.Add(24*time.Hour), test.old...)
			merge(t, f, later, test.more...)
			xdstest.Equal(t, "the records", test.want, load(t, f, later).Records)
		})
	}
}

// A refusal stays, so that another process that has not heard of it does not put the resource back.
func TestRefusalStays(t *testing.T) {
	t.Parallel()
	f := New(t.TempDir(), fingerprint, time.Hour)
	merge(t, f, now, resource("a", now))
	merge(t, f, now, Record{Key: Key{TypeURL: "type", Name: "a"}, Time: now.Add(time.Minute), Refused: true})
	merge(t, f, now.Add(2*time.Minute), resource("a", now.Add(30*time.Second)))
	if c := load(t, f, now.Add(2*time.Minute)); len(c.Records) != 1 || !c.Records[0].Refused {
		t.Errorf("got %+v", c.Records)
	}
}

// The directory is synchronized when the new file has its name: before that, a crash of the machine may
// bring the old one back.
func TestDirectoryIsSynchronized(t *testing.T) {
	t.Parallel()
	f := New(t.TempDir(), fingerprint, time.Hour)
	broken := errors.New("broken")
	var synced []string
	f.syncDir = func(dir string) error {
		c := load(t, New(dir, fingerprint, time.Hour), now)
		synced = append(synced, c.Records[0].Name)
		return broken
	}
	for _, name := range []string{"a", "b"} {
		if _, err := f.Merge([]Record{resource(name, now.Add(time.Duration(len(synced))))}, now); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
	if diff := cmp.Diff([]string{"a", "b"}, synced); diff != "" {
		t.Errorf("the directory was synchronized with other files (-want +got):\n%s", diff)
	}
	if err := syncDir(f.dir); err != nil {
		t.Error(err)
	}
}

// Every file that is not whole and of this bootstrap is an error that names it.
func TestUnusable(t *testing.T) {
	t.Parallel()
	f := New(t.TempDir(), fingerprint, time.Hour)
	merge(t, f, now, resource("a", now))
	good, err := os.ReadFile(f.Path())
	xdstest.NoError(t, err)
	sealed := func(body string) []byte {
		sum := sha256.Sum256([]byte(body))
		return append([]byte(body), sum[:]...)
	}
	head := Magic + string(protowire.AppendBytes(nil, (&header{fingerprint, now}).append(nil)))
	for name, test := range map[string]struct {
		content []byte
		later   time.Duration
		want    string
	}{
		"empty":             {nil, 0, "another format"},
		"another version":   {[]byte(strings.Replace(string(good), "cache 1", "cache 2", 1)), 0, "another format or version"},
		"only the magic":    {[]byte(Magic), 0, "cut short"},
		"cut":               {good[:len(good)-1], 0, "checksum"},
		"changed":           {[]byte(strings.Replace(string(good), "resource a", "resource b", 1)), 0, "checksum"},
		"no header":         {sealed(Magic), 0, "corrupt"},
		"a bad header":      {sealed(Magic + "\x01\xff"), 0, "corrupt"},
		"another bootstrap": {sealed(Magic + string(protowire.AppendBytes(nil, (&header{"other", now}).append(nil)))), 0, "another bootstrap or node"},
		"a length":          {sealed(head + "\xff\xff\xff\xff\x0f"), 0, "corrupt"},
		"a record":          {sealed(head + "\x01\xff"), 0, "corrupt"},
		"a nameless record": {sealed(head + "\x00"), 0, "no type or no name"},
		"not UTF-8":         {sealed(head + "\x03\x0a\x01\xff"), 0, "not valid UTF-8"},
		"too many records":  {sealed(head + strings.Repeat("\x06\x0a\x01t\x12\x01n", MaxRecords+1)), 0, "more than"},
		"too old":           {good, 2 * time.Hour, "too old: written 2h0m0s ago, and max_age is 1h0m0s"},
	} {
		f := New(t.TempDir(), fingerprint, time.Hour)
		xdstest.NoError(t, os.WriteFile(f.Path(), test.content, 0o600))
		c, err := f.Load(now.Add(test.later))
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), f.Path()) || len(c.Records) > 0 {
			t.Errorf("%s: got %v, %v", name, c, err)
		}
		merge(t, f, now, resource("b", now))
		if c := load(t, f, now); test.later == 0 && len(c.Records) != 1 {
			t.Errorf("%s: the file was not replaced: %v", name, c)
		}
	}
}

// A file that other users have access to says so.
func TestAccessOfOthers(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no modes")
	}
	for _, mode := range []fs.FileMode{0o640, 0o620, 0o604, 0o602} {
		f := New(t.TempDir(), fingerprint, time.Hour)
		merge(t, f, now, resource("a", now))
		xdstest.NoError(t, os.Chmod(f.Path(), mode))
		if c, err := f.Load(now); err == nil || !strings.Contains(err.Error(), "lets others read or write it; expected a file of this user with mode 0600") || len(c.Records) > 0 {
			t.Errorf("with mode %o: got %v, %v", mode, c, err)
		}
	}
}

// A named pipe in the place of the file is not waited for.
func TestNamedPipe(t *testing.T) {
	t.Parallel()
	f := New(t.TempDir(), fingerprint, time.Hour)
	if err := exec.Command("mkfifo", "-m", "600", f.Path()).Run(); err != nil {
		t.Skip("no named pipes: ", err)
	}
	if _, err := f.Load(now); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
	merge(t, f, now, resource("a", now))
	if c := load(t, f, now); len(c.Records) != 1 {
		t.Errorf("the pipe was not replaced: %v", c)
	}
}

// What does not fit is left out, the oldest first.
func TestBounds(t *testing.T) {
	t.Parallel()
	f := New(t.TempDir(), fingerprint, time.Hour)
	big := make([]byte, MaxBytes/3)
	var records []Record
	for i := range 4 {
		r := resource(fmt.Sprint(i), now.Add(time.Duration(-i)*time.Minute))
		r.Resource = big
		records = append(records, r)
	}
	left, err := f.Merge(records, now)
	if err != nil || left != 2 {
		t.Fatalf("got %d records left out, %v", left, err)
	}
	if c := load(t, f, now); len(c.Records) != 2 || c.Records[0].Name != "0" || c.Records[1].Name != "1" {
		t.Errorf("the file has %d records", len(c.Records))
	}
}

// Files that nobody writes any more go, and nothing else.
func TestPrune(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{
		"dynxds-old.resources": abandoned + time.Hour, "dynxds-new.resources": time.Hour, "dynxds-x.resources.1.tmp": 2 * time.Hour,
		"dynxds-y.resources.2.tmp": time.Minute, "mine": 2 * abandoned,
	} {
		path := filepath.Join(dir, name)
		xdstest.NoError(t, os.WriteFile(path, nil, 0o600))
		xdstest.NoError(t, os.Chtimes(path, now.Add(-age), now.Add(-age)))
	}
	f := New(dir, fingerprint, time.Hour)
	merge(t, f, now, resource("a", now))
	entries, _ := os.ReadDir(dir)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	want := []string{filepath.Base(f.Path()), "dynxds-new.resources", "dynxds-y.resources.2.tmp", "mine"}
	xdstest.Equal(t, "the files", want, got)
}

// childDir has a process of TestProcesses write in that directory.
const childDir = "DISKCACHE_TEST_DIR"

// Processes that write at the same time lose nothing of each other, and a reader always finds a
// whole file.
func TestProcesses(t *testing.T) {
	const processes, writes = 4, 20
	if dir := os.Getenv(childDir); dir != "" {
		f := New(dir, fingerprint, time.Hour)
		for i := range writes {
			for {
				_, err := f.Merge([]Record{resource(fmt.Sprint(os.Getpid(), "-", i), now)}, now)
				if err == nil {
					break
				}
				if err != ErrLocked {
					t.Fatal(err)
				}
			}
		}
		return
	}
	dir := t.TempDir()
	f := New(dir, fingerprint, time.Hour)
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
			load(t, f, now)
		}
	}
	if c := load(t, f, now); len(c.Records) != processes*writes {
		t.Errorf("the file has %d records, want %d", len(c.Records), processes*writes)
	}
}

// FuzzParse reads whatever a file may have, behind a right checksum: no panic, and what is read is
// written and read again.
func FuzzParse(f *testing.F) {
	file := New("", fingerprint, time.Hour)
	r := resource("a", now)
	whole, _ := file.encode([]*Record{&r, {Key: Key{TypeURL: "t", Name: "n"}, Time: now, Refused: true}}, now)
	f.Add(whole[len(Magic) : len(whole)-sha256.Size])
	f.Add([]byte("\x02\x0a\x00\x05\x0a\x01t\x12\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		b := append([]byte(Magic), body...)
		sum := sha256.Sum256(b)
		c, err := file.parse(append(b, sum[:]...), now)
		if err != nil {
			return
		}
		records := make([]*Record, len(c.Records))
		for i := range c.Records {
			records[i] = &c.Records[i]
		}
		again, left := file.encode(records, now)
		read, err := file.parse(again, now)
		if diff := cmp.Diff(c.Records, read.Records); err != nil || left > 0 || diff != "" {
			t.Errorf("%d records left out, %v; they differ (-want +got):\n%s", left, err, diff)
		}
	})
}
