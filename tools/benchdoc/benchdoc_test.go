package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// output is what "go test -bench" prints of six runs of a benchmark.
func output(lines ...string) string {
	var b strings.Builder
	b.WriteString("goos: linux\ncpu: A Processor\n")
	for run := range 6 {
		for _, line := range lines {
			b.WriteString(strings.ReplaceAll(line, "RUN", fmt.Sprint(run)) + "\n")
		}
	}
	return b.String()
}

func pageOf(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "out.txt")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := read([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	writePage(&page, r, [][2]string{{"machine", r.config["cpu"]}})
	return page.String()
}

func TestPage(t *testing.T) {
	t.Parallel()
	page := pageOf(t, output(
		"BenchmarkUnary/routes=1/peer=plain/sequential-2 100 2000RUN ns/op 100 allocs/op",
		"BenchmarkUnary/routes=1/peer=grpc-go-xds/sequential-2 100 4000RUN ns/op 121 allocs/op",
		"BenchmarkUnary/routes=1/peer=dynxds/sequential-2 100 5000RUN ns/op 106 allocs/op",
		"BenchmarkUnary/routes=100/peer=grpc-go-xds/sequential-2 100 4RUN000 ns/op",
		"BenchmarkUnary/routes=100/peer=dynxds/sequential-2 100 4RUN001 ns/op",
		"BenchmarkFleet/clusters=1000/endpoints=10/peer=dynxds/change=none/cost-2 5 0 ns/op 1.5 cpu-ms/op 0 decoded/op",
		"BenchmarkFleet/clusters=1000/endpoints=10/peer=grpc-go-xds/change=none/cost-2 5 0 ns/op 43 cpu-ms/op",
		"BenchmarkFleet/clusters=1000/endpoints=10/peer=grpc-go-xds/change=route/cost-2 5 70001 wire-B/op 0 retries/op",
		"BenchmarkFleet/clusters=1000/endpoints=10/peer=dynxds/change=route/cost-2 5 70002 wire-B/op 1 retries/op",
		"BenchmarkFleet/clusters=10000/endpoints=1/peer=dynxds/change=route/cost-2 5 760000 B/op",
		"BenchmarkFilters/1-2 100 300 ns/op 1 allocs/op",
		"BenchmarkFilters/5-2 100 400 ns/op 1 allocs/op",
		"BenchmarkChannels/peer=dynxds-2 5 1 ADS-streams 7RUN ms-until-all-RPCs-have-ended",
	))
	for name, want := range map[string]string{
		"the machine":                 "| machine | A Processor |",
		"a budget that is exceeded":   "| allocations per unary RPC over those of a plain channel, 1 route | 5 | 6 | **exceeded** | 21 |",
		"a budget that holds":         "| CPU time of that push | 2 ms | 1.5 ms | holds | 43 ms |",
		"one without a peer":          "| resources decoded of a push of 1,000 clusters that did not change | 0 | 0 | holds | – |",
		"one that was not measured":   "10,000 routes | 5 |  | not measured | – |",
		"a figure that is worse":      "| Unary routes=1 sequential | 20 µs | 40 µs | 50 µs | **1.25, worse** |",
		"a figure that is better":     "| Unary routes=1 sequential | 100 | 121 | 106 | 0.876 |",
		"figures that do not differ":  "| Unary routes=100 sequential |  | 42.5 µs ± 6% | 42.5 µs ± 6% | ~ |",
		"one of two rows":             "| a further HTTP filter | 150 ns | 25 ns | holds | – |",
		"one that cannot hold":        "SotW | 200 kB | 760 kB | **exceeded**: a client keeps the bytes of a resource, and this RouteConfiguration alone has more | – |",
		"less than can be shown":      "| Fleet clusters=1000 endpoints=10 change=route cost | 70 kB | 70 kB | 1 |",
		"nothing to compare with":     "| Fleet clusters=1000 endpoints=10 change=route cost | 0 | 1 |  |",
		"a unit with ms in a word":    "| ADS streams | dynxds |\n| --- | --- |\n| Channels | 1 |",
		"a unit that begins with ms":  "| Channels | 72.5 ms ± 3% |",
		"what no peer's column needs": "| Fleet clusters=1000 endpoints=10 change=none cost | 43 ms | 1.5 ms | 0.0349 |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%s: there is no line\n%s\nin\n%s", name, want, page)
		}
	}
	if strings.Contains(page, "| Fleet clusters=1000 endpoints=10 change=none cost | 0 µs") {
		t.Error("a time per operation that was taken out is on the page")
	}
}

// Each reason is that of a budget.
func TestReasons(t *testing.T) {
	t.Parallel()
	for what := range reasons {
		if !slices.ContainsFunc(budgets(), func(b budget) bool { return b.what == what }) {
			t.Errorf("there is no budget %q", what)
		}
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		unit  string
		value float64
		want  string
	}{
		{"", 0, "0"},
		{"", 0.000428, "0.000428"},
		{"", 1.0456, "1.05"},
		{"", 10020, "10,020"},
		{"", 1234567, "1,234,567"},
		{"", -12.34, "-12.3"},
		{"ns", 999, "999 ns"},
		{"ns", 1500, "1.5 µs"},
		{"ns", 1.5e6, "1.5 ms"},
		{"B", 12, "12 B"},
		{"B", 4096, "4.1 kB"},
		{"B", 21.4e6, "21.4 MB"},
	} {
		if got := format(test.unit, test.value); got != test.want {
			t.Errorf("format(%q, %v) = %q, want %q", test.unit, test.value, got, test.want)
		}
	}
}

func TestNoBenchmarkIsAnError(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "out.txt")
	if err := os.WriteFile(file, []byte("FAIL\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := read([]string{file}); err == nil {
		t.Error("there was no error")
	}
}

// None is left out without a word.
func TestEveryBenchmarkHasItsPlace(t *testing.T) {
	t.Parallel()
	r := &results{rows: []string{"Unary/routes=1/sequential", "Start", "Novelty/routes=1"}}
	if err := checkSections(r); err == nil || !strings.Contains(err.Error(), `"Novelty/routes=1"`) {
		t.Errorf("error %v, want one of the benchmark that has no place", err)
	}
	if err := checkSections(&results{rows: r.rows[:2]}); err != nil {
		t.Error(err)
	}
}
