package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// step is one code block, and what to do with it.
type step struct {
	line int
	// script is the script to run; empty: none.
	script string
	// skip is why it is not.
	skip string
	// file is the file to write the block to, and text is the block.
	file, text string
	// in is the folder, empty for that of the clone.
	in string
}

var (
	fence  = regexp.MustCompile("^```(\\S*)\\s*$")
	marker = regexp.MustCompile(`^<!-- doc: (\S+?),? (.+) -->$`)
)

// parse returns the steps of a text; blocks that are marked "with" another name are skipped. Its error joins all errors.
func parse(text, with string) ([]step, error) {
	var (
		steps []step
		errs  []error
		next  step // what comments say of the next block
		also  []string
	)
	fault := func(line int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("line %d: %s", line, fmt.Sprintf(format, args...)))
	}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		if strings.HasPrefix(lines[i], "<!-- doc:") {
			m := marker.FindStringSubmatch(lines[i])
			switch {
			case m == nil:
				fault(i+1, "%s is not complete", lines[i])
			case m[1] == "skip":
				next.skip = m[2]
			case m[1] == "with":
				if m[2] != with {
					next.skip = "it needs " + m[2]
				}
			case m[1] == "file":
				next.file = m[2]
			case m[1] == "in":
				next.in = m[2]
			case m[1] == "also":
				also = append(also, m[2])
			default:
				fault(i+1, "doc: %s is unknown", m[1])
			}
			continue
		}
		m := fence.FindStringSubmatch(lines[i])
		if m == nil {
			if (next != step{} || also != nil) && strings.TrimSpace(lines[i]) != "" {
				fault(i+1, "there is no code block after the comment")
				next, also = step{}, nil
			}
			continue
		}
		next.line = i + 1
		var block []string
		for i++; i < len(lines) && lines[i] != "```"; i++ {
			block = append(block, lines[i])
		}
		if i == len(lines) {
			fault(next.line, "the code block does not end")
		}
		if s, used := finish(next, m[1], block, also); used {
			steps = append(steps, s)
		}
		next, also = step{}, nil
	}
	return steps, errors.Join(errs...)
}

// finish makes a step of a block. It is false if there is nothing to do.
func finish(s step, language string, block, also []string) (step, bool) {
	switch {
	case s.file != "":
		s.text = strings.Join(block, "\n") + "\n"
		return s, true
	case language == "sh":
		s.script = strings.Join(append(also, block...), "\n")
	case language == "console":
		s.script = strings.Join(append(also, typed(block)...), "\n")
	default:
		return s, false
	}
	if s.skip != "" {
		s.script = ""
	}
	return s, true
}

// typed is what a reader types of a console.
func typed(block []string) []string {
	var commands []string
	for _, line := range block {
		if c, ok := strings.CutPrefix(line, "$ "); ok {
			commands = append(commands, c)
		} else if c, ok := strings.CutPrefix(line, "> "); ok {
			commands = append(commands, c)
		}
	}
	return commands
}

// script is the steps as one shell script.
func script(file string, steps []step) string {
	var b strings.Builder
	b.WriteString("set -euo pipefail\nexport CLONE=$PWD\n")
	b.WriteString("trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n")
	for _, s := range steps {
		if s.skip != "" {
			continue
		}
		folder := `"$CLONE"`
		if s.in != "" {
			folder = `"$CLONE"/` + quote(s.in)
		}
		fmt.Fprintf(&b, "echo %s >&2\nmkdir -p %s\ncd %s\n", quote(fmt.Sprintf("== %s:%d", file, s.line)), folder, folder)
		if s.file != "" {
			fmt.Fprintf(&b, "printf %%s %s > %s\n", quote(s.text), quote(s.file))
			continue
		}
		fmt.Fprintf(&b, "%s\n", s.script)
	}
	return b.String()
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
