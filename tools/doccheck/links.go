package main

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"unicode"
)

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`^#+ +(.*?) *$`)
	anchor  = regexp.MustCompile(`<a (?:id|name)="([^"]+)">`)
)

// links returns the errors of the links of a file: those to files that are not there, and to sections that these do
// not have. Links to other sites are not followed.
func links(file, text string) (faults []string) {
	for i, line := range prose(text) {
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			target, section, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue
			}
			to := file
			if target != "" {
				to = path.Join(path.Dir(file), target)
			}
			fault := func(what string) {
				faults = append(faults, fmt.Sprintf("%s:%d: the link %s: %s", file, i+1, m[1], what))
			}
			if _, err := os.Stat(to); err != nil {
				fault("there is no " + to)
			} else if section != "" && path.Ext(to) == ".md" {
				switch there, err := os.ReadFile(to); {
				case err != nil:
					fault(err.Error())
				case !sections(string(there))[section]:
					fault(to + " has no such section")
				}
			}
		}
	}
	return faults
}

// prose returns the lines of a text; those of code blocks are empty.
func prose(text string) []string {
	return strings.Split(block.ReplaceAllStringFunc(text, func(code string) string { return strings.Repeat("\n", strings.Count(code, "\n")) }), "\n")
}

// sections are the anchors of a text: those of its headings, as GitHub makes them, and explicit ones.
func sections(text string) map[string]bool {
	all := make(map[string]bool)
	for _, line := range prose(text) {
		for _, m := range anchor.FindAllStringSubmatch(line, -1) {
			all[m[1]] = true
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			slug := slugOf(m[1])
			for n := 1; all[slug]; n++ {
				slug = fmt.Sprintf("%s-%d", slugOf(m[1]), n)
			}
			all[slug] = true
		}
	}
	return all
}

func slugOf(title string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case c == '-' || c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c):
			return unicode.ToLower(c)
		}
		return -1
	}, title)
}
