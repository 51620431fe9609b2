package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// event is an object in JSON, with the fields that docs/demo.md lists, or lines of text.
type event interface{ lines() []string }

// printer returns a function that prints events. It ignores write errors: a reader may stop
// reading, and the exit status reports the outcome.
func printer(out io.Writer, asJSON bool) func(event) {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return func(e event) {
		if asJSON {
			_ = encoder.Encode(e)
			return
		}
		_, _ = io.WriteString(out, strings.Join(e.lines(), "\n")+"\n")
	}
}

// millis is a duration that JSON shows in milliseconds, to the microsecond.
type millis time.Duration

// MarshalJSON implements json.Marshaler.
func (d millis) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(time.Duration(d).Microseconds()) / 1000)
}

func (d millis) String() string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms == 0:
		return "-"
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

func (d millis) seconds() string { return fmt.Sprintf("%.1f s", time.Duration(d).Seconds()) }

// counts are answered RPCs by backend and method. mesh has the order in which they are shown.
type counts struct {
	mesh *setUp
	n    map[string]map[string]int
}

// MarshalJSON implements json.Marshaler.
func (c counts) MarshalJSON() ([]byte, error) { return json.Marshal(c.n) }

func (c counts) add(r rpc) {
	if methods := c.n[r.backend]; methods != nil {
		methods[r.method]++
	}
}

func (c counts) clone() counts {
	c.n = maps.Clone(c.n)
	for backend, methods := range c.n {
		c.n[backend] = maps.Clone(methods)
	}
	return c
}

// of returns the number of RPCs of the methods that a backend answered. No methods means all
// methods, and "" all backends.
func (c counts) of(backend string, methods ...string) int {
	sum := 0
	for name, byMethod := range c.n {
		for method, n := range byMethod {
			if (backend == "" || name == backend) && (len(methods) == 0 || slices.Contains(methods, method)) {
				sum += n
			}
		}
	}
	return sum
}

// share returns a backend's part of the RPCs of the methods, 0 if there were none.
func (c counts) share(backend string, methods ...string) float64 {
	return float64(c.of(backend, methods...)) / float64(max(1, c.of("", methods...)))
}

// percent is share with one digit, or "-" if there were no RPCs.
func (c counts) percent(backend string, methods ...string) string {
	if c.of("", methods...) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*c.share(backend, methods...))
}

// table has a row for each backend and a column for each method, and a column for all of
// them, which is also drawn as a bar.
func (c counts) table() []string {
	width := func(method string) int { return max(7, len(method)) }
	header, last := fmt.Sprintf("%-10s %-8s", "backend", "cluster"), fmt.Sprintf("%-10s %-8s", "RPCs", "")
	for _, m := range c.mesh.Methods {
		header += fmt.Sprintf("  %*s", width(m), m)
		last += fmt.Sprintf("  %*s", width(m), thousands(c.of("", m)))
	}
	table := []string{header + fmt.Sprintf("  %7s", "all")}
	for _, b := range c.mesh.Backends {
		row := fmt.Sprintf("%-10s %-8s", b.Name, b.Cluster)
		for _, m := range c.mesh.Methods {
			row += fmt.Sprintf("  %*s", width(m), c.percent(b.Name, m))
		}
		row += fmt.Sprintf("  %7s  %s", c.percent(b.Name), strings.Repeat("#", int(c.share(b.Name)*20+0.5)))
		table = append(table, strings.TrimRight(row, " "))
	}
	return append(table, last+fmt.Sprintf("  %7s", thousands(c.of(""))))
}

// setUp is the first event: everything runs, and no RPC was made yet.
type setUp struct {
	Event        string        `json:"event"`
	Target       string        `json:"target"`
	Bootstrap    string        `json:"bootstrap"`
	ControlPlane string        `json:"control_plane"`
	Relay        string        `json:"relay,omitempty"`
	Backends     []backendInfo `json:"backends"`
	Methods      []string      `json:"methods"`
	Duration     millis        `json:"duration_ms"`
	TLS          bool          `json:"tls"`
	// Page is the URL of the status page.
	Page string `json:"page,omitempty"`
}

type backendInfo struct {
	Name    string `json:"name"`
	Cluster string `json:"cluster"`
	Address string `json:"address"`
}

// counts returns counts of 0.
func (s *setUp) counts() counts {
	c := counts{mesh: s, n: make(map[string]map[string]int)}
	for _, b := range s.Backends {
		c.n[b.Name] = make(map[string]int)
		for _, m := range s.Methods {
			c.n[b.Name][m] = 0
		}
	}
	return c
}

func (s *setUp) lines() []string {
	lines := []string{
		fmt.Sprintf("A control plane, %d backends and a client, all in this process, for %v.", len(s.Backends), time.Duration(s.Duration)),
		"",
		"  client         " + s.Target,
		"  bootstrap      GRPC_XDS_BOOTSTRAP=" + s.Bootstrap,
		"  control plane  " + s.ControlPlane,
	}
	if s.Relay != "" {
		lines = append(lines, "  relay          "+s.Relay)
	}
	if s.Page != "" {
		lines = append(lines, "  status page    "+s.Page)
	}
	if s.TLS {
		lines = append(lines, fmt.Sprintf("  connections    mTLS: clients spiffe://%s/%s, backends spiffe://%[1]s/NAME", trustDomain, clientName))
	}
	label := "backends"
	for _, b := range s.Backends {
		lines = append(lines, fmt.Sprintf("  %-15s%s   %s   cluster %q", label, b.Address, b.Name, b.Cluster))
		label = ""
	}
	return lines
}

// stepID is the beginning of every event of a step.
type stepID struct {
	Event string `json:"event"`
	Step  int    `json:"step"` // from 1
	Steps int    `json:"steps"`
	Name  string `json:"name,omitempty"`
}

func (id stepID) as(event string) stepID {
	id.Event = event
	return id
}

// announcement precedes a step.
type announcement struct {
	stepID
	Text string `json:"text"`
}

func (a *announcement) lines() []string {
	heading := fmt.Sprintf("Step %d of %d: %s", a.Step, a.Steps, a.Name)
	return append([]string{"", heading}, wrap(a.Text, "")...)
}

// speed has the rate of all RPCs of a step and the latency of those that are not paced.
type speed struct {
	Rate float64 `json:"rpcs_per_second"`
	P50  millis  `json:"p50_ms"`
	P99  millis  `json:"p99_ms"`
}

// progress is the state of a step under way.
type progress struct {
	stepID
	Elapsed millis `json:"elapsed_ms"` // since the first step began
	Arrived bool   `json:"arrived"`
	Counts  counts `json:"counts"`
	Failed  int    `json:"failed"`
	speed
}

func (p *progress) lines() []string {
	line := fmt.Sprintf("%7s", p.Elapsed.seconds())
	for _, b := range p.Counts.mesh.Backends {
		line += fmt.Sprintf("   %s %5s", b.Name, p.Counts.percent(b.Name))
	}
	return []string{line + "   " + thousands(int(p.Rate)) + " RPC/s   " + thousands(p.Failed) + " failed"}
}

// result is the judgement of a step, whose event is "observed" or "missed".
type result struct {
	stepID
	Faults   []string `json:"faults,omitempty"` // in plain words; none if it was observed
	Arrived  millis   `json:"arrived_ms"`       // from the change to the first RPC that showed it
	Counts   counts   `json:"counts"`           // the RPCs that were judged
	Checks   []check  `json:"checks"`
	Answered int      `json:"answered"`
	Failed   int      `json:"failed"`
	InFlight int      `json:"failed_in_flight"` // of Failed, those that had to fail
	speed
	expected string // what Checks compare with, as text; "" if there are none
}

func (r *result) lines() []string {
	lines := append([]string{""}, r.Counts.table()...)
	if r.expected != "" {
		lines = append(lines, wrap(r.expected, "  ")...)
	}
	lines = append(lines, fmt.Sprintf("%s RPC/s   p50 %v   p99 %v", thousands(int(r.Rate)), r.P50, r.P99))
	if len(r.Faults) > 0 {
		return append(lines, wrap("NOT OBSERVED: "+strings.Join(r.Faults, "; ")+".", "  ")...)
	}
	failed := "none failed"
	if r.Failed > 0 {
		failed = thousands(r.Failed) + " failed, in flight on the connection that broke"
	}
	return append(lines, wrap(fmt.Sprintf("Observed: %v from the change to the first RPC that shows it. %s RPCs answered, %s.",
		r.Arrived, thousands(r.Answered), failed), "  ")...)
}

// summary is the last event.
type summary struct {
	Event    string `json:"event"`
	OK       bool   `json:"ok"`
	Observed int    `json:"observed"`
	Steps    int    `json:"steps"`
	Answered int    `json:"answered"`
	Failed   int    `json:"failed"`
	InFlight int    `json:"failed_in_flight"`
	Elapsed  millis `json:"elapsed_ms"`
	Error    string `json:"error,omitempty"`
}

func (s *summary) lines() []string {
	opening := fmt.Sprintf("All %d steps observed", s.Steps)
	if s.Observed < s.Steps {
		opening = fmt.Sprintf("Only %d of %d steps observed", s.Observed, s.Steps)
	} else if !s.OK {
		opening = "All steps observed, but with faults"
	}
	text := fmt.Sprintf("%s, in %s. %s RPCs answered, %s failed", opening, s.Elapsed.seconds(), thousands(s.Answered), thousands(s.Failed))
	if s.InFlight > 0 {
		text += fmt.Sprintf(" (%s in flight when the backend stopped)", thousands(s.InFlight))
	}
	return append([]string{""}, wrap(text+".", "")...)
}

// wrap breaks text into lines that fit a terminal of 80 columns, indented from the second on.
func wrap(text, indent string) []string {
	const width = 78
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) > width:
			lines = append(lines, line)
			line = indent + word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// thousands formats a number with its digits grouped.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
