package xdsclient

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

// TestTranscripts follows the transcripts of testdata/transcripts. A file has tests and beginnings, each of which ends at the next one
// or at a comment after an empty line:
//
//	=: started               a beginning, for tests with "@ after started"
//	watch a -> stream; req a
//
//	== name of a test
//	@ over SotW              what transcriptTest.over is; over both protocols if there is none
//	@ disk                   transcriptTest.disk
//	@ servers x y | none     transcriptTest.servers: two, of which the second has no features
//	@ enveloped              transcriptTest.enveloped; likewise changes, direct and alone
//	@ authority x low last   an authority of the bootstrap, with its servers; they speak what "@ over" before it says
//	@ after started
//	send 1 a=x -> ack 1 a; a = x
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	xdstest.NoError(t, err)
	if len(files) == 0 {
		t.Fatal("there are no transcripts")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			f := readTranscripts(t, golden.Read(t, file))
			t.Cleanup(func() { golden.Check(t, file, f.rewritten()) }) // after the subtests
			runTranscripts(t, f.tests)
		})
	}
}

// transcriptFile is a file of transcripts.
type transcriptFile struct {
	lines []string
	tests []transcriptTest
	// from is the line of the first step of each test, and begun how many steps are in its beginning.
	from, begun []int
}

func readTranscripts(t *testing.T, text string) *transcriptFile {
	t.Helper()
	f := &transcriptFile{lines: strings.Split(text, "\n")}
	beginnings := make(map[string]string)
	beginning := "" // that is being read
	for i, line := range f.lines {
		last := len(f.tests) - 1
		name, isBeginning := strings.CutPrefix(line, "=: ")
		test, isTest := strings.CutPrefix(line, "== ")
		attribute, isAttribute := strings.CutPrefix(line, "@ ")
		switch {
		case isBeginning:
			beginning = name
		case isTest:
			beginning = ""
			f.tests, f.from, f.begun = append(f.tests, transcriptTest{name: test}), append(f.from, i+1), append(f.begun, 0)
			if golden.Updating() {
				f.tests[last+1].got = &transcriptEvents{steps: make(map[int]map[string][]string), wrong: make(map[int]bool)}
			}
		case isAttribute:
			f.from[last]++
			if kind, value, _ := strings.Cut(attribute, " "); kind == "after" {
				f.tests[last].steps = beginnings[value]
				f.begun[last] = strings.Count(continued.ReplaceAllString(beginnings[value], "; "), "\n")
			} else if !f.tests[last].set(kind, value) {
				t.Fatalf("line %d has an unknown attribute: %s", i+1, line)
			}
		case beginning != "":
			beginnings[beginning] += line + "\n"
		case last >= 0:
			f.tests[last].steps += line + "\n"
		}
	}
	return f
}

// set sets a field by its name, and reports whether there is one.
func (x *transcriptTest) set(name, value string) bool {
	switch name {
	case "over":
		x.over = value
	case "servers":
		for features := range strings.SplitSeq(value, "|") {
			x.servers = append(x.servers, strings.TrimPrefix(strings.TrimSpace(features), "none"))
		}
	case "disk":
		x.disk = true
	case "enveloped":
		x.enveloped = true
	case "changes":
		x.changes = true
	case "alone":
		x.alone = true
	case "direct":
		x.direct = true
	case "authority":
		words, features := strings.Fields(value), make([][]string, len(transcriptServers))
		var servers []int
		for _, word := range words[1:] {
			i := slices.Index(transcriptServers, word)
			if servers = append(servers, i); x.over == "delta" {
				features[i] = []string{"delta"}
			}
		}
		x.authorities = append(x.authorities, authorityWith(words[0], features, servers...))
	default:
		return false
	}
	return true
}

// transcriptEvents are what followed from steps, by their lines and the protocol, and from which something else should have.
type transcriptEvents struct {
	mu    sync.Mutex
	steps map[int]map[string][]string
	wrong map[int]bool
}

func (e *transcriptEvents) add(step int, protocol string, got []string, right bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.steps[step] == nil {
		e.steps[step] = make(map[string][]string)
	}
	e.steps[step][protocol] = got
	e.wrong[step] = e.wrong[step] || !right
}

// dropped is in place of a line that goes on with what followed before.
const dropped = "\x00"

// rewritten is the file with what followed from the steps from which something else should have.
func (f *transcriptFile) rewritten() string {
	lines := slices.Clone(f.lines)
	goesOn := func(line int) bool { return strings.HasPrefix(strings.TrimSpace(f.lines[line]), "-> ") }
	for i, test := range f.tests {
		if test.got == nil {
			continue
		}
		for at, got := range test.got.steps {
			if at < f.begun[i] || !test.got.wrong[at] {
				continue // the step is right, or in a beginning, and stays
			}
			line := f.from[i]
			for range at - f.begun[i] {
				for line++; goesOn(line); line++ {
				}
			}
			step, _, _ := strings.Cut(lines[line], "->")
			lines[line] = written(strings.TrimSpace(step), overBoth(got))
			for line++; goesOn(line); line++ {
				lines[line] = dropped
			}
		}
	}
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return line == dropped }), "\n")
}

// written is a step and what follows from it, in several lines if it is long.
func written(step string, events []string) string {
	const width = 120
	lines, line := "", step
	for i, event := range events {
		switch {
		case i == 0:
			line += " -> " + event
		case len(line)+len(event) > width:
			lines, line = lines+line+"\n", "    -> "+event
		default:
			line += "; " + event
		}
	}
	return lines + line
}

// overBoth joins what followed over the protocols, in an order that holds over each.
func overBoth(got map[string][]string) (all []string) {
	sotw, delta := got["sotw"], got["delta"]
	if len(got) == 1 {
		return append(sotw, delta...)
	}
	for i, event := range sotw {
		at := slices.Index(delta, event)
		if at < 0 {
			all = append(all, "sotw "+event)
			continue
		}
		for _, before := range delta[:at] {
			all = append(all, "delta "+before)
		}
		delta = delta[at+1:]
		if name, ok := strings.CutPrefix(event, "req +"); ok && i > 0 && sotw[i-1] == "req -"+name {
			all[len(all)-1], event = "", "again "+name
		}
		all = append(all, event)
	}
	for _, event := range delta {
		all = append(all, "delta "+event)
	}
	return slices.DeleteFunc(all, func(event string) bool { return event == "" })
}
