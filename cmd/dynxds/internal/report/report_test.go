package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/scenario"
)

var setUp = SetUp{
	Target: "xds:///echo.example.com", Bootstrap: "/tmp/b.json", ControlPlane: "127.0.0.1:1",
	Backends: []Backend{{"stable-1", "stable", "127.0.0.1:2"}, {"canary-1", "canary", "127.0.0.1:3"}},
	Methods:  []string{"UnaryCall", "EmptyCall"},
	Duration: 15 * time.Second,
}

var (
	counts = scenario.Counts{
		{Method: "UnaryCall", Backend: "stable-1"}: 900, {Method: "UnaryCall", Backend: "canary-1"}: 100,
		{Method: "EmptyCall", Backend: "stable-1"}: 1000,
	}
	speedy = scenario.Speed{Rate: 700, P50: 200 * time.Microsecond, P99: 12345 * time.Microsecond}
	judged = scenario.Result{
		Step: 1, Steps: 2, Name: "split", Arrived: 4500 * time.Microsecond, Counts: counts,
		Checks: []scenario.Check{
			{Methods: []string{"UnaryCall"}, Backend: "stable-1", Want: 0.9, Got: 0.9, Tolerance: 0.047, RPCs: 1000},
			{Methods: []string{"UnaryCall"}, Backend: "canary-1", Want: 0.1, Got: 0.1, Tolerance: 0.047, RPCs: 1000},
			{Methods: []string{"EmptyCall"}, Backend: "stable-1", Want: 1, Got: 1, RPCs: 1000},
			{Methods: []string{"EmptyCall"}, Backend: "canary-1", RPCs: 1000},
		},
		Answered: 2000, Failed: 1, Excused: 1, Speed: speedy,
	}
	failed = scenario.Result{
		Step: 2, Steps: 2, Name: "shift", Counts: counts, Answered: 2000,
		Faults: []string{"no RPC has shown the change within 6s"}, Speed: speedy,
	}
)

// tell tells a whole story, with a first step that is observed and a second
// that is not.
func tell(r Reporter) {
	r.SetUp(setUp)
	r.Announced(scenario.Announcement{Step: 1, Steps: 2, Name: "split", Text: strings.Repeat("Plain words. ", 10)})
	for i := range 3 {
		r.Progressed(scenario.Progress{
			Step: 1, Steps: 2, Elapsed: time.Duration(i) * time.Second, Planned: 15 * time.Second,
			Counts: counts, Arrived: i > 0, Speed: speedy,
		})
	}
	r.Judged(judged)
	r.Announced(scenario.Announcement{Step: 2, Steps: 2, Name: "shift", Text: "More."})
	r.Judged(failed)
	r.Finished(scenario.Summary{
		Observed: 1, Steps: 2, Answered: 4000, Failed: 1, Excused: 1, Elapsed: 15 * time.Second, Err: errors.New("step 2"),
	})
}

const story = `A control plane, 2 backends and a client, all in this process, for 15s.

  client         xds:///echo.example.com
  bootstrap      GRPC_XDS_BOOTSTRAP=/tmp/b.json
  control plane  127.0.0.1:1
  backends       127.0.0.1:2   stable-1   cluster "stable"
                 127.0.0.1:3   canary-1   cluster "canary"

Step 1 of 2: split
Plain words. Plain words. Plain words. Plain words. Plain words. Plain words.
Plain words. Plain words. Plain words. Plain words.
  0.0 s   stable-1 95.0%   canary-1  5.0%   700 RPC/s   0 failed
  1.0 s   stable-1 95.0%   canary-1  5.0%   700 RPC/s   0 failed
  2.0 s   stable-1 95.0%   canary-1  5.0%   700 RPC/s   0 failed

backend    cluster   UnaryCall  EmptyCall      all
stable-1   stable        90.0%     100.0%    95.0%  ###################
canary-1   canary        10.0%       0.0%     5.0%  #
RPCs                     1,000      1,000    2,000
Expected (± is 5 standard deviations): of UnaryCall stable-1 90±4.7%, canary-1
  10±4.7%; of EmptyCall stable-1 100%.
700 RPC/s   p50 0.20 ms   p99 12.3 ms
Observed: 4.50 ms from the change to the first RPC that shows it. 2,000 RPCs
  answered, 1 failed, in flight on the connection that broke.

Step 2 of 2: shift
More.

backend    cluster   UnaryCall  EmptyCall      all
stable-1   stable        90.0%     100.0%    95.0%  ###################
canary-1   canary        10.0%       0.0%     5.0%  #
RPCs                     1,000      1,000    2,000
700 RPC/s   p50 0.20 ms   p99 12.3 ms
NOT OBSERVED: no RPC has shown the change within 6s.

Only 1 of 2 steps observed, in 15.0 s. 4,000 RPCs answered, 1 failed (in
flight when the backend stopped).
`

func TestLinesTellTheStory(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	tell(NewLines(&out))
	if diff := cmp.Diff(story, out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("a line has %d columns, want 80 at most: %s", n, line)
		}
	}
}

// screen is as much of a terminal as Live asks for: it keeps lines, and moves
// the cursor among them.
func screen(t *testing.T, output string) []string {
	t.Helper()
	var (
		lines  = []string{""}
		row    int
		escape = regexp.MustCompile(`^\x1b\[(\??\d*)([A-Za-z])`)
	)
	for output != "" {
		if m := escape.FindStringSubmatch(output); m != nil {
			output = output[len(m[0]):]
			switch m[2] {
			case "A":
				n, _ := strconv.Atoi(m[1])
				if row -= n; row < 0 {
					t.Fatalf("the cursor leaves the screen, %d lines above its top", -row)
				}
				// What is written next overwrites the line.
				lines[row] = ""
			case "J":
				lines = lines[:row+1]
				lines[row] = ""
			case "K", "m", "h", "l":
			default:
				t.Fatalf("unexpected escape %q", m[0])
			}
			continue
		}
		c, size := utf8.DecodeRuneInString(output)
		output = output[size:]
		switch c {
		case '\r':
		case '\n':
			row++
			if row == len(lines) {
				lines = append(lines, "")
			}
			lines[row] = ""
		default:
			lines[row] += string(c)
		}
	}
	return lines
}

// What stays on a terminal is what a pipe gets, less the progress.
func TestLiveLeavesTheStoryOnTheScreen(t *testing.T) {
	t.Parallel()
	progress := regexp.MustCompile(`(?m)^ +\d\.\d s .*\n`)
	want := strings.Split(progress.ReplaceAllString(story, ""), "\n")
	for name, colour := range map[string]bool{"colour": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			tell(NewLive(&out, colour))
			if diff := cmp.Diff(want, screen(t, out.String())); diff != "" {
				t.Errorf("screen (-want +got):\n%s", diff)
			}
			if got := strings.Contains(out.String(), "\x1b[1m"); got != colour {
				t.Errorf("colours were used: %v, want %v", got, colour)
			}
		})
	}
}

// The table is redrawn in place, and says how far the step is.
func TestLiveRedrawsInPlace(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	live := NewLive(&out, false)
	live.SetUp(setUp)
	for _, arrived := range []bool{false, true} {
		live.Progressed(scenario.Progress{Elapsed: time.Second, Planned: 2 * time.Second, Counts: counts, Arrived: arrived, Speed: speedy})
	}
	text := strings.Join(screen(t, out.String()), "\n")
	if n := strings.Count(text, "backend    cluster"); n != 1 {
		t.Errorf("the table is on the screen %d times, want once:\n%s", n, text)
	}
	if !strings.Contains(text, "1.0 s of 2.0 s, the change has arrived") {
		t.Errorf("the screen lacks the present state:\n%s", text)
	}
}

func TestJSONTellsTheStory(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	tell(NewJSON(&out))
	var events []map[string]any
	for line := range strings.Lines(out.String()) {
		var event map[string]any
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		events = append(events, event)
	}
	var names []any
	for _, e := range events {
		names = append(names, e["event"])
	}
	want := []any{"setup", "announced", "progress", "progress", "progress", "observed", "announced", "missed", "summary"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
	byMethod := map[string]any{
		"stable-1": map[string]any{"UnaryCall": 900., "EmptyCall": 1000.},
		"canary-1": map[string]any{"UnaryCall": 100., "EmptyCall": 0.},
	}
	for i, wants := range map[int]map[string]any{
		0: {"target": "xds:///echo.example.com", "bootstrap": "/tmp/b.json", "duration_ms": 15000.},
		5: {"step": 1., "steps": 2., "name": "split", "arrived_ms": 4.5, "answered": 2000., "failed": 1., "failed_in_flight": 1.,
			"counts": byMethod, "rpcs_per_second": 700., "p50_ms": 0.2, "p99_ms": 12.345},
		7: {"faults": []any{"no RPC has shown the change within 6s"}},
		8: {"ok": false, "observed": 1., "steps": 2., "answered": 4000., "failed": 1., "error": "step 2", "elapsed_ms": 15000.},
	} {
		for key, want := range wants {
			if diff := cmp.Diff(want, events[i][key]); diff != "" {
				t.Errorf("event %d, %s (-want +got):\n%s", i, key, diff)
			}
		}
	}
	checks, _ := events[5]["checks"].([]any)
	wantCheck := map[string]any{
		"methods": []any{"UnaryCall"}, "backend": "stable-1", "rpcs": 1000.,
		"expected": 0.9, "share": 0.9, "tolerance": 0.047, "ok": true,
	}
	if diff := cmp.Diff(wantCheck, checks[0]); diff != "" {
		t.Errorf("first check (-want +got):\n%s", diff)
	}
}

// A writer that is no terminal gets lines; TERM=dumb makes a terminal one that
// cannot move its cursor.
func TestNewChoosesByWriter(t *testing.T) {
	if _, ok := New(&bytes.Buffer{}).(*Lines); !ok {
		t.Errorf("New(buffer) is not Lines")
	}
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	t.Setenv("TERM", "xterm")
	if _, ok := New(device).(*Live); !ok {
		t.Errorf("New(character device) is not Live")
	}
	t.Setenv("TERM", "dumb")
	if _, ok := New(device).(*Lines); !ok {
		t.Errorf("New(character device) with TERM=dumb is not Lines")
	}
}

func TestCountGroupsThousands(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
}
