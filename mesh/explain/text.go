package explain

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/mesh/internal/styled"
)

// Bounds on what Text lists. JSON has all of it.
const (
	maxRun       = 10 // routes in a row that do not match
	maxHosts     = 10 // virtual hosts beside the chosen one
	maxEndpoints = 25 // of a locality
	maxIgnored   = 5  // ignored fields of a resource
	maxActions   = 20 // routes that are taken
	maxClusters  = 25 // clusters, also of a route or under an aggregate one
	maxNotes     = 20
	maxRows      = 200  // of the table of routes
	maxConfig    = 2000 // bytes of a filter's configuration
)

// Text returns the explanation for a terminal, the answer first. Long lists are shortened. Text of
// resources and peers appears without control characters.
func (e *Explanation) Text() string { return Lines(e).String() }

// Lines returns what Text does, with the style of each line.
func Lines(e *Explanation) styled.Text {
	t := &text{}
	t.head(e)
	t.resource(e.Listener)
	if e.RouteConfig != e.Listener {
		t.resource(e.RouteConfig)
	}
	t.hosts(e.VirtualHosts)
	t.routes(e)
	actions := 0
	for i := range e.Routes {
		if e.Routes[i].Action == nil {
			continue
		}
		if actions++; actions <= maxActions {
			t.action(&e.Routes[i])
		}
	}
	if actions > maxActions {
		t.heading("and %d routes more that are taken", actions-maxActions)
	}
	for i := range e.Clusters {
		if i == maxClusters && len(e.Clusters) > maxClusters+1 {
			t.heading("and %d clusters more", len(e.Clusters)-i)
			break
		}
		t.cluster(&e.Clusters[i])
	}
	return t.lines
}

// text is a page of lines.
type text struct{ lines styled.Text }

const indent = "    "

// line adds a plain line, without control characters and white space at its end.
func (t *text) line(depth int, format string, args ...any) {
	t.lineAs(styled.Plain, depth, format, args...)
}

// lineAs is line with a style, as are fieldAs and fieldsAs.
func (t *text) lineAs(style styled.Style, depth int, format string, args ...any) {
	visible := faults.Printable(strings.TrimRight(fmt.Sprintf(format, args...), " "), "")
	t.lines.Add(style, "%s%s", strings.Repeat(indent, depth), visible)
}

// heading begins a section.
func (t *text) heading(format string, args ...any) {
	t.lines.Add(styled.Plain, "")
	t.line(0, format, args...)
}

// field adds a named line, if it has a value.
func (t *text) field(depth int, name, value string) { t.fieldAs(styled.Plain, depth, name, value) }

func (t *text) fieldAs(style styled.Style, depth int, name, value string) {
	if value != "" {
		t.lineAs(style, depth, "%-12s %s", name, value)
	}
}

// fields adds several lines under one name.
func (t *text) fields(depth int, name string, values []string) {
	t.fieldsAs(styled.Plain, depth, name, values)
}

func (t *text) fieldsAs(style styled.Style, depth int, name string, values []string) {
	for _, value := range values {
		t.fieldAs(style, depth, name, value)
		name = ""
	}
}

// row is a line of a table.
type row struct {
	style styled.Style
	cells []string
}

// table adds rows with aligned columns.
func (t *text) table(depth int, rows []row) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row.cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if i < len(row.cells)-1 { // A long last cell widens nothing.
				widths[i] = max(widths[i], utf8.RuneCountInString(cell))
			}
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row.cells {
			b.WriteString(cell)
			if i < len(row.cells)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		t.lineAs(row.style, depth, "%s", b.String())
	}
}

func (t *text) head(e *Explanation) {
	to := e.Request.Target
	if to == "" {
		to = "Listener " + quote(e.Request.Listener)
	}
	t.field(0, "RPC", e.Request.Method+" to "+to)
	client := e.Client.Source
	if e.Client.Name != "" {
		client += ": " + strings.TrimSpace(e.Client.Name+" "+e.Client.Version)
	}
	if e.Client.NodeID != "" {
		client += ", node " + quote(e.Client.NodeID)
	}
	if e.Client.Channel != "" {
		client += ", channel " + e.Client.Channel
	}
	t.field(0, "client", client)
	name := "outcome"
	if e.Pending != "" {
		t.fieldAs(styled.Heading, 0, name, e.Pending)
		name = "then"
	}
	if outcomes := e.outcomes(); len(outcomes) > 0 {
		t.fieldsAs(styled.Heading, 0, name, outcomes)
	} else {
		t.fieldAs(styled.Heading, 0, name, strings.TrimPrefix(e.Outcome, e.Pending+"; then: "))
	}
	if n := len(e.Notes) - maxNotes; n > 0 {
		t.fields(0, "note", e.Notes[:maxNotes])
		t.field(0, "", fmt.Sprintf("and %d more", n))
	} else {
		t.fields(0, "note", e.Notes)
	}
}

// resource adds a section for a resource.
func (t *text) resource(s *ResourceStatus) {
	if s == nil {
		return
	}
	t.heading("%s %s%s", s.Type, quote(s.Name), behind(s.At))
	t.status(s)
}

// status adds the lines of a resource below its heading.
func (t *text) status(s *ResourceStatus) {
	t.lineAs(styled.OfState(s.State), 1, "%s", s.summary())
	t.faults(s)
}

// faults adds what is wrong with a resource.
func (t *text) faults(s *ResourceStatus) {
	if s.Error != "" {
		t.fieldAs(styled.Bad, 1, "error", s.failure())
	}
	t.fieldsAs(styled.Bad, 1, "rejected", s.Faults)
	t.ignored(s)
}

func (t *text) ignored(s *ResourceStatus) {
	var list []string
	for i := range s.Ignored {
		f := &s.Ignored[i]
		line := f.Path + ": " + f.Reason
		if f.Places > 1 {
			line += fmt.Sprintf(" (at %d places)", f.Places)
		}
		if f.Severity != "info" {
			line = f.Severity + ": " + line
		}
		list = append(list, line)
	}
	if n := len(list); n > maxIgnored {
		list = append(list[:maxIgnored-1], fmt.Sprintf("and %d fields more", n-maxIgnored+1))
	}
	t.fields(1, "ignored", list)
}

// summary describes the state of a resource on one line.
func (s *ResourceStatus) summary() string {
	parts := []string{s.State}
	if s.State == "" {
		parts[0] = "not requested"
	}
	if s.Cached {
		switch {
		case s.FromDisk != "":
			parts = append(parts, "from disk, "+s.FromDisk)
		case s.State != "ACKED" && s.State != WouldBeSent:
			parts = append(parts, "an older version is in use")
		}
		if s.Version != "" {
			parts = append(parts, "version "+quote(s.Version))
		}
	}
	if s.Server != "" {
		parts = append(parts, "from "+s.Server)
	}
	if s.Updated != nil {
		parts = append(parts, "of "+livestate.Clock(*s.Updated))
	}
	if s.Variant != "" {
		parts = append(parts, "variant "+s.Variant)
	}
	return strings.Join(parts, ", ")
}

// failure describes the error of a resource.
func (s *ResourceStatus) failure() string {
	line := s.Error
	if s.ErrorVersion != "" {
		line = "version " + quote(s.ErrorVersion) + ": " + line
	}
	if s.ErrorTime != nil {
		line = livestate.Clock(*s.ErrorTime) + ": " + line
	}
	return line
}

// behind puts a place behind a line.
func behind(at string) string {
	if at == "" {
		return ""
	}
	return "  [" + at + "]"
}

func (t *text) hosts(hosts []VirtualHost) {
	var others []row
	chosen := -1
	for i := range hosts {
		if hosts[i].Chosen {
			chosen = i
		} else {
			others = append(others, row{cells: []string{"not " + quote(hosts[i].Name), hosts[i].Reason}})
		}
	}
	switch {
	case chosen >= 0:
		t.heading("virtual host %s%s", quote(hosts[chosen].Name), behind(hosts[chosen].At))
		t.line(1, "%s", hosts[chosen].Reason)
	case len(hosts) > 0:
		t.heading("virtual hosts")
	}
	if n := len(others); n > maxHosts {
		others = append(others[:maxHosts], row{cells: []string{fmt.Sprintf("and %d more", n-maxHosts)}})
	}
	t.table(1, others)
}

func (t *text) routes(e *Explanation) {
	if len(e.Routes)+e.RoutesLeft == 0 {
		return
	}
	t.heading("routes, in the order in which they are tried")
	var rows []row
	for i := 0; i < len(e.Routes); i++ {
		if len(rows) > maxRows {
			rows = append(rows, row{cells: []string{"…", fmt.Sprintf("%d more", len(e.Routes)-i)}})
			break
		}
		end := i
		for end < len(e.Routes) && e.Routes[end].Action == nil {
			end++
		}
		if end-i <= maxRun {
			rows = append(rows, e.Routes[i].row())
			continue
		}
		rows = append(rows, rowsOfRun(e.Routes[i:end-1])...)
		rows = append(rows, e.Routes[end-1].row())
		i = end - 1
	}
	t.table(1, rows)
	if e.RoutesLeft > 0 {
		t.line(1, "%s with other paths", faults.Count(e.RoutesLeft, "later route"))
	}
}

// rowsOfRun are those of a long run of routes that are not taken: those that almost match, and the first others.
func rowsOfRun(run []Route) (rows []row) {
	const shown = maxRun - 2
	almost := 0
	for i := range run {
		if run[i].almost() {
			almost++
		}
	}
	almost = min(almost, shown)
	others := shown - almost
	for i := range run {
		if room := &others; len(rows) < shown {
			if run[i].almost() {
				room = &almost
			}
			if *room > 0 {
				*room--
				rows = append(rows, run[i].row())
			}
		}
	}
	return append(rows, row{cells: []string{"…", fmt.Sprintf("%d more that do not match", len(run)-len(rows))}})
}

// row is a route in the table of routes.
func (r *Route) row() row {
	number := strconv.Itoa(r.Index)
	if r.Name != "" {
		number += " " + quote(r.Name)
	}
	style, result := styled.Plain, ""
	switch {
	case r.LeftOut != "":
		result = "left out: " + r.LeftOut
	case r.Failed != nil:
		result = "no: " + r.Failed.String()
	case r.Later:
		result = "matches too, but an earlier route takes all RPCs"
	default:
		style, result = styled.Good, "taken by "+formatPercent(r.Share)+" of the RPCs"
	}
	if r.Unchecked != "" {
		result += "; " + r.Unchecked
	}
	return row{style, []string{number, r.Match, result + behind(r.At)}}
}

// String describes what the RPC has instead of what is wanted.
func (c *Condition) String() string {
	what := c.Kind
	if c.Name != "" {
		what += " " + c.Name
	}
	have := c.Have
	if c.Kind == "path" {
		have = quote(have)
	}
	text := fmt.Sprintf("%s is %s", what, have)
	if c.Kind == "fraction" {
		text = "its fraction is " + c.Want
	}
	if c.Reason != "" {
		text += "; " + c.Reason
	}
	return text
}
