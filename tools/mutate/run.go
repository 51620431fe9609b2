package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
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
	packages []string // whose tests are run
	run      string
	skip     string
	short    bool
	needless bool
	files    *regexp.Regexp // of "file.go:line", the first line of the code to change
	parallel int
	procs    int
	out      io.Writer
}

// program is the tests of a package, compiled with all mutants.
type program struct{ binary, dir string }

// test is one test of a program.
type test struct {
	program *program
	name    string
	reached map[int]bool
	killed  map[int]bool // with options.needless
	took    time.Duration
}

func mutate(ctx context.Context, o options) error {
	scratch, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	m := &mutation{options: o, scratch: scratch, without: map[string]map[int]bool{}}
	if m.pkg, err = m.list(ctx, o.pkg); err != nil {
		return err
	}
	if err := m.build(ctx); err != nil {
		return err
	}
	if err := m.baseline(ctx); err != nil {
		return err
	}
	if err := m.try(ctx); err != nil || !m.needless {
		return err
	}
	return m.printNeedless()
}

// mutation is a run of the command.
type mutation struct {
	options
	scratch  string
	pkg      listed
	without  map[string]map[int]bool // lines whose mutants do not compile, by path
	mutants  []mutant
	programs []*program
	tests    []*test // the quickest first

	mu sync.Mutex // guards test.killed
}

// listed is what "go list" says of a package.
type listed struct {
	Dir, Name, ImportPath string
	GoFiles               []string
}

func (m *mutation) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = m.dir, append(os.Environ(), fmt.Sprint("GOMAXPROCS=", m.procs))
	return cmd
}

func (m *mutation) list(ctx context.Context, pkg string) (listed, error) {
	cmd := m.command(ctx, "go", "list", "-json=Dir,Name,ImportPath,GoFiles", pkg)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return listed{}, fmt.Errorf("go list %s: %w", pkg, err)
	}
	var l listed
	return l, json.Unmarshal(text, &l)
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
		wanted := func(from, to int) bool {
			for line := from; line <= to; line++ {
				if m.without[path][line] {
					return false
				}
			}
			return m.files.MatchString(fmt.Sprint(name, ":", from))
		}
		text, mutants, err := rewrite(path, source, len(m.mutants)+1, wanted)
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
	for i, pkg := range m.packages {
		l, err := m.list(ctx, pkg)
		if err != nil {
			return nil, err
		}
		p := &program{binary: filepath.Join(m.scratch, fmt.Sprint("tests", i)), dir: l.Dir}
		if output, err := m.command(ctx, "go", "test", "-c", "-vet=off", "-gcflags="+m.pkg.ImportPath+"=-e", "-overlay", overlay, "-o", p.binary, pkg).CombinedOutput(); err != nil {
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

// baseline runs each test without a mutant, to see which mutants it reaches. Tests that fail on
// their own are not used.
func (m *mutation) baseline(ctx context.Context) error {
	skip := func(name string) bool { return false }
	if m.skip != "" {
		pattern, err := regexp.Compile(m.skip)
		if err != nil {
			return err
		}
		skip = pattern.MatchString
	}
	for _, p := range m.programs {
		cmd := m.command(ctx, p.binary, "-test.list="+cmp.Or(m.run, "."))
		cmd.Dir = p.dir
		names, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("the tests in %s: %w", p.dir, err)
		}
		for name := range strings.Lines(string(names)) {
			if name = strings.TrimSpace(name); !skip(name) {
				m.tests = append(m.tests, &test{program: p, name: name, killed: map[int]bool{}})
			}
		}
	}
	failed := make([]error, len(m.tests))
	m.each(len(m.tests), func(i int) { failed[i] = m.reach(ctx, m.tests[i], fmt.Sprint("reached", i)) })
	if err := ctx.Err(); err != nil {
		return err
	}
	used := m.tests[:0]
	for i, t := range m.tests {
		if failed[i] != nil {
			fmt.Fprintf(m.out, "not used, since it fails without a mutant: %s in %s: %v\n", t.name, t.program.dir, failed[i])
			continue
		}
		used = append(used, t)
	}
	m.tests = used
	slices.SortStableFunc(m.tests, func(a, b *test) int { return cmp.Compare(a.took, b.took) })
	return nil
}

// tookText is the time of a test or subtest.
var tookText = regexp.MustCompile(`(?m)^ *--- PASS: .* \(([\d.]+s)\)$`)

func (m *mutation) reach(ctx context.Context, t *test, name string) error {
	file := filepath.Join(m.scratch, name)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	output, err := m.execute(ctx, []*test{t}, 10*time.Minute, "MUTANTS_REACHED="+file)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	for _, match := range tookText.FindAllSubmatch(output, -1) { // of the subtests too, and without the start of the program
		took, err := time.ParseDuration(string(match[1]))
		if err != nil {
			return err
		}
		t.took += took
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	t.reached = map[int]bool{}
	for _, word := range strings.Fields(string(text)) {
		if n, err := strconv.Atoi(word); err == nil {
			t.reached[n] = true
		}
	}
	return nil
}

// execute runs tests of one program until one fails, with options.needless all of them. A mutant that allocates without
// an end fails at 8 GiB.
func (m *mutation) execute(ctx context.Context, tests []*test, limit time.Duration, env ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+10*time.Second)
	defer cancel()
	var names []string
	for _, t := range tests {
		names = append(names, regexp.QuoteMeta(t.name))
	}
	p := tests[0].program
	cmd := m.command(ctx, "sh", "-c", `ulimit -v 8388608; exec "$0" "$@"`,
		p.binary, "-test.v", fmt.Sprint("-test.short=", m.short), fmt.Sprint("-test.failfast=", !m.needless), "-test.timeout="+limit.String(), "-test.run=^("+strings.Join(names, "|")+")$")
	cmd.Dir, cmd.Env = p.dir, append(cmd.Env, env...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &output, &output, time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return output.Bytes(), err
}

// each calls f for 0 to n-1, as many at a time as programs may run.
func (m *mutation) each(n int, f func(int)) {
	slots := make(chan struct{}, max(m.parallel, 1))
	var all sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	all.Wait()
}

// try runs the tests for each mutant, prints the survivors in order, and then the score.
func (m *mutation) try(ctx context.Context) error {
	var (
		mu            sync.Mutex
		fates         = make([]fate, len(m.mutants))
		printed, dead int
		timed         int
	)
	m.each(len(m.mutants), func(i int) {
		f := m.fate(ctx, m.mutants[i])
		mu.Lock()
		defer mu.Unlock()
		fates[i] = f
		for ; printed < len(fates) && fates[printed] != "" && ctx.Err() == nil; printed++ {
			x := m.mutants[printed]
			switch f := fates[printed]; f {
			case died:
				dead++
			case timedOut:
				dead++
				timed++
			default:
				fmt.Fprintf(m.out, "%s:%d: %s: %s\n", filepath.Base(x.file), x.line, f, x.what)
			}
		}
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(m.without)) {
		fmt.Fprintf(m.out, "%s: no mutants of lines %v, since one does not compile\n", filepath.Base(path), slices.Sorted(maps.Keys(m.without[path])))
	}
	fmt.Fprintf(m.out, "%s: %d of %d mutants died (%d by the time limit), %.1f %%\n",
		m.pkg.ImportPath, dead, len(m.mutants), timed, 100*float64(dead)/float64(max(len(m.mutants), 1)))
	return nil
}

// fate is what became of a mutant.
type fate string

const (
	died       fate = "died"
	timedOut   fate = "timed out"
	survived   fate = "survived"
	notReached fate = "not reached"
)

// fate runs the tests that reach a mutant: the quickest one of each program, then the others.
func (m *mutation) fate(ctx context.Context, x mutant) fate {
	var first, others [][]*test
	for _, p := range m.programs {
		tests := m.reaching(p, x)
		if len(tests) > 0 {
			first = append(first, tests[:1])
		}
		if len(tests) > 1 {
			others = append(others, tests[1:])
		}
	}
	switch {
	case len(first) == 0:
		return notReached
	case m.needless:
		return m.fateByAll(ctx, x)
	}
	for _, tests := range append(first, others...) {
		if _, f := m.runWith(ctx, x, tests); f != survived {
			return f
		}
	}
	return survived
}

// reaching returns the tests of a program that reach a mutant.
func (m *mutation) reaching(p *program, x mutant) (tests []*test) {
	for _, t := range m.tests {
		if t.program == p && t.reached[x.n] {
			tests = append(tests, t)
		}
	}
	return tests
}

// runWith runs tests with a mutant.
func (m *mutation) runWith(ctx context.Context, x mutant, tests []*test) ([]byte, fate) {
	limit := 5 * time.Second
	for _, t := range tests {
		limit += 3 * t.took
	}
	output, err := m.execute(ctx, tests, limit, "MUTANT="+strconv.Itoa(x.n))
	switch {
	case err == nil:
		return output, survived
	case bytes.Contains(output, []byte("panic: test timed out after")), errors.Is(err, context.DeadlineExceeded):
		return output, timedOut
	}
	return output, died
}
