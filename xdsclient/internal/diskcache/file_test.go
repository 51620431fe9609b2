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

func news(records []Record) []News {
	list := make([]News, len(records))
	for i, r := range records {
		list[i].Record = r
	}
	return list
}

func merge(t *testing.T, f *File, at time.Time, records ...Record) {
	t.Helper()
	if left, err := f.Merge(news(records), false, at); err != nil || left != 0 {
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
	if _, err := f.Merge(nil, false, now); !errors.Is(err, fs.ErrNotExist) {
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
		if _, err := f.Merge(news([]Record{resource(name, now.Add(time.Duration(len(synced))))}), false, now); !errors.Is(err, broken) {
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
	head := string(protowire.AppendBytes(nil, (&header{bootstrap: fingerprint, written: now}).append(nil)))
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
		"no header":         {sealed(""), 0, "corrupt"},
		"a bad header":      {sealed("\x01\xff"), 0, "corrupt"},
		"another bootstrap": {sealed(string(protowire.AppendBytes(nil, (&header{bootstrap: "other", written: now}).append(nil)))), 0, "another bootstrap or node"},
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
	left, err := f.Merge(news(records), false, now)
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
				_, err := f.Merge(news([]Record{resource(fmt.Sprint(os.Getpid(), "-", i), now)}), false, now)
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

// sealed returns the contents of a file with that between Magic and the checksum.
func sealed(body string) []byte {
	b := []byte(Magic + body)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// FuzzParse reads whatever a file may have, behind a right checksum: no panic, and what is read is
// written and read again.
func FuzzParse(f *testing.F) {
	file := New("", fingerprint, time.Hour)
	parse := func(b []byte) (records []Record, err error) {
		_, err = file.scan(bytes.NewReader(b), func(message []byte, _ int64) error {
			var r Record
			err := r.parse(message, true)
			records = append(records, r)
			return err
		})
		return records, err
	}
	var whole bytes.Buffer
	var m merger
	m.add(news([]Record{resource("a", now), resource("n", now), {Key: Key{TypeURL: "type", Name: "n"}, Time: now, Refused: true}}), now)
	if _, err := file.encode(&whole, &m, now); err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Bytes()[len(Magic) : whole.Len()-sha256.Size])
	f.Add([]byte("\x02\x0a\x00\x05\x0a\x01t\x12\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		records, err := parse(sealed(string(body)))
		if err != nil {
			return
		}
		var m merger
		for i := range records {
			m.entries = append(m.entries, entry{news: &News{Record: records[i]}})
		}
		var b bytes.Buffer
		left, err := file.encode(&b, &m, now)
		if err != nil || left > 0 {
			t.Fatalf("%d records left out, %v", left, err)
		}
		read, err := parse(b.Bytes())
		if diff := cmp.Diff(records, read); err != nil || diff != "" {
			t.Errorf("%v; they differ (-want +got):\n%s", err, diff)
		}
	})
}

// A merge needs little memory beside what it is given, however large the file is.
func TestMergeIsAStream(t *testing.T) {
	f := New(t.TempDir(), fingerprint, time.Hour)
	const n, size = 400, 100 << 10
	payload := bytes.Repeat([]byte("x"), size)
	var list []News
	for i := range n {
		list = append(list, News{
			Record: Record{Key: Key{TypeURL: "type", Name: fmt.Sprint("old-", i)}, Server: "server", Time: now},
			Encode: func(b []byte) []byte { return append(b, payload...) },
		})
	}
	allocated := func(list []News) uint64 {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if left, err := f.Merge(list, false, now); err != nil || left > 0 {
			t.Fatalf("%d records left out, %v", left, err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	const limit = 16 * size
	if got := allocated(list); got > limit {
		t.Errorf("writing %d bytes allocated %d, want %d at most", n*size, got, limit)
	}
	if got := allocated(news([]Record{resource("new", now.Add(time.Second))})); got > limit {
		t.Errorf("merging into %d bytes allocated %d, want %d at most", n*size, got, limit)
	}
	c := load(t, f, now.Add(time.Minute))
	if len(c.Records) != n+1 || c.Records[0].Name != "new" || !bytes.Equal(c.Records[n].Resource, payload) {
		t.Errorf("the file has %d records", len(c.Records))
	}
}

// What is discarded is gone, and if a new file cannot be written, so is the old one.
func TestDiscard(t *testing.T) {
	t.Parallel()
	f := New(t.TempDir(), fingerprint, time.Hour)
	merge(t, f, now, resource("a", now))
	if _, err := f.Merge(news([]Record{resource("b", now)}), true, now); err != nil {
		t.Fatal(err)
	}
	xdstest.Equal(t, "the records", []Record{resource("b", now)}, load(t, f, now).Records)
}

// A directory in which others can write is refused, for reading and for writing, with the mend.
func TestDirectoryOfOthers(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no modes")
	}
	for _, mode := range []fs.FileMode{0o770, 0o702, 0o777 | fs.ModeSticky} {
		f := New(t.TempDir(), fingerprint, time.Hour)
		merge(t, f, now, resource("a", now))
		xdstest.NoError(t, os.Chmod(f.dir, mode))
		_, reading := f.Load(now)
		_, writing := f.Merge(nil, false, now)
		for _, err := range []error{reading, writing} {
			if err == nil || !strings.Contains(err.Error(), "chmod go-w "+f.dir) {
				t.Errorf("with mode %v: got %v", mode, err)
			}
		}
		xdstest.NoError(t, os.Chmod(f.dir, 0o755))
		if c := load(t, f, now); len(c.Records) != 1 {
			t.Errorf("after chmod: got %v", c)
		}
	}
}

// An older file that is put back, from before a cluster asked for TLS, is not used: not by a client that starts,
// and not by one that merges.
func TestOlderFileDoesNotBringPlaintextBack(t *testing.T) {
	t.Parallel()
	f := New(t.TempDir(), fingerprint, time.Hour)
	secured := resource("a", now.Add(time.Minute))
	secured.Secured = true
	later := now.Add(2 * time.Minute)
	keep := func(path string) (putBack func()) {
		b, err := os.ReadFile(path)
		xdstest.NoError(t, err)
		return func() { xdstest.NoError(t, os.WriteFile(path, b, 0o600)) }
	}
	merge(t, f, now, resource("a", now))
	putPlaintextBack := keep(f.Path())
	merge(t, f, now.Add(time.Minute), secured)
	putSecuredBack := keep(f.Path())
	putPlaintextBack()
	if c, err := f.Load(later); err == nil || !strings.Contains(err.Error(), "older file") || len(c.Records) > 0 {
		t.Errorf("got %v, %v", c, err)
	}
	merge(t, f, later, resource("b", later))
	xdstest.Equal(t, "after a merge, the records", []Record{resource("b", later)}, load(t, f, later).Records)

	// An older file that has the TLS is used, and a server may end it: then there is no newer time.
	merge(t, f, later, resource("c", later))
	putSecuredBack()
	xdstest.Equal(t, "the records", []Record{secured}, load(t, f, later).Records)
	merge(t, f, later, resource("a", later))
	xdstest.Equal(t, "the records after the end of TLS", []Record{resource("a", later)}, load(t, f, later).Records)

	xdstest.NoError(t, os.WriteFile(f.Path()+securedSuffix, []byte("nonsense"), 0o600))
	if _, err := f.Load(later); err == nil || !strings.Contains(err.Error(), "remove both files") {
		t.Errorf("with nonsense for a time: %v", err)
	}
	merge(t, f, later, secured)
	if c := load(t, f, later); len(c.Records) != 1 {
		t.Errorf("a merge does not replace nonsense: %v", c)
	}
}
