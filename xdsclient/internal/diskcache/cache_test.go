package diskcache

import (
	"bytes"
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

func entries(records []Record) []Entry {
	list := make([]Entry, len(records))
	for i, r := range records {
		list[i].Record = r
	}
	return list
}

// write writes records, on behalf of a process of its own.
func write(t *testing.T, dir string, at time.Time, records ...Record) {
	t.Helper()
	c := New(dir, fingerprint, time.Hour)
	c.Load(at)
	if omitted, err := c.Write(entries(records), false, at); err != nil || omitted != 0 {
		t.Fatalf("got %d records left out, %v", omitted, err)
	}
}

// load reads what a process that starts finds.
func load(t *testing.T, dir string, at time.Time) []Record {
	t.Helper()
	contents, err := New(dir, fingerprint, time.Hour).Load(at)
	xdstest.NoError(t, err)
	return contents.Records
}

// only returns the one file of a directory with resources.
func only(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.resources"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("the directory has %v, %v", paths, err)
	}
	return paths[0]
}

// What is written is read, with mode 0600, and no other file stays.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	c := New(dir, fingerprint, time.Hour)
	if _, err := c.Write(nil, false, now); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory, writing gives %v", err)
	}
	if got := load(t, dir, now); len(got) != 0 {
		t.Errorf("no directory has %v", got)
	}
	xdstest.NoError(t, c.MakeDir())
	if got := load(t, dir, now); len(got) != 0 {
		t.Errorf("no file has %v", got)
	}
	want := []Record{
		{
			Key:    Key{TypeURL: "t", Name: "n", Constraints: "\xff\x00", Member: "m", Parameters: "\xfe"},
			Server: "s", Time: now, Enveloped: true, Resource: []byte{1, 2, 3},
		},
		{Key: Key{TypeURL: "t", Name: "n"}, Server: "s", Time: now.Add(-time.Second), Refused: true},
		resource("b", now.Add(-time.Minute)),
	}
	left := c.base() + ".0.tmp" // by a process that has ended
	xdstest.NoError(t, os.WriteFile(left, nil, 0o600))
	xdstest.NoError(t, os.Chtimes(left, now, now.Add(-2*unfinished)))
	write(t, dir, now, want[2], want[0], want[1])
	xdstest.Equal(t, "the records", want, load(t, dir, now))
	info, err := os.Stat(only(t, dir))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("the directory has %v", files)
	}
	write(t, dir, now)
	xdstest.Equal(t, "the records of a view of nothing", nil, load(t, dir, now))
}

// A file is what docs/tasks/resource-cache.md says.
func TestFormat(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	r := Record{Key: Key{TypeURL: "t", Name: "n"}, Time: time.Unix(0, 5)}
	if _, err := encode(&got, header{program: "p"}, entries([]Record{r})); err != nil {
		t.Fatal(err)
	}
	xdstest.Equal(t, "the file", string(sealed("\x03\x0a\x01p\x08\x0a\x01t\x12\x01n\x38\x05")), got.String())
}

// A file is replaced as a whole. Records that are too old do not count, and a time that a clock ahead of this one
// has written is the present.
func TestFileIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, now, resource("a", now), resource("b", now))
	write(t, dir, now, resource("b", now), resource("old", now.Add(-time.Hour)), resource("ahead", now.Add(24*time.Hour)))
	xdstest.Equal(t, "the records", []Record{resource("ahead", now), resource("b", now), resource("old", now.Add(-time.Hour))}, load(t, dir, now))
	c := New(dir, fingerprint, time.Hour)
	got, err := c.Load(now.Add(1))
	if err != nil || got.Old != 1 {
		t.Errorf("got %d old ones, %v", got.Old, err)
	}
	xdstest.Equal(t, "the records a moment later", []Record{resource("ahead", now.Add(1)), resource("b", now)}, got.Records)
}

// The directory is synchronized when the new file has its name: before that, a crash of the machine may
// bring the old one back.
func TestDirectoryIsSynchronized(t *testing.T) {
	t.Parallel()
	c := New(t.TempDir(), fingerprint, time.Hour)
	broken := errors.New("broken")
	var synced []string
	c.syncDir = func(dir string) error {
		synced = append(synced, load(t, dir, now)[0].Name)
		return broken
	}
	for _, name := range []string{"a", "b"} {
		if _, err := c.Write(entries([]Record{resource(name, now)}), false, now); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
	if diff := cmp.Diff([]string{"a", "b"}, synced); diff != "" {
		t.Errorf("the directory was synchronized with other files (-want +got):\n%s", diff)
	}
	xdstest.NoError(t, syncDir(c.dir))
}

// Every file that is not whole and of this program is an error that names it, and is replaced.
func TestUnusable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, now, resource("a", now))
	path := only(t, dir)
	good, err := os.ReadFile(path)
	xdstest.NoError(t, err)
	head := string(protowire.AppendBytes(nil, (&header{program: fingerprint}).append(nil)))
	for name, test := range map[string]struct {
		content []byte
		later   time.Duration
		want    string
	}{
		"another version":   {[]byte(strings.Replace(string(good), "cache 2", "cache 1", 1)), 0, "another format or version"},
		"only the magic":    {[]byte(Magic), 0, "corrupt"},
		"cut":               {good[:len(good)-1], 0, "checksum"},
		"changed":           {[]byte(strings.Replace(string(good), "resource a", "resource b", 1)), 0, "checksum"},
		"no header":         {sealed(""), 0, "corrupt"},
		"a bad header":      {sealed("\x01\xff"), 0, "corrupt"},
		"another program":   {sealed(string(protowire.AppendBytes(nil, (&header{program: "other"}).append(nil)))), 0, "another program, bootstrap or node"},
		"a length":          {sealed(head + "\xff\xff\xff\xff\x0f"), 0, "corrupt"},
		"a record":          {sealed(head + "\x01\xff"), 0, "corrupt"},
		"a nameless record": {sealed(head + "\x03\x0a\x01t"), 0, "no type or no name"},
		"a typeless record": {sealed(head + "\x03\x12\x01n"), 0, "no type or no name"},
		"not UTF-8":         {sealed(head + "\x03\x0a\x01\xff"), 0, "not valid UTF-8"},
		"too many records":  {sealed(head + strings.Repeat("\x06\x0a\x01t\x12\x01n", MaxRecords+1)), 0, "more than"},
		"too large":         {append(good, make([]byte, MaxBytes)...), 0, "the limit is"},
		"too old":           {good, 2 * time.Hour, "too old: current 2h0m0s ago, and max_age is 1h0m0s"},
	} {
		xdstest.NoError(t, os.WriteFile(path, test.content, 0o600))
		got, err := New(dir, fingerprint, time.Hour).Load(now.Add(test.later))
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) || len(got.Records) > 0 {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
		write(t, dir, now, resource("b", now))
		xdstest.Equal(t, name, []Record{resource("b", now)}, load(t, dir, now))
	}
	xdstest.NoError(t, os.Truncate(path, 0))
	if got := load(t, dir, now); len(got) > 0 {
		t.Errorf("an empty file has %v", got)
	}
	if _, err := New(filepath.Join(path, "below"), fingerprint, time.Hour).Load(now); err == nil {
		t.Errorf("a directory below a file: got %v", err)
	}
}

// A file that other users have access to, a directory in which they can write, and what belongs to one of them is not used; the
// directory is not written to either.
func TestAccessOfOthers(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no modes")
	}
	const nobody, file = 65534, "lets others read or write it; expected a file of this user with mode 0600"
	mode := func(m fs.FileMode) func(string) error { return func(path string) error { return os.Chmod(path, m) } }
	given := func(path string) error { return os.Chown(path, nobody, nobody) }
	for _, test := range []struct {
		file, dir func(path string) error // what is done to them, or nil
		want      string
	}{
		{mode(0o640), nil, file}, {mode(0o620), nil, file}, {mode(0o604), nil, file}, {mode(0o602), nil, file}, {given, nil, file},
		{nil, mode(0o770), "chmod go-w DIR"}, {nil, mode(0o702), "chmod go-w DIR"}, {nil, mode(0o777 | fs.ModeSticky), "chmod go-w DIR"}, {nil, given, "chown 0 DIR"},
	} {
		dir := t.TempDir()
		write(t, dir, now, resource("a", now))
		path, change := only(t, dir), test.file
		if change == nil {
			path, change = dir, test.dir
		}
		if err := change(path); errors.Is(err, fs.ErrPermission) {
			continue // only root gives files away
		}
		c := New(dir, fingerprint, time.Hour)
		got, err := c.Load(now)
		want := strings.ReplaceAll(test.want, "DIR", dir)
		if err == nil || !strings.Contains(err.Error(), want) || len(got.Records) > 0 {
			t.Errorf("got %v, %v, want %q", got, err, want)
		}
		if path != dir {
			continue
		}
		if _, err := c.Write(nil, false, now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("writing gives %v, want %q", err, want)
		}
		xdstest.NoError(t, os.Chown(dir, os.Geteuid(), os.Getegid()))
		xdstest.NoError(t, os.Chmod(dir, 0o755))
		xdstest.Equal(t, "the records afterwards", []Record{resource("a", now)}, load(t, dir, now))
	}
}

// A named pipe in the place of the file is not waited for.
func TestNamedPipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := New(dir, fingerprint, time.Hour)
	if err := exec.Command("mkfifo", "-m", "600", c.Path()).Run(); err != nil {
		t.Skip("no named pipes: ", err)
	}
	if _, err := c.Load(now); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
	write(t, dir, now, resource("a", now))
	if got := load(t, dir, now); len(got) != 1 {
		t.Errorf("the pipe was not replaced: %v", got)
	}
}

// What does not fit is left out, the oldest first. A file that is full is read.
func TestBounds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one := func(size int) Record {
		r := resource("full", now)
		r.Resource = make([]byte, size)
		return r
	}
	many := make([]Record, MaxRecords+1)
	for i := range many {
		many[i] = resource("many", now)
	}
	write(t, dir, now, one(MaxBytes/2))
	info, err := os.Stat(only(t, dir))
	xdstest.NoError(t, err)
	exact := MaxBytes - int(info.Size()) + MaxBytes/2
	for _, test := range []struct {
		records       []Record
		omitted, left int
	}{
		{[]Record{one(exact)}, 0, 1},
		{[]Record{one(exact + 1)}, 1, 0},
		{[]Record{resource("new", now.Add(1)), one(exact), resource("old", now.Add(-1))}, 1, 2},
		{many, 1, MaxRecords},
	} {
		c := New(dir, fingerprint, time.Hour)
		if omitted, err := c.Write(entries(test.records), false, now); err != nil || omitted != test.omitted {
			t.Errorf("got %d records left out, %v, want %d", omitted, err, test.omitted)
		}
		if got := load(t, dir, now); len(got) != test.left || len(got) == 2 && got[1].Name != "old" {
			t.Errorf("the file has %d records, want %d", len(got), test.left)
		}
	}
}

// sealed returns the contents of a file with that between Magic and the checksum.
func sealed(body string) []byte {
	b := []byte(Magic + body)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// FuzzParse reads whatever a file may have, behind a right checksum: no panic, and what is read is
// written and read again.
func FuzzParse(f *testing.F) {
	var whole bytes.Buffer
	if _, err := encode(&whole, header{program: fingerprint}, entries([]Record{resource("a", now), resource("n", now), {Key: Key{TypeURL: "type", Name: "n"}, Time: now, Refused: true}})); err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Bytes()[len(Magic) : whole.Len()-sha256.Size])
	f.Add([]byte("\x02\x0a\x00\x05\x0a\x01t\x12\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		h, records, err := decode(sealed(string(body)))
		if err != nil {
			return
		}
		var b bytes.Buffer
		list := entries(records)
		omitted, err := encode(&b, h, list)
		if err != nil || omitted > 0 {
			t.Fatalf("%d records left out, %v", omitted, err)
		}
		for i := range list { // in the order in which they were written
			records[i] = list[i].Record
		}
		_, read, err := decode(b.Bytes())
		if diff := cmp.Diff(records, read); err != nil || diff != "" {
			t.Errorf("%v; they differ (-want +got):\n%s", err, diff)
		}
	})
}

// Writing needs little memory beside what it is given.
func TestWritingIsAStream(t *testing.T) {
	const n, size = 400, 100 << 10
	payload := bytes.Repeat([]byte("x"), size)
	var list []Entry
	for i := range n {
		list = append(list, Entry{
			Record: Record{Key: Key{TypeURL: "type", Name: fmt.Sprint(i)}, Server: "server", Time: now},
			Encode: func(b []byte) []byte { return append(b, payload...) },
		})
	}
	dir := t.TempDir()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if omitted, err := New(dir, fingerprint, time.Hour).Write(list, false, now); err != nil || omitted > 0 {
		t.Fatalf("%d records left out, %v", omitted, err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 16*size {
		t.Errorf("writing %d bytes allocated %d, want %d at most", n*size, got, 16*size)
	}
	if got := load(t, dir, now); len(got) != n || !bytes.Equal(got[n-1].Resource, payload) {
		t.Errorf("the file has %d records", len(got))
	}
}

// An older file that is put back, from before a cluster asked for TLS, is not used.
func TestOlderFileDoesNotBringPlaintextBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secured := resource("a", now.Add(time.Minute))
	secured.Secured = true
	later := now.Add(2 * time.Minute)
	keep := func() (putBack func()) {
		path := only(t, dir)
		b, err := os.ReadFile(path)
		xdstest.NoError(t, err)
		return func() { xdstest.NoError(t, os.WriteFile(path, b, 0o600)) }
	}
	write(t, dir, now, resource("a", now))
	putPlaintextBack := keep()
	write(t, dir, now.Add(time.Minute), secured)
	putSecuredBack := keep()
	putPlaintextBack()
	if got, err := New(dir, fingerprint, time.Hour).Load(later); err == nil || !strings.Contains(err.Error(), "older file") || len(got.Records) > 0 {
		t.Errorf("got %v, %v", got, err)
	}
	write(t, dir, later, resource("b", later))
	xdstest.Equal(t, "after writing, the records", []Record{resource("b", later)}, load(t, dir, later))

	// An older file that has the TLS is used, and a server may end it: then there is no newer time.
	putSecuredBack()
	c := New(dir, fingerprint, time.Hour)
	got, err := c.Load(later)
	xdstest.NoError(t, err)
	xdstest.Equal(t, "the records", []Record{secured}, got.Records)
	since, _ := os.ReadFile(c.mark())
	other := secured
	other.Name = "other"
	for i, records := range [][]Record{{secured}, {secured}, {secured, other}} {
		at := []time.Time{later, later.Add(1), now}[i] // the last clock is late
		if _, err := c.Write(entries(records), false, at); err != nil {
			t.Error(err)
		}
		if again, err := os.ReadFile(c.mark()); string(again) != string(since) {
			t.Errorf("the time of TLS was %q, and is %q, %v", since, again, err)
		}
	}
	if _, err := c.Write(entries([]Record{resource("a", later)}), false, later); err != nil {
		t.Error(err)
	}
	xdstest.Equal(t, "the records after the end of TLS", []Record{resource("a", later)}, load(t, dir, later))
	putSecuredBack()
	xdstest.Equal(t, "the records from before the end of TLS", []Record{secured}, load(t, dir, later))

	xdstest.NoError(t, os.WriteFile(c.mark(), []byte("nonsense"), 0o600))
	if _, err := c.Load(later); err == nil || !strings.Contains(err.Error(), "remove both files") {
		t.Errorf("with nonsense for a time: %v", err)
	}
	write(t, dir, later, secured)
	if got := load(t, dir, later); len(got) != 1 {
		t.Errorf("writing does not replace nonsense: %v", got)
	}
}
