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
		log.Fatal(err)
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
		text, err := os.ReadFile(file)
		faults := links(file, string(text))
		if err == nil {
			err = check(file, string(text), clone, timeout, with)
		}
		if err != nil {
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

// check carries out the commands of a file in a folder, which it empties and fills.
func check(file, text, clone string, timeout time.Duration, with string) error {
	blocks, err := parse(file, text, with)
	if err != nil {
		return err
	}
	for _, block := range blocks.skipped {
		fmt.Println(block)
	}
	if blocks.commands == 0 {
		return nil
	}
	if err := fill(clone); err != nil {
		return err
	}
	fmt.Printf("%s: %d blocks with commands\n", file, blocks.commands)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return run(ctx, clone, blocks.script)
}

// refill makes a folder the copy of the files of the working tree that Git tracks, or would if they were added. What an earlier file
// left in the folder goes, but for the programs that it built, so that Go does not link them again.
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
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		return fmt.Errorf("%w; the end of the output:\n%s", err, out[max(0, len(out)-8<<10):])
	}
	return nil
}
