// Command floors checks that the imports of a module, or of the modules of a workspace,
// point down, as the table of rooms says, and writes that table into the architecture page:
//
//	go run ./floors -C .. -page ../docs/internals/architecture.md          # write the table, check the imports
//	go run ./floors -C .. -page ../docs/internals/architecture.md -check   # compare the table, check the imports
//
// In the page, the table stands between the lines "<!-- floors -->" and
// "<!-- /floors -->". Imports of tests are not checked.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// module is the path of the module that is checked; the others lie below it.
const module = "github.com/dynxds/dynxds"

func main() {
	dir := flag.String("C", ".", "the `folder` of the module or workspace")
	page := flag.String("page", "", "the `file` that shows the table")
	check := flag.Bool("check", false, "fail if the page's table is not up to date, instead of writing it")
	flag.Parse()
	if err := run(*dir, *page, *check); err != nil {
		fmt.Fprintln(os.Stderr, "floors:", err)
		os.Exit(1)
	}
}

func run(dir, page string, check bool) error {
	if err := writeTable(page, check); err != nil {
		return err
	}
	packages, err := imports(dir)
	if err != nil {
		return err
	}
	if faults := violations(rooms, packages); len(faults) > 0 {
		return errors.New(strings.Join(faults, "\n"))
	}
	return nil
}

// imports returns the packages of the modules that are worked on in dir, with what each imports.
func imports(dir string) (map[string][]string, error) {
	command := exec.Command("go", "list", "-f", "{{.ImportPath}}{{range .Imports}} {{.}}{{end}}", "work")
	command.Dir = dir
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%v: %w: %s", command, err, stderr.String())
	}
	packages := make(map[string][]string)
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		packages[fields[0]] = fields[1:]
	}
	return packages, nil
}

const begin, end = "<!-- floors -->\n", "<!-- /floors -->\n"

// writeTable puts the table of rooms into the page, or with check compares them.
func writeTable(page string, check bool) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	head, rest, found := strings.Cut(string(text), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no place for the table: it needs the lines %q and %q", page, begin, end)
	}
	updated := head + begin + "\n" + render(rooms) + "\n" + end + tail
	switch {
	case updated == string(text):
		return nil
	case check:
		return fmt.Errorf("the table of rooms in %s is not that of tools/floors: run \"make floors\" and commit it", page)
	}
	return os.WriteFile(page, []byte(updated), 0o644)
}

// render returns the table of rooms as Markdown.
func render(rooms []room) string {
	var b strings.Builder
	b.WriteString("| floor | package | what lives there | must never |\n| --- | --- | --- | --- |\n")
	for _, r := range rooms {
		names := make([]string, len(r.folders))
		for i, folder := range r.folders {
			if folder == "" {
				folder = "dynxds"
			}
			names[i] = "`" + folder + "`"
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", r.floor, strings.Join(names, ", "), r.holds, r.never)
	}
	return b.String()
}
