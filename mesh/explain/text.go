package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/mesh/internal/styled"
	"github.com/dynxds/dynxds/xdsclient"
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

// first returns the first items of a list, and how many more there are: none or at least 2.
func first[S ~[]E, E any](list S, most int) (S, int) {
	if n := len(list) - most; n > 1 {
		return list[:most:most], n
	}
	return list, 0
}

// few returns the first items of a list, and how many more there are.
func few(items []string, most int, what string) []string {
	items, more := first(items, most)
	if more > 0 {
		items = append(items, fmt.Sprintf("and %d%s more", more, what))
	}
	return items
}

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
	taken, more := first(slices.DeleteFunc(slices.Clone(e.Routes), func(r Route) bool { return r.Action == nil }), maxActions)
	for i := range taken {
		t.action(&taken[i])
	}
	if more > 0 {
		t.heading("and %d routes more that are taken", more)
	}
	clusters, more := first(e.Clusters, maxClusters)
	for _, c := range clusters {
		t.cluster(c)
	}
	if more > 0 {
		t.heading("and %d clusters more", more)
	}
	return t.Text
}

// text is a page of lines.
type text struct{ styled.Text }

const indent = "    "

// line adds a line.
func (t *text) line(style styled.Style, depth int, format string, args ...any) {
	t.Add(style, strings.Repeat(indent, depth)+format, args...)
}

// heading begins a section.
func (t *text) heading(format string, args ...any) {
	t.Add(styled.Plain, "")
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

// item adds a named line about something that was written at a place, and that the client may not act on.
func (t *text) item(depth int, name, line, ignored, at string) {
	style := styled.Plain
	if ignored != "" {
		style = styled.Bad
	}
	t.fields(style, depth, name, line+styled.With("; NOT IN FORCE: %s", ignored)+behind(at))
}

// behind puts a place behind a line.
func behind(at string) string { return styled.With("  [%s]", at) }

// short shortens what is quoted.
func short(text string) string { return faults.Shorten(text, faults.MaxQuoted) }

func (t *text) head(e *Explanation) {
	t.fields(styled.Plain, 0, "RPC", e.Request.Method+" to "+cmp.Or(e.Request.Target, "Listener "+quote(e.Request.Listener)))
	c := &e.Client
	t.fields(styled.Plain, 0, "client", c.Source+styled.With(": %s", strings.TrimSpace(c.Name+" "+c.Version))+styled.With(", node %q", short(c.NodeID))+styled.With(", channel %s", c.Channel))
	name, outcomes := "outcome", e.outcomes
	if e.Pending != "" {
		t.fields(styled.Heading, 0, name, e.Pending)
		name = "then"
	}
	if len(outcomes) == 0 {
		outcomes = []string{strings.TrimPrefix(e.Outcome, e.Pending+"; then: ")}
	}
	t.fields(styled.Heading, 0, name, outcomes...)
	t.fields(styled.Plain, 0, "note", few(e.Notes, maxNotes, "")...)
}

// resource adds a section for a resource.
func (t *text) resource(s *ResourceStatus) {
	if s != nil {
		t.heading("%s %s", s.Type, quote(s.Name))
		t.status(s)
	}
}

// status adds the lines of a resource below its heading.
func (t *text) status(s *ResourceStatus) {
	t.line(styled.OfState(s.State), 1, "%s", s.Summary())
	t.faults(s)
}

// faults adds what is wrong with a resource.
func (t *text) faults(s *ResourceStatus) {
	if s.Error != "" {
		t.fields(styled.Bad, 1, "error", styled.With("%s: ", livestate.Clock(s.ErrorTime))+styled.With("version %q: ", short(s.ErrorVersion))+s.Error)
	}
	t.fields(styled.Bad, 1, "rejected", s.Faults...)
	var list []string
	for i := range s.Ignored {
		line := s.Ignored[i].String()
		if s.Ignored[i].Severity == xdsclient.SeverityWarning {
			line = "warning: " + line
		}
		list = append(list, line)
	}
	t.fields(styled.Plain, 1, "ignored", few(list, maxIgnored, " fields")...)
}

// Summary describes the state of the resource on one line.
func (s *ResourceStatus) Summary() string {
	line := cmp.Or(s.State, "not requested")
	if s.Cached {
		switch {
		case s.FromDisk != "":
			line += ", from disk, " + s.FromDisk
		case s.State != "ACKED" && s.State != WouldBeSent:
			line += ", an older version is in use"
		}
		line += styled.With(", version %q", short(s.Version))
	}
	return line + styled.With(", from %s", s.Server) + styled.With(", of %s", livestate.Clock(s.Updated)) + styled.With(", variant %s", s.Variant)
}

func (t *text) hosts(hosts []VirtualHost) {
	if len(hosts) == 0 {
		return
	}
	chosen := slices.IndexFunc(hosts, func(h VirtualHost) bool { return h.Chosen })
	if chosen >= 0 {
		t.heading("virtual host %s%s", quote(hosts[chosen].Name), behind(hosts[chosen].At))
		t.line(styled.Plain, 1, "%s", hosts[chosen].Reason)
	} else {
		t.heading("virtual hosts")
	}
	var others styled.Table
	for i := range hosts {
		if i != chosen {
			others.Row(styled.Plain, "not "+quote(hosts[i].Name), hosts[i].Reason)
		}
	}
	others, more := first(others, maxHosts)
	if more > 0 {
		others.Row(styled.Plain, fmt.Sprintf("and %d more", more))
	}
	t.AddTable(indent, others)
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
	t.AddTable(indent, rows)
	if e.RoutesLeft > 0 {
		t.line(styled.Plain, 1, "%s with other paths", faults.Count(e.RoutesLeft, "later route"))
	}
}

// row adds a route to the table of routes.
func (r *Route) row(table *styled.Table) {
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
	table.Row(style, strconv.Itoa(r.Index)+styled.With(" %q", short(r.Name)), r.Match, result+styled.With("; %s", r.Unchecked)+behind(r.At))
}

func (t *text) action(r *Route) {
	a := r.Action
	t.heading("%s: %s of the RPCs%s", r.title(), formatPercent(r.Share), behind(r.At))
	if a.Kind != kindForward {
		t.fields(styled.Plain, 1, a.Kind, a.status())
	}
	t.destinations("cluster", a.Destinations)
	t.filters(1, a.Filters)
	t.settings(1, a.Settings)
	t.destinations("mirror", a.Mirrors)
}

// destinations adds the clusters or the mirrors of a route.
func (t *text) destinations(name string, list []Destination) {
	list, more := first(list, maxClusters)
	for i := range list {
		d := &list[i]
		line := quote(d.Cluster) + styled.With(" (by header %s)", d.Header) + "  " + formatPercent(d.Percent) + styled.With(": %s", d.Error)
		t.item(1, name, line, d.Ignored, d.At)
		t.filters(2, d.Filters)
		t.settings(2, d.Settings)
	}
	if more > 0 {
		t.fields(styled.Plain, 1, name, fmt.Sprintf("and %d more", more))
	}
}

func (t *text) filters(depth int, filters []Filter) {
	name := "filters"
	for i := range filters {
		f := &filters[i]
		line := quote(f.Name) + " " + f.Type
		if f.Disabled {
			line += ", disabled"
		}
		if f.Level != levelListener {
			line += ", by the " + f.Level
		}
		config := string(f.Config)
		if f.Override != nil {
			config = string(f.Override)
		}
		switch {
		case f.Chooses != "":
			line += " chooses " + faults.Shorten(f.Chooses, maxConfig)
		case config != "" && !f.Disabled && config != "{}":
			line += " " + faults.Shorten(config, maxConfig)
		}
		t.item(depth, name, line, f.Ignored, f.At)
		name = ""
	}
}

func (t *text) settings(depth int, list []Setting) {
	before := ""
	for i := range list {
		s, name := &list[i], list[i].Name
		if name == before {
			name = ""
		}
		before = s.Name
		t.item(depth, name, s.Value+styled.With(", by the %s", s.Level), s.Ignored, s.At)
	}
}

func (t *text) cluster(c *Cluster) {
	what := formatPercent(c.Share) + " of the RPCs"
	switch {
	case c.Share > 0:
	case c.Mirror:
		what = "mirrors"
	case c.Of != "":
		what = "member of " + quote(c.Of)
	}
	t.heading("cluster %s: %s%s", quote(c.Name), what, behind(c.At))
	if c.Resource != nil {
		t.status(c.Resource)
	}
	inUse := c.Assignment.InUse()
	if inUse == nil || inUse.Reason == "" || !strings.HasSuffix(c.Error, inUse.Reason) { // which stands below
		t.fields(styled.Bad, 1, "fails", inUse.brief(c.Error))
	}
	t.fields(styled.Plain, 1, "waits", c.Waits)
	t.fields(styled.Plain, 1, "unknown", c.Unknown)
	t.fields(styled.Plain, 1, "connections", c.Connections)
	t.fields(styled.Plain, 1, "RPCs", inUse.brief(c.RPCs))
	t.fields(styled.Plain, 1, "type", c.Type)
	members, more := first(c.Members, maxClusters)
	for _, name := range members {
		style, line := styled.Plain, quote(name)
		if name == c.InUse {
			style, line = styled.Good, line+"  in use: "+c.Reason
		}
		t.fields(style, 1, "member", line)
	}
	if more > 0 {
		t.fields(styled.Plain, 1, "member", fmt.Sprintf("and %d more", more))
	}
	t.settings(1, c.Settings)
	if c.Assignment != nil {
		t.assignment(c.Assignment, c.wouldBe())
	}
}

// brief returns a line without the errors of endpoints, which stand below.
func (p *Priority) brief(line string) string {
	if p == nil {
		return line
	}
	for i := range p.Localities {
		endpoints, _ := first(p.Localities[i].Endpoints, maxEndpoints)
		for j := range endpoints {
			if e := endpoints[j].Error; e != "" {
				line = strings.Replace(line, ": "+e, "", 1)
			}
		}
	}
	return line
}

// wouldBe is put before what a client would have of a folder, and is otherwise empty.
func (c *Cluster) wouldBe() string {
	if c.Resource != nil && c.Resource.State == WouldBeSent {
		return "would be "
	}
	return ""
}

func (t *text) assignment(a *ClusterAssignment, wouldBe string) {
	if s := a.Resource; s != nil {
		t.fields(styled.OfState(s.State), 1, "endpoints", s.Type+" "+quote(s.Name)+": "+s.Summary())
		t.faults(s)
	}
	for _, d := range a.Drops {
		t.fields(styled.Plain, 1, "drops", formatPercent(d.Percent)+", category "+quote(d.Category))
	}
	for i := range a.Priorities {
		p := &a.Priorities[i]
		line := "not in use"
		if p.Use.InUse {
			line = wouldBe + "in use"
		}
		line += styled.With(", %s", string(p.State)) + styled.With(": %s", p.Reason)
		t.fields(styled.OfState(string(p.State)), 1, fmt.Sprintf("priority %d", p.Number), p.brief(line))
		for j := range p.Localities {
			l := &p.Localities[j]
			name := cmp.Or(strings.Trim(l.Region+"/"+l.Zone+"/"+l.SubZone, "/"), "no name")
			t.line(styled.OfState(string(l.State)), 2, "locality %s: weight %d, %s of the priority  %s", name, l.Weight, formatPercent(p.Percents[j]), l.State)
			t.endpoints(l.Endpoints, a.At, wouldBe)
		}
	}
}

func (t *text) endpoints(endpoints []inspect.Endpoint, at map[string]string, wouldBe string) {
	var rows styled.Table
	endpoints, more := first(endpoints, maxEndpoints)
	for i := range endpoints {
		e := &endpoints[i]
		address := e.Addresses[0]
		if len(e.Addresses) > 1 {
			address += " (" + strings.Join(e.Addresses[1:], ", ") + ")"
		}
		style, state := EndpointText(e)
		rows.Row(style, address, wouldBe+e.Health, fmt.Sprintf("weight %d", e.Weight), state, strings.TrimSpace(e.Error+behind(at[e.Addresses[0]])))
	}
	if more > 0 {
		rows.Row(styled.Plain, fmt.Sprintf("… and %d more", more))
	}
	t.AddTable(strings.Repeat(indent, 3), rows)
}

// EndpointText says how an endpoint is in a running channel, beside its Health.
func EndpointText(e *inspect.Endpoint) (style styled.Style, text string) {
	style, text = styled.OfState(e.Health, string(e.State), e.HealthCheck), string(e.State)
	if x := e.Ejection; x != nil {
		style = styled.Bad
		text += ", ejected by " + x.Method + styled.With(" until %s", livestate.Clock(x.Until))
	}
	return style, strings.TrimPrefix(text+styled.With(", health check: %s", e.HealthCheck), ", ")
}
