package explain

import (
	"fmt"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/mesh/internal/styled"
)

func (t *text) action(r *Route) {
	a := r.Action
	t.heading("%s: %s of the RPCs%s", r.title(), formatPercent(r.Share), behind(r.At))
	if a.Kind != kindForward {
		t.field(1, a.Kind, strings.TrimSuffix(a.Code+": "+a.Message, ": "))
	}
	t.destinations("cluster", a.Destinations)
	t.filters(1, a.Filters)
	if s := a.Timeout; s != nil {
		t.field(1, "timeout", fmt.Sprintf("%s, by the %s%s", s.Value, s.Level, behind(s.At)))
	}
	if p := a.Retry; p != nil {
		hedged := ""
		if p.Hedged != "" {
			hedged = fmt.Sprintf(", hedged after %s", p.Hedged)
		}
		t.field(1, "retry", fmt.Sprintf("on %s, %d attempts, after %s to %s%s, by the %s%s", strings.Join(p.On, ", "), p.MaxAttempts,
			p.BaseBackoff, p.MaxBackoff, hedged, p.Level, behind(p.At)))
	}
	t.fields(1, "hash", hashLines(a.HashPolicies))
	t.rewrite(1, "path", a.Path)
	t.rewrite(1, "authority", a.Authority)
	t.headerEdits(1, a.Headers)
	t.destinations("mirror", a.Mirrors)
}

func (t *text) destinations(name string, list []Destination) {
	for i := range list {
		if i == maxClusters && len(list) > maxClusters+1 {
			t.field(1, name, fmt.Sprintf("and %d more", len(list)-i))
			return
		}
		t.destination(&list[i], name)
	}
}

func hashLines(list []HashPolicy) (lines []string) {
	for i := range list {
		h := &list[i]
		line := h.Of
		switch {
		case h.Reason != "":
			line += ": " + h.Reason
		case h.Value != "":
			line += ": " + quote(h.Value)
		}
		if h.Terminal {
			line += " (terminal)"
		}
		lines = append(lines, line)
	}
	return lines
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
	t.fieldAs(ofIgnored(d.Ignored), 1, name, line+ignored(d.Ignored)+behind(d.At))
	t.filters(2, d.Filters)
	t.headerEdits(2, d.Headers)
	t.rewrite(2, "authority", d.Authority)
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
		if config != nil && !f.Disabled && string(config) != "{}" {
			line += " " + faults.Shorten(string(config), maxConfig)
		}
		t.fieldAs(ofIgnored(f.Ignored), depth, name, line+ignored(f.Ignored)+behind(f.At))
		name = ""
	}
}

func (t *text) rewrite(depth int, name string, r *Rewrite) {
	if r == nil {
		return
	}
	to := quote(r.To)
	if r.To == "" {
		to = "the endpoint's hostname"
	}
	line := fmt.Sprintf("%s → %s (%s)", quote(r.From), to, r.By)
	if r.Error != "" {
		line += ": " + r.Error
	}
	t.fieldAs(ofIgnored(r.Ignored), depth, name, line+ignored(r.Ignored)+behind(r.At))
}

func (t *text) headerEdits(depth int, edits []HeaderEdit) {
	name := "headers"
	for i := range edits {
		h := &edits[i]
		t.fieldAs(ofIgnored(h.Ignored), depth, name, fmt.Sprintf("%s %s: %s%s", h.Side, h.Name, h.Edit, ignored(h.Ignored)+behind(h.At)))
		name = ""
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
	t.fieldAs(styled.Bad, 1, "fails", c.Error)
	t.field(1, "waits", c.Waits)
	t.field(1, "unknown", c.Unknown)
	t.field(1, "connections", c.Connections)
	t.field(1, "RPCs", c.RPCs)
	t.field(1, "type", c.Type)
	for i, name := range c.Members {
		if i == maxClusters && len(c.Members) > maxClusters+1 {
			t.field(1, "member", fmt.Sprintf("and %d more", len(c.Members)-i))
			break
		}
		style, line := styled.Plain, quote(name)
		if name == c.InUse {
			style, line = styled.Good, line+"  in use: "+c.Reason
		}
		t.fieldAs(style, 1, "member", line)
	}
	t.settings(c.Settings)
	if c.Assignment != nil {
		t.assignment(c.Assignment, c.wouldBe())
	}
}

func (t *text) settings(s *ClusterSettings) {
	if s == nil {
		return
	}
	policy := s.Policy
	if s.PolicyConfig != nil {
		policy += " " + string(s.PolicyConfig)
	}
	if s.AcrossLocalities {
		policy += ", across localities"
	}
	t.field(1, "policy", policy)
	t.field(1, "security", s.TLS)
	limit := fmt.Sprintf("%d concurrent RPCs", s.MaxRequests)
	if s.Requests != nil {
		limit += fmt.Sprintf(", now %d", *s.Requests)
	}
	t.field(1, "limit", limit)
	t.field(1, "outliers", s.Outliers)
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
		t.fieldAs(styled.OfState(s.State), 1, "endpoints", s.Type+" "+quote(s.Name)+": "+s.summary())
		t.faults(s)
	}
	for _, d := range a.Drops {
		t.field(1, "drops", formatPercent(d.Percent)+", category "+quote(d.Category))
	}
	for i := range a.Priorities {
		p := &a.Priorities[i]
		line := "not in use"
		if p.InUse {
			line = wouldBe + "in use"
		}
		if p.State != "" {
			line += ", " + p.State
		}
		if p.Reason != "" {
			line += ": " + p.Reason
		}
		t.lineAs(styled.OfState(p.State), 1, "%-12s %s", fmt.Sprintf("priority %d", p.Priority), line)
		for j := range p.Localities {
			t.locality(&p.Localities[j], wouldBe)
		}
	}
}

func (t *text) locality(l *Locality, wouldBe string) {
	name := strings.Trim(l.Region+"/"+l.Zone+"/"+l.SubZone, "/")
	if name == "" {
		name = "no name"
	}
	t.lineAs(styled.OfState(l.State), 2, "locality %s: weight %d, %s of the priority  %s", name, l.Weight, formatPercent(l.Percent), l.State)
	var rows []row
	for i := range l.Endpoints {
		if i == maxEndpoints && len(l.Endpoints) > maxEndpoints+1 {
			rows = append(rows, row{cells: []string{fmt.Sprintf("… and %d more", len(l.Endpoints)-i)}})
			break
		}
		rows = append(rows, l.Endpoints[i].row(wouldBe))
	}
	t.table(3, rows)
}

// row is an endpoint in the table of endpoints.
func (e *Endpoint) row(wouldBe string) row {
	style, state := styled.OfState(e.Health, e.State, e.HealthCheck), e.State
	if e.Ejected {
		style, state = styled.Bad, strings.TrimSpace(state+" ejected")
		if e.EjectedUntil != nil {
			state += " until " + livestate.Clock(*e.EjectedUntil)
		}
	}
	if e.HealthCheck != "" {
		state = strings.TrimSpace(state + " health check: " + e.HealthCheck)
	}
	address := e.Address
	if len(e.Additional) > 0 {
		address += " (" + strings.Join(e.Additional, ", ") + ")"
	}
	last := strings.TrimSpace(e.LastError + behind(e.At))
	return row{style, []string{address, wouldBe + e.Health, fmt.Sprintf("weight %d", e.Weight), state, last}}
}
