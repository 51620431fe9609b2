// Command benchdoc makes a page of Markdown of the benchmarks' output: what was
// measured, on what, beside whom, and which budgets hold. "make bench" runs it;
// nothing on the page is typed by hand.
//
//	benchdoc -interop DIR -o docs/benchmarks.md OUTPUT...
//
// The output is what "go test -bench" prints (golang.org/x/perf/benchfmt). The
// last part of a benchmark's name that is peer=NAME says who was measured, and
// becomes the column; what is left of the name is the row.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("benchdoc: ")
	interop := flag.String("interop", ".", "the folder of the module that was measured, for the versions of its dependencies")
	out := flag.String("o", "", "the file to write; standard output if empty")
	flag.Parse()
	r, err := read(flag.Args())
	if err == nil {
		err = checkSections(r)
	}
	if err != nil {
		log.Fatal(err)
	}
	var page bytes.Buffer
	writePage(&page, r, environment(*interop, r))
	if *out == "" {
		_, err = os.Stdout.Write(page.Bytes())
	} else {
		err = os.WriteFile(*out, page.Bytes(), 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// environment is what was measured on, as rows of two cells.
func environment(interop string, r *results) [][2]string {
	rows := [][2]string{
		{"date", time.Now().UTC().Format(time.DateOnly)},
		{"machine", fmt.Sprintf("%s, %d cores, %s/%s", r.config["cpu"], runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)},
	}
	if load := loadAverage(); load != "" {
		rows = append(rows, [2]string{"load average of the last 1, 5 and 15 minutes, at the end", load})
	}
	rows = append(rows,
		[2]string{"Go", runtime.Version()},
		[2]string{"dynxds", command(interop, "git", "describe", "--always", "--dirty")})
	for _, module := range []string{"google.golang.org/grpc", "google.golang.org/protobuf", "github.com/envoyproxy/go-control-plane"} {
		rows = append(rows, [2]string{module, command(interop, "go", "list", "-m", "-f", "{{.Version}}", module)})
	}
	return rows
}

// command returns what a command prints, or that it failed.
func command(dir string, args ...string) string {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return fmt.Sprintf("unknown (%v)", err)
	}
	return strings.TrimSpace(string(out))
}

// loadAverage is empty where the system does not report it.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(text))[:3], ", ")
}
