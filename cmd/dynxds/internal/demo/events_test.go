package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// reportAll reports two steps, the first observed and the second not.
func reportAll(report func(event)) {
	opening := &setUp{
		Event: "setup", Target: "xds:///echo.example.com", Bootstrap: "/tmp/b.json", ControlPlane: "127.0.0.1:1",
		Backends: []backendInfo{{"stable-1", "stable", "127.0.0.1:2"}, {"canary-1", "canary", "127.0.0.1:3"}},
		Methods:  []string{"UnaryCall", "EmptyCall"},
		Duration: millis(15 * time.Second),
	}
	first := stepID{Step: 1, Steps: 2, Name: "split"}
	second := stepID{Step: 2, Steps: 2, Name: "shift"}
	c := count(opening, map[[2]string]int{
		{"UnaryCall", "stable-1"}: 900, {"UnaryCall", "canary-1"}: 100, {"EmptyCall", "stable-1"}: 1000,
	})
	fast := speed{Rate: 700, P50: millis(200 * time.Microsecond), P99: millis(12345 * time.Microsecond)}
	expect := expectation{groups: []group{
		{[]string{"UnaryCall"}, map[string]float64{"stable-1": 0.9, "canary-1": 0.1}},
		{[]string{"EmptyCall"}, map[string]float64{"stable-1": 1}},
	}}

	report(opening)
	report(&announcement{first.as("announced"), strings.Repeat("Plain words. ", 10)})
	for i := range 3 {
		report(&progress{
			stepID: stepID{Event: "progress", Step: 1, Steps: 2}, Elapsed: millis(time.Duration(i) * time.Second),
			Arrived: i > 0, Counts: c, speed: fast,
		})
	}
	report(&result{
		stepID: first.as("observed"), Arrived: millis(4500 * time.Microsecond), Counts: c, Checks: expect.checks(c), expected: expect.describe(c),
		Answered: 2000, Failed: 1, InFlight: 1, speed: fast,
	})
	report(&announcement{second.as("announced"), "More."})
	report(&result{
		stepID: second.as("missed"), Faults: []string{"no RPC has shown the change within 6s"}, Counts: c, Answered: 2000, speed: fast,
	})
	report(&summary{
		Event: "summary", Observed: 1, Steps: 2, Answered: 4000, Failed: 1, InFlight: 1,
		Elapsed: millis(15 * time.Second), Error: "step 2",
	})
}

const wantText = `A control plane, 2 backends and a client, all in this process, for 15s.

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

Only 1 of 2 steps observed, in 15.0 s. 4,000 RPCs answered, 1 failed (1 in
flight when the backend stopped).
`

func TestLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	reportAll(printer(&out, false))
	xdstest.Equal(t, "output", wantText, out.String())
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("a line has %d columns, want 80 at most: %s", n, line)
		}
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	reportAll(printer(&out, true))
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
			xdstest.Equal(t, fmt.Sprintf("event %d, %s", i, key), want, events[i][key])
		}
	}
	checks, _ := events[5]["checks"].([]any)
	wantCheck := map[string]any{
		"methods": []any{"UnaryCall"}, "backend": "stable-1", "rpcs": 1000.,
		"expected": 0.9, "share": 0.9, "tolerance": 0.0474, "ok": true,
	}
	xdstest.Equal[any](t, "first check", wantCheck, checks[0])
}

func TestThousands(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %q, want %q", n, got, want)
		}
	}
}
