// Command doccheck runs the commands and writes the files of the documentation, and follows
// its links to files and sections, so that neither rot.
//
//	doccheck [-timeout 5m] [-links] FILE...
//
// The files are paths in a Git repository, from its top, where it is run. The
// repository is copied to an empty folder, as a reader's fresh clone is: what Git does not track, and what
// is ignored, is not there. For each file all its commands run in one shell, in
// the order of the text, from the top of that copy; the first that fails ends it.
//
// Commands are the code blocks marked sh, and the lines of blocks marked console
// that begin with "$ ", continued by those that begin with "> "; what console
// blocks have besides is output, and not compared. A comment on the line before a
// block says otherwise:
//
//	<!-- doc: skip, REASON -->   the block is not carried out; the reason is printed
//	<!-- doc: file NAME -->      the block, of whatever language, is written to a
//	                             file before the commands after it run
//	<!-- doc: in NAME -->        the block is carried out in a folder, which is
//	                             made if it is not there
//	<!-- doc: also COMMAND -->   a command that the text does not show is carried
//	                             out first
//
// A comment of any other kind that begins with "doc:" is an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("doccheck: ")
	timeout := flag.Duration("timeout", 5*time.Minute, "how long the commands of one file may take")
	onlyLinks := flag.Bool("links", false, "follow the links, and run no commands")
	flag.Parse()
	failed := false
	for _, file := range flag.Args() {
		faults, err := links(file)
		if err != nil {
			faults = append(faults, err.Error())
		}
		for _, fault := range faults {
			log.Print(fault)
			failed = true
		}
		if *onlyLinks {
			continue
		}
		if err := check(file, *timeout); err != nil {
			log.Printf("%s: %v", file, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// check carries out one file.
func check(file string, timeout time.Duration) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	steps, err := parse(string(text))
	if err != nil {
		return err
	}
	commands := 0
	for _, s := range steps {
		if s.skip != "" {
			fmt.Printf("%s:%d: not carried out: %s\n", file, s.line, s.skip)
		} else if s.script != "" {
			commands++
		}
	}
	if commands == 0 {
		return nil
	}
	clone, err := os.MkdirTemp("", "doccheck-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(clone)
	if err := copyTracked(clone); err != nil {
		return err
	}
	fmt.Printf("%s: %d blocks with commands\n", file, commands)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return run(ctx, clone, script(file, steps))
}

// run runs a script in a folder and ends what it leaves behind.
func run(ctx context.Context, dir, script string) error {
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = dir
	// What runs in the background ends with the shell, however that ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var out tail
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		return fmt.Errorf("%w; the end of the output:\n%s", err, out.text)
	}
	return nil
}

// tail keeps the end of what is written.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	const limit = 8 << 10
	t.text = append(t.text, p...)
	if n := len(t.text) - limit; n > 0 {
		t.text = append(t.text[:0], t.text[n:]...)
	}
	return len(p), nil
}

// copyTracked copies the files of the working tree that Git tracks, or would if
// they were added.
func copyTracked(to string) error {
	list, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for _, name := range strings.Split(strings.TrimRight(string(list), "\x00"), "\x00") {
		info, err := os.Stat(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // It is deleted, and that is not committed yet.
		}
		if err != nil {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, info.Mode()); err != nil {
			return err
		}
	}
	return nil
}
