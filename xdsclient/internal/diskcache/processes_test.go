package diskcache

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

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
			if _, err := c.Write([]Record{resource(name, now), resource(name+"-too", now)}, false, time.Now()); err != nil {
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
