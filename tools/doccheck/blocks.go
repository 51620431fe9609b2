package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var (
	// block is a code block, with the comments that are for it.
	block  = regexp.MustCompile("(?ms)((?:^<!-- doc:[^\n]*\n\\s*)*)^```[ \t]*([^\\s`]*)[^\n`]*\n(.*?)(^```$|\\z)")
	marker = regexp.MustCompile(`(?m)^<!-- doc:(?: (\S+?),? (.+) -->|.*)$`)
	// typed is what a reader types of a console.
	typed = regexp.MustCompile(`(?m)^[$>] (.*)$`)
)

// blocks are the code blocks of a file.
type blocks struct {
	// script has them as one shell script.
	script string
	// commands counts those with commands.
	commands int
	// skipped says which are not carried out: those that are marked so, or "with" another name.
	skipped []string
}

// parse reads a file. Its error joins all errors. One is the use of a program that no command of the file has built, as only an earlier
// file may have.
func parse(file, text, with string) (b blocks, err error) {
	var errs []error
	fault := func(at int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("line %d: %s", 1+strings.Count(text[:at], "\n"), fmt.Sprintf(format, args...)))
	}
	b.script = "set -euo pipefail\nexport CLONE=$PWD\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
	builds, end := false, 0
	for _, m := range append(block.FindAllStringSubmatchIndex(text, -1), nil) {
		before := text[end:]
		if m != nil {
			before = text[end:m[0]]
		}
		for _, alone := range marker.FindAllStringIndex(before, -1) {
			fault(end+alone[0], "there is no code block after the comment")
		}
		if m == nil {
			break
		}
		end = m[1]
		comments, language, code := text[m[2]:m[3]], text[m[4]:m[5]], text[m[6]:m[7]]
		line := 1 + strings.Count(text[:m[3]], "\n")
		if m[8] == m[9] {
			fault(m[3], "the code block does not end")
		}
		var skip, into, also string
		folder := `"$CLONE"`
		for _, c := range marker.FindAllStringSubmatch(comments, -1) {
			switch c[1] {
			case "skip":
				skip = c[2]
			case "with":
				if c[2] != with {
					skip = "it needs " + c[2]
				}
			case "file":
				into = c[2]
			case "in":
				folder = `"$CLONE"/` + quote(c[2])
			case "also":
				also += c[2] + "\n"
			case "":
				fault(m[2], "%s is not complete", c[0])
			default:
				fault(m[2], "doc: %s is unknown", c[1])
			}
		}
		commands := code
		if language == "console" {
			commands = ""
			for _, c := range typed.FindAllStringSubmatch(code, -1) {
				commands += c[1] + "\n"
			}
		}
		switch {
		case into == "" && language != "sh" && language != "console":
			continue
		case skip != "":
			b.skipped = append(b.skipped, fmt.Sprintf("%s:%d: not carried out: %s", file, line, skip))
			continue
		case into != "":
			commands = fmt.Sprintf("printf %%s %s > %s\n", quote(code), quote(into))
		default:
			if commands = also + commands; commands != "" {
				b.commands++
			}
			builds = builds || strings.Contains(commands, "go build -o ")
			if strings.Contains(commands, "bin/") && !builds {
				fault(m[3], "it needs bin/, and no command before it builds anything there")
			}
		}
		b.script += fmt.Sprintf("echo %s >&2\nmkdir -p %s\ncd %s\n%s", quote(fmt.Sprintf("== %s:%d", file, line)), folder, folder, commands)
	}
	return b, errors.Join(errs...)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
