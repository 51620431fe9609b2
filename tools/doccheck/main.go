// Command doccheck runs the commands and writes the files of the documentation, and follows
// its links to files and sections, so that neither rot.
//
//	doccheck [-timeout 5m] [-with NAME] FILE...
//
// The files are paths in a Git repository, from its top, where it is run. The
// repository is copied to an empty folder, as a reader's fresh clone is: what Git does not track, and what
// is ignored, is not there. For each file all its commands run in one shell, in
// the order of the text, from the top of that copy; the first that fails ends it.
// The copies have the same place, one after the other, as what Go compiles in one
// folder is of no use in another. Programs that commands build in the folder bin stay.
//
// Commands are the code blocks marked sh, and the lines of blocks marked console
// that begin with "$ ", continued by those that begin with "> "; what console
// blocks have besides is output, and not compared. A comment on the line before a
// block says otherwise:
//
//	<!-- doc: skip, REASON -->   the block is not carried out; the reason is printed
//	<!-- doc: with NAME -->      the block is only carried out with -with NAME, by
//	                             whoever provides what it needs
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
	"strings"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("doccheck: ")
	timeout := flag.Duration("timeout", 5*time.Minute, "how long the commands of one file may take")
	with := flag.String("with", "", "also carry out blocks that are marked \"with\" this name")
	flag.Parse()
	if err := checkAll(flag.Args(), *timeout, *with); err != nil {
		log.Print(err)
		os.Exit(1)
	}
}

// checkAll carries out all files, and prints what is wrong with each.
func checkAll(files []string, timeout time.Duration, with string) error {
	clone, err := os.MkdirTemp("", "doccheck-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(clone)
	faulty := 0
	for _, file := range files {
		faults, err := links(file)
		if err != nil {
			faults = append(faults, err.Error())
		}
		if err := check(file, clone, timeout, with); err != nil {
			faults = append(faults, fmt.Sprintf("%s: %v", file, err))
		}
		for _, fault := range faults {
			log.Print(fault)
		}
		if len(faults) > 0 {
			faulty++
		}
	}
	if faulty > 0 {
		return fmt.Errorf("%d of %d files are faulty", faulty, len(files))
	}
	return nil
}

// built is the folder of the clone where commands of the documentation put what they build. Programs in it stay
// when the next file is carried out, so that Go does not link them again.
const built = "bin"

// check carries out one file in a folder, which it empties and fills.
func check(file, clone string, timeout time.Duration, with string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	steps, err := parse(string(text), with)
	if err != nil {
		return err
	}
	if err := uses(steps); err != nil {
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
	if err := fill(clone); err != nil {
		return err
	}
	fmt.Printf("%s: %d blocks with commands\n", file, commands)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return run(ctx, clone, script(file, steps))
}

// uses returns an error if the steps of a file use a program that they have not built: only an earlier file
// may have.
func uses(steps []step) error {
	builds := false
	for _, s := range steps {
		builds = builds || strings.Contains(s.script, "go build -o ")
		if strings.Contains(s.script, built+"/") && !builds {
			return fmt.Errorf("line %d needs %s/, and no command before it builds anything there", s.line, built)
		}
	}
	return nil
}

// refill makes a folder the copy of the files of the working tree that Git tracks, or would if they were added. What an earlier file
// left in the folder goes, but for the programs that it built.
const refill = `
find "$0" -mindepth 1 ! -path "$0/bin" ! \( -path "$0/bin/*" ! -path "$0/bin/*/*" -type f -perm -100 \) -delete
git ls-files --cached --others --exclude-standard | grep -vxFf <(git ls-files --deleted) | tar -c -T - | tar -x -C "$0"
`

func fill(clone string) error {
	if output, err := exec.Command("bash", "-euo", "pipefail", "-c", refill, clone).CombinedOutput(); err != nil {
		return fmt.Errorf("filling %s: %w\n%s", clone, err, output)
	}
	return nil
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
