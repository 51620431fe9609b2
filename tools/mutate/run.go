package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

type options struct {
	dir      string
	pkg      string
	tests    []string
	run      string
	parallel int
	out      io.Writer
}

// program is the tests of a package, compiled with all mutants.
type program struct {
	binary, dir string
	reached     map[int]bool
	took        time.Duration
}

func mutate(ctx context.Context, o options) error {
	scratch, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	pkg, err := list(ctx, o.dir, o.pkg)
	if err != nil {
		return err
	}
	m := &mutation{options: o, scratch: scratch, pkg: pkg, without: map[string]map[int]bool{}}
	if err := m.build(ctx); err != nil {
		return err
	}
	for _, p := range m.programs {
		if err := m.baseline(ctx, p); err != nil {
			return err
		}
	}
	return m.try(ctx)
}

// listed is what "go list" says of a package.
type listed struct {
	Dir, Name, ImportPath string
	GoFiles               []string
}

func list(ctx context.Context, dir, pkg string) (listed, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-json=Dir,Name,ImportPath,GoFiles", pkg)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return listed{}, fmt.Errorf("go list %s: %w", pkg, err)
	}
	var l listed
	return l, json.Unmarshal(text, &l)
}

// mutation is a run of the command.
type mutation struct {
	options
	scratch  string
	pkg      listed
	without  map[string]map[int]bool // by path
	mutants  []mutant
	programs []*program
}

// build compiles the tests with all mutants. Lines whose mutants do not compile are left as
// they are.
func (m *mutation) build(ctx context.Context) error {
	for range 100 {
		overlay, err := m.write()
		if err != nil {
			return err
		}
		output, err := m.compile(ctx, overlay)
		if err == nil {
			return nil
		}
		if !m.leave(output) {
			return fmt.Errorf("the tests do not compile: %w\n%s", err, output)
		}
	}
	return errors.New("too many mutants do not compile")
}

// write writes the files with their mutants, and returns the file for "go build -overlay".
func (m *mutation) write() (overlay string, err error) {
	m.mutants = nil
	replace := map[string]string{}
	put := func(path, text string) error {
		file := filepath.Join(m.scratch, filepath.Base(path))
		replace[path] = file
		return os.WriteFile(file, []byte(text), 0o600)
	}
	for _, name := range m.pkg.GoFiles {
		path := filepath.Join(m.pkg.Dir, name)
		source, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		text, mutants, err := rewrite(path, source, len(m.mutants)+1, m.without[path])
		if err != nil {
			return "", err
		}
		m.mutants = append(m.mutants, mutants...)
		if err := put(path, text); err != nil {
			return "", err
		}
	}
	if err := put(filepath.Join(m.pkg.Dir, "mutant_switch.go"), switchFile(m.pkg.Name, len(m.mutants))); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(m.scratch, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

func (m *mutation) compile(ctx context.Context, overlay string) ([]byte, error) {
	m.programs = nil
	for i, tests := range m.tests {
		l, err := list(ctx, m.dir, tests)
		if err != nil {
			return nil, err
		}
		p := &program{binary: filepath.Join(m.scratch, fmt.Sprint("tests", i)), dir: l.Dir}
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-gcflags="+m.pkg.ImportPath+"=-e", "-overlay", overlay, "-o", p.binary, tests)
		cmd.Dir = m.dir
		if output, err := cmd.CombinedOutput(); err != nil {
			return output, err
		}
		if _, err := os.Stat(p.binary); err == nil { // Without tests there is none.
			m.programs = append(m.programs, p)
		}
	}
	return nil, nil
}

var errorLine = regexp.MustCompile(`(?m)^([^\s:]+\.go):(\d+):`)

// leave leaves the lines with errors as they are, and reports whether there is one it had not left.
func (m *mutation) leave(output []byte) bool {
	found := false
	for _, match := range errorLine.FindAllSubmatch(output, -1) {
		path := filepath.Join(m.pkg.Dir, filepath.Base(string(match[1])))
		line, err := strconv.Atoi(string(match[2]))
		if err != nil || m.without[path][line] {
			continue
		}
		if m.without[path] == nil {
			m.without[path] = map[int]bool{}
		}
		m.without[path][line] = true
		found = true
	}
	return found
}

// baseline runs the tests without a mutant, to see which mutants they reach.
func (m *mutation) baseline(ctx context.Context, p *program) error {
	file := filepath.Join(m.scratch, "reached")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	begin := time.Now()
	if output, err := m.execute(ctx, p, 10*time.Minute, "MUTANTS_REACHED="+file); err != nil {
		return fmt.Errorf("the tests in %s fail without a mutant: %w\n%s", p.dir, err, output)
	}
	p.took = time.Since(begin)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	p.reached = map[int]bool{}
	for _, word := range strings.Fields(string(text)) {
		if n, err := strconv.Atoi(word); err == nil {
			p.reached[n] = true
		}
	}
	return nil
}

// execute runs the tests of a program until one fails.
func (m *mutation) execute(ctx context.Context, p *program, limit time.Duration, env ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.binary, "-test.failfast", "-test.timeout="+limit.String(), "-test.run="+m.run)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), env...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &output, &output, time.Second
	err := cmd.Run()
	return output.Bytes(), err
}

// try runs the tests for each mutant and prints the survivors.
func (m *mutation) try(ctx context.Context) error {
	slots := make(chan struct{}, m.parallel)
	survived := make([]string, len(m.mutants))
	var all sync.WaitGroup
	for i, x := range m.mutants {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			survived[i] = m.fate(ctx, x)
		})
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	dead := 0
	for i, x := range m.mutants {
		if survived[i] == "" {
			dead++
			continue
		}
		path, err := filepath.Rel(m.pkg.Dir, x.file)
		if err != nil {
			path = x.file
		}
		fmt.Fprintf(m.out, "%s:%d: %s: %s\n", path, x.line, survived[i], x.what)
	}
	fmt.Fprintf(m.out, "%s: %d of %d mutants died, %.1f %%\n", m.pkg.ImportPath, dead, len(m.mutants), 100*float64(dead)/float64(max(len(m.mutants), 1)))
	return nil
}

// fate is how a mutant survived, or "".
func (m *mutation) fate(ctx context.Context, x mutant) string {
	how := "not reached"
	programs := slices.Clone(m.programs)
	slices.SortFunc(programs, func(a, b *program) int { return int(a.took - b.took) })
	for _, p := range programs {
		if !p.reached[x.n] {
			continue
		}
		how = "survived"
		if _, err := m.execute(ctx, p, 3*p.took+5*time.Second, "MUTANT="+strconv.Itoa(x.n)); err != nil {
			return ""
		}
	}
	return how
}
