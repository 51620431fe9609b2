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
func links(file string) (faults []string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for i, line := range prose(string(text)) {
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			target, section, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue
			}
			to := file
			if target != "" {
				to = path.Join(path.Dir(file), target)
			}
			fault, err := follow(to, section)
			if err != nil {
				return nil, err
			}
			if fault != "" {
				faults = append(faults, fmt.Sprintf("%s:%d: the link %s: %s", file, i+1, m[1], fault))
			}
		}
	}
	return faults, nil
}

// follow returns what is wrong with a link, "" for nothing.
func follow(file, section string) (fault string, err error) {
	info, err := os.Stat(file)
	switch {
	case os.IsNotExist(err):
		return "there is no " + file, nil
	case err != nil:
		return "", err
	case section == "" || info.IsDir() || path.Ext(file) != ".md":
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if !sections(string(text))[section] {
		return file + " has no such section", nil
	}
	return "", nil
}

// prose returns the lines of a text; those of code blocks are empty.
func prose(text string) []string {
	lines := strings.Split(text, "\n")
	code := false
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
			lines[i] = ""
		} else if code {
			lines[i] = ""
		}
	}
	return lines
}

// sections are the anchors of a text: those of its headings, as GitHub makes them, and explicit ones.
func sections(text string) map[string]bool {
	all := make(map[string]bool)
	for _, line := range prose(text) {
		for _, m := range anchor.FindAllStringSubmatch(line, -1) {
			all[m[1]] = true
		}
		m := heading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		slug := slugOf(m[1])
		for n := 1; all[slug]; n++ {
			slug = fmt.Sprintf("%s-%d", slugOf(m[1]), n)
		}
		all[slug] = true
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
