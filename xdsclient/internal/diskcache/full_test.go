//go:build linux || darwin || freebsd || netbsd || openbsd

package diskcache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fullDir has a process of TestFullDisk write in that directory, where it finds no room.
const fullDir = "DISKCACHE_TEST_FULL_DIR"

// On a full disk the file stays, unless it has something that was refused: then it goes.
func TestFullDisk(t *testing.T) {
	if dir := os.Getenv(fullDir); dir != "" {
		signal.Ignore(syscall.SIGXFSZ)
		f := New(dir, fingerprint, time.Hour)
		var old syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
			fmt.Println("no limit: ", err)
			return
		}
		defer syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old) // for the file of "go test -cover"
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1, Max: old.Max}); err != nil {
			fmt.Println("no limit: ", err)
			return
		}
		_, added := f.Merge(news([]Record{resource("b", now)}), false, now)
		_, left := os.Stat(f.Path())
		_, refused := f.Merge(news([]Record{{Key: resource("a", now).Key, Time: now, Refused: true}}), false, now)
		_, gone := os.Stat(f.Path())
		entries, _ := os.ReadDir(dir)
		fmt.Println("added:", added != nil, errors.Is(added, ErrRemoved), left)
		fmt.Println("refused:", refused != nil, errors.Is(refused, ErrRemoved), errors.Is(gone, fs.ErrNotExist), len(entries), strings.Count(refused.Error(), "\n"))
		return
	}
	t.Parallel()
	f := New(t.TempDir(), fingerprint, time.Hour)
	merge(t, f, now, resource("a", now))
	child := exec.Command(os.Args[0], "-test.run=^TestFullDisk$")
	child.Env = append(os.Environ(), fullDir+"="+f.dir)
	out, err := child.Output()
	const want = "added: true false <nil>\nrefused: true true true 0 0\nPASS\n"
	if err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("the process said %q, %v, want %q", out, err, want)
	}
}
