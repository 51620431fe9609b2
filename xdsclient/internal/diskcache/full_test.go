//go:build linux || darwin || freebsd || netbsd || openbsd

package diskcache

import (
	"errors"
	"fmt"
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

// On a full disk the file stays, unless it has something that was refused: then it is emptied.
func TestFullDisk(t *testing.T) {
	if dir := os.Getenv(fullDir); dir != "" {
		signal.Ignore(syscall.SIGXFSZ)
		c := New(dir, fingerprint, time.Hour)
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
		_, added := c.Write([]Record{resource("b", now)}, false, now)
		left, _, _ := c.Load(now)
		_, refused := c.Write(nil, true, now)
		gone, _, _ := c.Load(now)
		files, _ := os.ReadDir(dir)
		fmt.Println("added:", added != nil, errors.Is(added, ErrRemoved), len(left))
		fmt.Println("refused:", refused != nil, errors.Is(refused, ErrRemoved), len(gone), len(files), strings.Count(refused.Error(), "\n"))
		return
	}
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, now, resource("a", now))
	child := exec.Command(os.Args[0], "-test.run=^TestFullDisk$")
	child.Env = append(os.Environ(), fullDir+"="+dir)
	out, err := child.Output()
	const want = "added: true false 1\nrefused: true true 0 1 0\nPASS\n"
	if err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("the process said %q, %v, want %q", out, err, want)
	}
}
