package explain

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/mesh/internal/styled"
)

// Bounds on what Text lists. JSON has all of it.
const (
	maxOthers    = 10 // routes with other paths
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
func (e *Explanation) Text() string { return e.Lines().String() }

// Lines returns what Text does, with the style of each line.
func (e *Explanation) Lines() styled.Text {
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
		t.cluster(e.Clusters[i])
	}
	return t.lines
}

// text is a page of lines.
type text struct{ lines styled.Text }

const indent = "    "

// line adds a line.
func (t *text) line(style styled.Style, depth int, format string, args ...any) {
	t.lines.Add(style, strings.Repeat(indent, depth)+format, args...)
}

// heading begins a section.
func (t *text) heading(format string, args ...any) {
	t.lines.Add(styled.Plain, "")
	t.line(styled.Plain, 0, format, args...)
}

// fields adds named lines, of which the first has the name. Those without a value are left out.
func (t *text) fields(style styled.Style, depth int, name string, values ...string) {
	for _, value := range values {
		if value != "" {
			t.line(style, depth, "%-12s %s", name, value)
			name = ""
		}
	}
}

func (t *text) head(e *Explanation) {
	to := e.Request.Target
	if to == "" {
		to = "Listener " + quote(e.Request.Listener)
	}
	t.fields(styled.Plain, 0, "RPC", e.Request.Method+" to "+to)
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
	t.fields(styled.Plain, 0, "client", client)
	name := "outcome"
	if e.Pending != "" {
		t.fields(styled.Heading, 0, name, e.Pending)
		name = "then"
	}
	if len(e.outcomes) > 0 {
		t.fields(styled.Heading, 0, name, e.outcomes...)
	} else {
		t.fields(styled.Heading, 0, name, strings.TrimPrefix(e.Outcome, e.Pending+"; then: "))
	}
	t.fields(styled.Plain, 0, "note", few(e.Notes, maxNotes, "")...)
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
	t.line(styled.OfState(s.State), 1, "%s", s.summary())
	t.faults(s)
}

// faults adds what is wrong with a resource.
func (t *text) faults(s *ResourceStatus) {
	if s.Error != "" {
		t.fields(styled.Bad, 1, "error", s.failure())
	}
	t.fields(styled.Bad, 1, "rejected", s.Faults...)
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
	t.fields(styled.Plain, 1, "ignored", few(list, maxIgnored, " fields")...)
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
	if !s.Updated.IsZero() {
		parts = append(parts, "of "+livestate.Clock(s.Updated))
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
	if !s.ErrorTime.IsZero() {
		line = livestate.Clock(s.ErrorTime) + ": " + line
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
	var others styled.Table
	chosen := -1
	for i := range hosts {
		if hosts[i].Chosen {
			chosen = i
		} else {
			others.Row(styled.Plain, "not "+quote(hosts[i].Name), hosts[i].Reason)
		}
	}
	switch {
	case chosen >= 0:
		t.heading("virtual host %s%s", quote(hosts[chosen].Name), behind(hosts[chosen].At))
		t.line(styled.Plain, 1, "%s", hosts[chosen].Reason)
	case len(hosts) > 0:
		t.heading("virtual hosts")
	}
	if n := len(others); n > maxHosts {
		others = others[:maxHosts]
		others.Row(styled.Plain, fmt.Sprintf("and %d more", n-maxHosts))
	}
	t.lines.AddTable(indent, others)
}

func (t *text) routes(e *Explanation) {
	if len(e.Routes)+e.RoutesLeft == 0 {
		return
	}
	t.heading("routes, in the order in which they are tried")
	var rows styled.Table
	left, others := 0, 0 // others do not have the path of the RPC
	for i := range e.Routes {
		r, room := &e.Routes[i], len(rows) < maxRows
		if r.Action == nil && !r.almost() {
			others++
			room = room && others <= maxOthers
		}
		if !room {
			left++
			continue
		}
		r.row(&rows)
	}
	if left > 0 {
		rows.Row(styled.Plain, "…", fmt.Sprintf("%d more", left))
	}
	t.lines.AddTable(indent, rows)
	if e.RoutesLeft > 0 {
		t.line(styled.Plain, 1, "%s with other paths", faults.Count(e.RoutesLeft, "later route"))
	}
}

// row adds a route to the table of routes.
func (r *Route) row(table *styled.Table) {
	number := strconv.Itoa(r.Index)
	if r.Name != "" {
		number += " " + quote(r.Name)
	}
	style, result := styled.Plain, ""
	switch {
	case r.LeftOut != "":
		result = "left out: " + r.LeftOut
	case r.Failed != "":
		result = "no: " + r.Failed
	case r.Later:
		result = "matches too, but an earlier route takes all RPCs"
	default:
		style, result = styled.Good, "taken by "+formatPercent(r.Share)+" of the RPCs"
	}
	if r.Unchecked != "" {
		result += "; " + r.Unchecked
	}
	table.Row(style, number, r.Match, result+behind(r.At))
}
