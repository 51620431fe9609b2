package diskcache

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/internal/xdstest"
	cachepb "github.com/dynxds/dynxds/proto/dynxds/resource_cache/v1"
)

const fingerprint = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

var now = time.Unix(1_700_000_000, 0)

func resource(name string, at time.Time) Record {
	return Record{Key: Key{TypeURL: "type", Name: name}, Server: "server", Time: at, Resource: []byte("resource " + name)}
}

// write writes records, on behalf of a process of its own.
func write(t *testing.T, dir string, at time.Time, records ...Record) {
	t.Helper()
	c := New(dir, fingerprint, time.Hour)
	c.Load(at)
	if omitted, err := c.Write(records, false, at); err != nil || omitted != 0 {
		t.Fatalf("got %d records left out, %v", omitted, err)
	}
}

// load reads what a process that starts finds.
func load(t *testing.T, dir string, at time.Time) []Record {
	t.Helper()
	records, _, err := New(dir, fingerprint, time.Hour).Load(at)
	xdstest.NoError(t, err)
	return records
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

// A file is what docs/tasks/resource-cache.md says.
func TestFormat(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	r := Record{Key: Key{TypeURL: "t", Name: "n"}, Time: time.Unix(0, 5)}
	if _, err := encode(&got, &cachepb.Header{Program: "p"}, []Record{r}); err != nil {
		t.Fatal(err)
	}
	xdstest.Equal(t, "the file", string(sealed("\x03\x0a\x01p\x08\x0a\x01t\x12\x01n\x38\x05")), got.String())
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
		if _, err := c.Write([]Record{resource(name, now)}, false, now); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
	xdstest.Equal(t, "files with which the directory was synchronized", []string{"a", "b"}, synced)
	xdstest.NoError(t, syncDir(c.dir))
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
		got, _, err := c.Load(now)
		want := strings.ReplaceAll(test.want, "DIR", dir)
		if err == nil || !strings.Contains(err.Error(), want) || len(got) > 0 {
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
	if _, err := encode(&whole, &cachepb.Header{Program: fingerprint}, []Record{
		resource("a", now), resource("n", now), {Key: Key{TypeURL: "type", Name: "n"}, Time: now, Refused: true}, {
			Key:    Key{TypeURL: "t", Name: "n", Constraints: "\xff\x00", Member: "m", Parameters: "\xfe"},
			Server: "s", Time: now, Enveloped: true, Secured: true, Resource: []byte{1, 2, 3},
		},
	}); err != nil {
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
		omitted, err := encode(&b, h, records) // brings them into the order of writing
		if err != nil || omitted > 0 {
			t.Fatalf("%d records left out, %v", omitted, err)
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
	var list []Record
	for i := range n {
		list = append(list, Record{
			Key: Key{TypeURL: "type", Name: fmt.Sprint(i)}, Server: "server", Time: now,
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
