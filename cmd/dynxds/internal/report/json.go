package report

import (
	"encoding/json"
	"io"
	"math"
	"strings"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/scenario"
)

// JSON is the Reporter for machines: one object a line, each with the field
// "event". docs/demo.md lists the fields.
type JSON struct {
	out      io.Writer
	backends []Backend
	methods  []string
}

var _ Reporter = (*JSON)(nil)

// NewJSON returns a Reporter that writes JSON to out.
func NewJSON(out io.Writer) *JSON { return &JSON{out: out} }

// Interval implements Reporter.
func (*JSON) Interval() time.Duration { return time.Second }

type jsonSetUp struct {
	Event        string        `json:"event"`
	Target       string        `json:"target"`
	Bootstrap    string        `json:"bootstrap"`
	ControlPlane string        `json:"control_plane"`
	Backends     []jsonBackend `json:"backends"`
	Methods      []string      `json:"methods"`
	DurationMS   float64       `json:"duration_ms"`
}

type jsonBackend struct {
	Name    string `json:"name"`
	Cluster string `json:"cluster"`
	Address string `json:"address"`
}

// SetUp implements Reporter.
func (j *JSON) SetUp(s SetUp) {
	j.backends, j.methods = s.Backends, s.Methods
	event := jsonSetUp{
		Event: "setup", Target: s.Target, Bootstrap: s.Bootstrap, ControlPlane: s.ControlPlane,
		Methods: s.Methods, DurationMS: ms(s.Duration),
	}
	for _, b := range s.Backends {
		event.Backends = append(event.Backends, jsonBackend(b))
	}
	j.print(event)
}

type jsonStep struct {
	Event string `json:"event"`
	Step  int    `json:"step"`
	Steps int    `json:"steps"`
	Name  string `json:"name,omitempty"`
}

type jsonAnnounced struct {
	jsonStep
	Text string `json:"text"`
}

// Announced implements scenario.Observer.
func (j *JSON) Announced(a scenario.Announcement) {
	j.print(jsonAnnounced{jsonStep{"announced", a.Step, a.Steps, a.Name}, a.Text})
}

type jsonSpeed struct {
	RPCsPerSecond float64 `json:"rpcs_per_second"`
	P50MS         float64 `json:"p50_ms"`
	P99MS         float64 `json:"p99_ms"`
}

// jsonCounts is answered RPCs by backend and method.
type jsonCounts map[string]map[string]int

type jsonProgress struct {
	jsonStep
	ElapsedMS float64    `json:"elapsed_ms"`
	Arrived   bool       `json:"arrived"`
	Counts    jsonCounts `json:"counts"`
	Failed    int        `json:"failed"`
	jsonSpeed
}

// Progressed implements scenario.Observer.
func (j *JSON) Progressed(p scenario.Progress) {
	j.print(jsonProgress{
		jsonStep{"progress", p.Step, p.Steps, ""}, ms(p.Elapsed), p.Arrived, j.counts(p.Counts), p.Failed, speedOf(p.Speed),
	})
}

type jsonResult struct {
	jsonStep
	Faults    []string    `json:"faults,omitempty"`
	ArrivedMS float64     `json:"arrived_ms"`
	Counts    jsonCounts  `json:"counts"`
	Checks    []jsonCheck `json:"checks"`
	Answered  int         `json:"answered"`
	Failed    int         `json:"failed"`
	InFlight  int         `json:"failed_in_flight"`
	jsonSpeed
}

type jsonCheck struct {
	Methods   []string `json:"methods,omitempty"`
	Backend   string   `json:"backend"`
	RPCs      int      `json:"rpcs"`
	Expected  float64  `json:"expected"`
	Share     float64  `json:"share"`
	Tolerance float64  `json:"tolerance"`
	OK        bool     `json:"ok"`
}

// Judged implements scenario.Observer.
func (j *JSON) Judged(r scenario.Result) {
	event := jsonResult{
		jsonStep: jsonStep{"observed", r.Step, r.Steps, r.Name}, Faults: r.Faults,
		ArrivedMS: ms(r.Arrived), Counts: j.counts(r.Counts),
		Answered: r.Answered, Failed: r.Failed, InFlight: r.Excused, jsonSpeed: speedOf(r.Speed),
	}
	if !r.Observed() {
		event.Event = "missed"
	}
	for _, c := range r.Checks {
		event.Checks = append(event.Checks, jsonCheck{
			Methods: c.Methods, Backend: c.Backend, RPCs: c.RPCs,
			Expected: c.Want, Share: rounded(c.Got), Tolerance: rounded(c.Tolerance), OK: c.OK(),
		})
	}
	j.print(event)
}

type jsonSummary struct {
	Event     string  `json:"event"`
	OK        bool    `json:"ok"`
	Observed  int     `json:"observed"`
	Steps     int     `json:"steps"`
	Answered  int     `json:"answered"`
	Failed    int     `json:"failed"`
	InFlight  int     `json:"failed_in_flight"`
	ElapsedMS float64 `json:"elapsed_ms"`
	Error     string  `json:"error,omitempty"`
}

// Finished implements scenario.Observer.
func (j *JSON) Finished(s scenario.Summary) {
	event := jsonSummary{
		Event: "summary", OK: s.Err == nil, Observed: s.Observed, Steps: s.Steps,
		Answered: s.Answered, Failed: s.Failed, InFlight: s.Excused, ElapsedMS: ms(s.Elapsed),
	}
	if s.Err != nil {
		event.Error = s.Err.Error()
	}
	j.print(event)
}

func (j *JSON) counts(c scenario.Counts) jsonCounts {
	all := jsonCounts{}
	for _, b := range j.backends {
		all[b.Name] = map[string]int{}
		for _, m := range j.methods {
			all[b.Name][m] = c.Of(b.Name, m)
		}
	}
	return all
}

func speedOf(s scenario.Speed) jsonSpeed { return jsonSpeed{math.Round(s.Rate), ms(s.P50), ms(s.P99)} }

// ms is in milliseconds, to the microsecond.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// rounded keeps four decimals.
func rounded(share float64) float64 { return math.Round(share*1e4) / 1e4 }

func (j *JSON) print(event any) {
	var line strings.Builder
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(event); err != nil {
		// Only a NaN could do this, and no event has one.
		panic(err)
	}
	_, _ = io.WriteString(j.out, line.String())
}
