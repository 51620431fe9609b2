// Command size prints how many lines of Go the repository has by module and room, and its sums. It fails if a sum is above
// its ceiling. A line counts if it has a token that is not a comment; files that are generated do not count.
//
//	cd tools && go run ./size -C .. -plugin 42600 -other 44000 -tests 111600 -words 88000
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// smallRoom is the lines of code and tests below which a room has no line of its own.
const smallRoom = 750

func main() {
	dir := flag.String("C", ".", "the repository's folder")
	var ceilings sums
	flag.IntVar(&ceilings.plugin, "plugin", 0, "ceiling of the lines of code that the plugin links")
	flag.IntVar(&ceilings.other, "other", 0, "ceiling of all other lines of code")
	flag.IntVar(&ceilings.tests, "tests", 0, "ceiling of the lines of tests")
	flag.IntVar(&ceilings.words, "words", 0, "ceiling of the words of docs, README and CHANGELOG")
	flag.Parse()
	if err := run(os.Stdout, *dir, ceilings); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

// sums are what the ceilings are for.
type sums struct {
	plugin, other, tests, words int
}

// room is the lines of a part of a module.
type room struct {
	code, tests int
}

func (r room) plus(other room) room {
	return room{r.code + other.code, r.tests + other.tests}
}

func run(out io.Writer, dir string, ceilings sums) error {
	root, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	tree, err := read(root)
	if err != nil {
		return err
	}
	plugin, err := linked(root)
	if err != nil {
		return err
	}
	words, err := wordsOfDocs(root)
	if err != nil {
		return err
	}
	now := sums{words: words}
	for folder, lines := range tree.folders {
		now.tests += lines.tests
		if plugin[folder] {
			now.plugin += lines.code
		} else {
			now.other += lines.code
		}
	}
	tree.print(out)
	return now.check(out, ceilings)
}

// check prints the sums, and returns an error that names those above their ceiling.
func (s sums) check(out io.Writer, ceilings sums) error {
	var above []string
	for _, sum := range []struct {
		what         string
		now, ceiling int
	}{
		{"code of the plugin", s.plugin, ceilings.plugin},
		{"all other code", s.other, ceilings.other},
		{"tests", s.tests, ceilings.tests},
		{"words of docs, README and CHANGELOG", s.words, ceilings.words},
	} {
		fmt.Fprintf(out, "%8d  %s; its ceiling is %d\n", sum.now, sum.what, sum.ceiling)
		if sum.now > sum.ceiling {
			above = append(above, fmt.Sprintf("%s: %d, %d above its ceiling", sum.what, sum.now, sum.now-sum.ceiling))
		}
	}
	if above != nil {
		return fmt.Errorf("ceilings (SIZE_… in the Makefile) go down, and rise only for a feature that was asked for:\n  %s", strings.Join(above, "\n  "))
	}
	return nil
}

// print writes a table of modules and rooms. Small rooms of a module are one line.
func (t *tree) print(out io.Writer) {
	fmt.Fprintln(out, "    code    tests")
	rooms := map[string]map[string]room{}
	sizes := map[string]room{}
	for folder, lines := range t.folders {
		module := t.moduleOf(folder)
		if rooms[module] == nil {
			rooms[module] = map[string]room{}
		}
		name := t.roomOf(module, folder)
		rooms[module][name] = rooms[module][name].plus(lines)
		sizes[module] = sizes[module].plus(lines)
	}
	for _, module := range slices.Sorted(maps.Keys(rooms)) {
		fmt.Fprintf(out, "%8d %8d  module %s\n", sizes[module].code, sizes[module].tests, module)
		var small []string
		var sum room
		for _, name := range slices.Sorted(maps.Keys(rooms[module])) {
			lines := rooms[module][name]
			if lines.code+lines.tests < smallRoom {
				small, sum = append(small, name), sum.plus(lines)
				continue
			}
			fmt.Fprintf(out, "%8d %8d    %s\n", lines.code, lines.tests, name)
		}
		switch len(small) {
		case 0:
		case 1:
			fmt.Fprintf(out, "%8d %8d    %s\n", sum.code, sum.tests, small[0])
		default:
			fmt.Fprintf(out, "%8d %8d    %d small rooms\n", sum.code, sum.tests, len(small))
		}
	}
}

// linked returns the folders, relative to the root, of the packages that a program links which imports the plugin.
func linked(root string) (map[string]bool, error) {
	list := exec.Command("go", "list", "-deps", "-f", "{{.Dir}}", ".")
	list.Dir = root
	list.Stderr = os.Stderr
	dirs, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -deps in %s: %v", root, err)
	}
	folders := map[string]bool{}
	for dir := range strings.Lines(string(dirs)) {
		folder, err := filepath.Rel(root, strings.TrimSpace(dir))
		if err == nil {
			folders[folder] = true
		}
	}
	return folders, nil
}

// wordsOfDocs returns the words of docs, README and CHANGELOG.
func wordsOfDocs(root string) (words int, err error) {
	pages := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CHANGELOG.md")}
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		return err
	})
	for _, page := range pages {
		if err == nil {
			var text []byte
			text, err = os.ReadFile(page)
			words += len(bytes.Fields(text))
		}
	}
	return words, err
}
