// Command apilist lists the exported declarations of a module, one a line, so
// that a change of API is seen in review:
//
//	go run ./apilist -C .. -o ../docs/api.txt          # write the list
//	go run ./apilist -C .. -o ../docs/api.txt -check   # compare with it
//
// A declaration is a function, type, method, constant or variable. A method counts
// if its type is exported; the methods of an interface and the fields of a struct
// are part of their type's line. Packages that no other module is meant to import
// are left out: those in internal folders, generated code in proto, examples, and
// commands.
//
// The command fails if there are more declarations than -max allows, or if one of them
// cannot be used from outside because a parameter, result or type of it is
// internal.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	dir := flag.String("C", ".", "the `folder` of the module")
	out := flag.String("o", "", "the `file` that holds the list; printed if empty")
	check := flag.Bool("check", false, "compare with the file instead of writing it")
	limit := flag.Int("max", 0, "fail if there are more declarations than `N`; 0 is no limit")
	flag.Parse()
	if err := run(*dir, *out, *check, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "apilist:", err)
		os.Exit(1)
	}
}

func run(dir, out string, check bool, limit int) error {
	api, err := load(dir)
	if err != nil {
		return err
	}
	var list bytes.Buffer
	for _, line := range api.lines {
		fmt.Fprintln(&list, line)
	}
	switch {
	case out == "":
		os.Stdout.Write(list.Bytes())
	case check:
		old, err := os.ReadFile(out)
		if err != nil {
			return err
		}
		if diff := difference(string(old), list.String()); diff != "" {
			return fmt.Errorf("the exported declarations differ from %s; if that is meant, run \"make api\" and commit it:\n%s", out, diff)
		}
	default:
		if err := os.WriteFile(out, list.Bytes(), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "%d exported declarations in %d packages\n", len(api.lines), api.packages)
	if len(api.unusable) > 0 {
		return fmt.Errorf("these need a type of an internal package, which no other module can name:\n%s", strings.Join(api.unusable, "\n"))
	}
	if limit > 0 && len(api.lines) > limit {
		return fmt.Errorf("%d exported declarations, more than the %d allowed", len(api.lines), limit)
	}
	return nil
}

// difference returns the lines that only one of two sorted lists has, marked "-"
// for the old one and "+" for the new one.
func difference(old, new string) string {
	in := func(text string) map[string]bool {
		lines := make(map[string]bool)
		for line := range strings.Lines(text) {
			lines[line] = true
		}
		return lines
	}
	inOld, inNew := in(old), in(new)
	var diff strings.Builder
	for line := range strings.Lines(old) {
		if !inNew[line] {
			diff.WriteString("-" + line)
		}
	}
	for line := range strings.Lines(new) {
		if !inOld[line] {
			diff.WriteString("+" + line)
		}
	}
	return diff.String()
}
