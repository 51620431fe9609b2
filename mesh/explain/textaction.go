package explain

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/mesh/internal/styled"
)

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

func (t *text) destinations(name string, list []Destination) {
	for i := range list {
		if i == maxClusters && len(list) > maxClusters+1 {
			t.fields(styled.Plain, 1, name, fmt.Sprintf("and %d more", len(list)-i))
			return
		}
		t.destination(&list[i], name)
	}
}

// destination adds a cluster or a mirror of a route.
func (t *text) destination(d *Destination, name string) {
	line := quote(d.Cluster)
	if d.Header != "" {
		line += " (by header " + d.Header + ")"
	}
	line += "  " + formatPercent(d.Percent)
	if d.Error != "" {
		line += ": " + d.Error
	}
	t.fields(ofIgnored(d.Ignored), 1, name, line+ignored(d.Ignored)+behind(d.At))
	t.filters(2, d.Filters)
	t.settings(2, d.Settings)
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
		config := f.Config
		if f.Override != nil {
			config = f.Override
		}
		switch {
		case f.Chooses != "":
			line += " chooses " + faults.Shorten(f.Chooses, maxConfig)
		case config != nil && !f.Disabled && string(config) != "{}":
			line += " " + faults.Shorten(string(config), maxConfig)
		}
		t.fields(ofIgnored(f.Ignored), depth, name, line+ignored(f.Ignored)+behind(f.At))
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
		line := s.Value
		if s.Level != "" {
			line += ", by the " + s.Level
		}
		t.fields(ofIgnored(s.Ignored), depth, name, line+ignored(s.Ignored)+behind(s.At))
	}
}

// ignored is the text for something that the client does not act on.
func ignored(why string) string {
	if why == "" {
		return ""
	}
	return "; NOT IN FORCE: " + why
}

// ofIgnored is the style of a line with that text.
func ofIgnored(why string) styled.Style {
	if why == "" {
		return styled.Plain
	}
	return styled.Bad
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
	if s := c.Resource; s != nil {
		t.status(s)
	}
	var inUse *Priority
	if c.Assignment != nil {
		inUse = c.Assignment.InUse()
	}
	if inUse == nil || inUse.Reason == "" || !strings.HasSuffix(c.Error, inUse.Reason) { // which stands below
		t.fields(styled.Bad, 1, "fails", inUse.brief(c.Error))
	}
	t.fields(styled.Plain, 1, "waits", c.Waits)
	t.fields(styled.Plain, 1, "unknown", c.Unknown)
	t.fields(styled.Plain, 1, "connections", c.Connections)
	t.fields(styled.Plain, 1, "RPCs", inUse.brief(c.RPCs))
	t.fields(styled.Plain, 1, "type", c.Type)
	for i, name := range c.Members {
		if i == maxClusters && len(c.Members) > maxClusters+1 {
			t.fields(styled.Plain, 1, "member", fmt.Sprintf("and %d more", len(c.Members)-i))
			break
		}
		style, line := styled.Plain, quote(name)
		if name == c.InUse {
			style, line = styled.Good, line+"  in use: "+c.Reason
		}
		t.fields(style, 1, "member", line)
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
		for j := range p.Localities[i].Endpoints {
			if e := p.Localities[i].Endpoints[j].Error; e != "" && j < maxEndpoints {
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
		t.fields(styled.OfState(s.State), 1, "endpoints", s.Type+" "+quote(s.Name)+": "+s.summary())
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
		if p.State != "" {
			line += ", " + string(p.State)
		}
		if p.Reason != "" {
			line += ": " + p.Reason
		}
		t.line(styled.OfState(string(p.State)), 1, "%-12s %s", fmt.Sprintf("priority %d", p.Number), p.brief(line))
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
	for i := range endpoints {
		if i == maxEndpoints && len(endpoints) > maxEndpoints+1 {
			rows.Row(styled.Plain, fmt.Sprintf("… and %d more", len(endpoints)-i))
			break
		}
		e := &endpoints[i]
		address := e.Addresses[0]
		if len(e.Addresses) > 1 {
			address += " (" + strings.Join(e.Addresses[1:], ", ") + ")"
		}
		style, state := shown(e)
		rows.Row(style, address, wouldBe+e.Health, fmt.Sprintf("weight %d", e.Weight), state, strings.TrimSpace(e.Error+behind(at[e.Addresses[0]])))
	}
	t.lines.AddTable(strings.Repeat(indent, 3), rows)
}

// shown says in words how an endpoint is in a running channel.
func shown(e *inspect.Endpoint) (style styled.Style, state string) {
	style, state = styled.OfState(e.Health, string(e.State), e.HealthCheck), string(e.State)
	if e.Ejection != nil {
		style, state = styled.Bad, strings.TrimSpace(state+" ejected")
		if !e.Ejection.Until.IsZero() {
			state += " until " + livestate.Clock(e.Ejection.Until)
		}
	}
	if e.HealthCheck != "" {
		state = strings.TrimSpace(state + " health check: " + e.HealthCheck)
	}
	return style, state
}
