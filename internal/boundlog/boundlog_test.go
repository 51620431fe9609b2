package boundlog

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	pathpkg "path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/grpclog"

	"github.com/dynxds/dynxds/internal/bounds"
)

// recorder records lines.
type recorder struct {
	grpclog.DepthLoggerV2
	mu    sync.Mutex
	lines []string
}

func (r *recorder) add(severity string, args []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, severity+" "+fmt.Sprint(args...))
}

func (r *recorder) InfoDepth(_ int, args ...any)    { r.add("I", args) }
func (r *recorder) WarningDepth(_ int, args ...any) { r.add("W", args) }
func (r *recorder) ErrorDepth(_ int, args ...any)   { r.add("E", args) }

// take returns the lines since the last call.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := r.lines
	r.lines = nil
	return lines
}

func record() (*Logger, *recorder) {
	r := new(recorder)
	return &Logger{r, newLines(r)}, r
}

// A server that causes a million lines takes few of them, and the log says how many were left out.
func TestLinesAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, r := record()
		const seconds, each = 10, 1000
		bytes := 0
		for range seconds {
			for i := range each {
				l.Warningf("xDS %s %q: %v", "Cluster", fmt.Sprint(i), errors.New(strings.Repeat("x", 1<<16)))
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		lines := r.take()
		for _, line := range lines {
			bytes += len(line)
		}
		if want := int(bounds.ClientLines.Kind.Burst) + seconds; len(lines) > want || bytes > want*2*bounds.ErrorText {
			t.Errorf("%d lines of %d bytes, want %d", len(lines), bytes, want)
		}
		if want := "(980 lines like this one were left out of the log before)"; !strings.Contains(strings.Join(lines, "\n"), want) {
			t.Errorf("no line says %q; the last is %q", want, lines[len(lines)-1])
		}
		l.Errorf("another kind")
		if got := r.take(); len(got) != 1 || got[0] != "E another kind" {
			t.Errorf("got %q", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		r.take()
		for range int(bounds.ClientLines.Kind.Burst) + 7 {
			l.Warningf("a third one, %d", 3)
		}
		r.take()
		time.Sleep(time.Minute)
		synctest.Wait()
		want := "W 7 lines were left out of the log, each like this: a third one, %d"
		if got := r.take(); len(got) != 1 || got[0] != want {
			t.Errorf("after a while the log has %q, want %q", got, want)
		}
	})
}

// Lines at info level, which are written nowhere at warning level, take nothing from warnings.
func TestSeveritiesHaveBudgetsOfTheirOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, r := record()
		for i := range 1000 {
			l.Infof(fmt.Sprint("kind ", i))
		}
		if got := r.take(); len(got) != int(bounds.ClientLines.All.Burst) {
			t.Errorf("%d lines", len(got))
		}
		l.Warningf("a warning")
		if got := r.take(); len(got) != 1 {
			t.Errorf("got %q", got)
		}
	})
}

// Texts are cut, each for itself, and are one printable line.
func TestTextsInALine(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 5_000_000)
	cut := bounds.Text(long, bounds.ErrorText)
	for _, test := range []struct {
		format string
		args   []any
		want   string
	}{
		{"%s %d %v %5.1f", []any{"a", 7, nil, 1.5}, "a 7 <nil>   1.5"},
		{"%q %s", []any{"a\n\x1b[0m", "b\x1b"}, `"a\n\x1b[0m" b\x1b`},
		{"%v!", []any{errors.New("2 errors:\n  a: bad\n  b: bad")}, "2 errors:  a: bad; b: bad!"},
		{"%v", []any{time.Second}, "1s"},
		{"%s: %v", []any{long, errors.New("because")}, cut + ": because"},
		{"%q: %v", []any{long, errors.New("because")}, `"` + cut + `": because`},
		{"%v\n%s", []any{"panicked", []byte("a stack\n\tof lines")}, "panicked\na stack\n\tof lines"},
	} {
		l, r := record()
		l.Warning(test.format, test.args...).Write()
		if got := r.take(); len(got) != 1 || got[0] != "W "+test.want {
			t.Errorf("got %.200q, want %.200q", got, test.want)
		}
	}
	l, r := record()
	l.Infof("%s%s%s%s%s%s", long, long, long, long, long, long)
	if got := r.take(); len(got[0]) > bounds.ClientLine+100 {
		t.Errorf("a line has %d bytes", len(got[0]))
	}
}

// No package of the plugin writes to gRPC's log past this one. dnsconfig, which must import no other package
// of the module, logs at most a line for each look-up of DNS, which gRPC paces.
func TestEverythingIsLoggedHere(t *testing.T) {
	t.Parallel()
	const root = "../.."
	own := map[string]bool{"internal/boundlog": true, "dnsconfig": true}
	outside := map[string]bool{"cmd": true, "e2e": true, "examples": true, "interop": true, "mesh": true, "tools": true, ".git": true} // modules of their own
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && outside[name]:
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || own[pathpkg.Dir(name)]:
			return nil
		}
		files++
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range file.Imports {
			if i.Path.Value == `"google.golang.org/grpc/grpclog"` {
				t.Errorf("%s logs by grpclog; it should use internal/boundlog", name)
			}
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Errorf("looked at %d files: %v", files, err)
	}
}
