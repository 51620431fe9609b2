package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/mesh/internal/styled"
	"github.com/dynxds/dynxds/xdsclient"
)

// maxTargets bounds the targets in the heading of a client.
const maxTargets = 5

// Lines returns the report for a terminal: for each client first how it is, then its resources. What the process says has
// no control characters.
func (r *Report) Lines() styled.Text {
	if len(r.Clients) == 0 {
		return styled.Text{{Text: "no xDS client in use"}}
	}
	var t text
	for i := range r.Clients {
		c := &r.Clients[i]
		t.line(styled.Heading, 0, "client %q%s", c.Node, styled.With(" of %s", faults.Few(strings.Split(c.Scope, ", "), maxTargets, ", ")))
		if s := c.State; s == nil {
			t.line(styled.Doubtful, 1, "%s: the process says only what its xDS client holds", explain.ConnectionsUnknown)
		} else {
			v := &s.Verdict
			t.line(styled.OfState(string(v.State)), 1, "%s", cmp.Or(v.Text, string(v.State)))
			if r.glance {
				t.top(s)
			} else {
				t.state(s)
			}
		}
		for j := range c.Resources {
			t.resource(c.Resources[j])
		}
	}
	return t.Text
}

// text is the lines of a report.
type text struct{ styled.Text }

// line adds a line.
func (t *text) line(style styled.Style, depth int, format string, args ...any) {
	t.Add(style, strings.Repeat("  ", depth)+format, args...)
}

func (t *text) state(s *livestate.State) {
	for i := range s.Problems {
		p := &s.Problems[i]
		t.line(styled.OfState(string(p.Severity)), 1, "%s: %s: %s%s%s", p.Severity, p.Subject, p.Text, styled.With(", since %s", livestate.Clock(p.Since)), styled.With("  [%s]", p.Where))
	}
	t.more(s.ProblemsLeftOut, "problem")
	for _, server := range s.Servers {
		style, how := styled.Good, "connected"
		if at := server.BehindSince; !at.IsZero() {
			style, how = styled.Doubtful, livestate.RelayAlone(s.Time.Sub(at))
		}
		if !server.Connected {
			style, how = styled.Bad, "not connected"+styled.With(": %s", server.Error)
		}
		next := ""
		if at := server.NextAttempt; !at.IsZero() {
			next = ", next attempt in about " + livestate.Ago(at.Sub(s.Time))
		}
		t.line(style, 1, "control plane %s: %s%s%s", server.URI, how, styled.With(", since %s", livestate.Clock(server.Since)), next)
	}
	t.more(s.ServersLeftOut, "control plane")
	for _, c := range s.Certificates {
		t.line(styled.Plain, 1, "certificate %s: %s, at %s", c.File, livestate.CertificateEnd(c.NotAfter.Sub(s.Time)), livestate.Clock(c.NotAfter))
	}
	t.more(s.CertificatesLeftOut, "certificate")
	for i := range s.Channels {
		c := &s.Channels[i]
		t.line(styled.OfState(c.State), 1, "channel %d %s: %s, %s%s%s", c.Number, c.Target, c.State, c.Mode, styled.With(": %s", c.Error), styled.With("; %s", livestate.RPCs(c.RPCs)))
	}
	t.more(s.ChannelsLeftOut, "channel")
	for _, c := range s.Clusters {
		t.cluster(c, slices.ContainsFunc(s.Problems, func(p livestate.Problem) bool { return strings.HasPrefix(p.Text, c.Error) }))
	}
	t.more(s.ClustersLeftOut, "cluster")
	for i := range s.Splits {
		t.split(&s.Splits[i])
	}
	t.more(s.SplitsLeftOut, "route with several clusters")
}

// top adds a table with a line for each cluster.
func (t *text) top(s *livestate.State) {
	if len(s.Clusters) == 0 {
		return
	}
	var table styled.Table
	table.Row(styled.Heading, "CLUSTER", "TARGET", "STATE", "ENDPOINTS", "RPCs/s", "ERRORS", "P99")
	for _, of := range s.Clusters {
		var minute *outcomes.Minute
		if of.RPCs != nil {
			minute = &of.RPCs.Minute
		}
		rate, failed, p99 := livestate.Cells(minute)
		table.Row(styled.OfState(string(of.Health)), of.Name, of.Target, string(of.Health), of.Endpoints.String(), rate, failed, p99)
	}
	t.AddTable("  ", table)
	t.more(s.ClustersLeftOut, "cluster")
}

// split compares the clusters of a route.
func (t *text) split(s *livestate.Split) {
	t.line(styled.Plain, 1, "route %s of %s:", s.Route, s.Target)
	var table styled.Table
	for i := range s.Clusters {
		c := &s.Clusters[i]
		m := &c.Minute
		p50, p99 := "-", "-"
		if m.P50 != nil && m.P99 != nil {
			p50, p99 = livestate.Latency(*m.P50), livestate.Latency(*m.P99)
		}
		table.Row(styled.Plain, c.Name, fmt.Sprintf("%.1f RPCs/s", m.Rate()), livestate.Percent(m.Share())+" failed", "p50 "+p50, "p99 "+p99)
	}
	t.AddTable("    ", table)
}

func (t *text) more(n int, noun string) {
	if n > 0 {
		t.line(styled.Plain, 1, "and %s more", faults.Count(n, noun))
	}
}

// cluster adds a cluster. told is set if its error stands among the problems.
func (t *text) cluster(c *livestate.Cluster, told bool) {
	err := c.Error
	if told {
		err = ""
	}
	t.line(styled.OfState(string(c.Health)), 1, "cluster %s: %s, %s%s%s%s", c.Name, c.Health, &c.Endpoints, styled.With(": %s", err), styled.With("; %s", c.Notes), styled.With("; %s", livestate.RPCs(c.RPCs)))
	for i := range c.BadEndpoints {
		e := &c.BadEndpoints[i]
		style, how := explain.EndpointText(e)
		if !e.Usable() {
			how += ", " + e.Health
		}
		t.line(style, 2, "endpoint %s: %s%s%s", e.Addresses[0], how, styled.With(", since %s", livestate.Clock(e.Since)), styled.With(": %s", e.Error))
	}
	for _, r := range c.Routes {
		t.line(styled.Plain, 2, "route %s%s", r.Route, styled.With("; %s", livestate.RPCs(r.RPCs)))
	}
}

func (t *text) resource(r *explain.ResourceStatus) {
	t.line(styled.OfState(r.State), 1, "%s %s: %s", r.Type, r.Name, r.Summary())
	if r.Error != "" {
		t.line(styled.Bad, 2, "error: %s", r.Error)
	}
	for _, fault := range r.Faults {
		t.line(styled.Plain, 2, "%s", fault)
	}
	for i := range r.Ignored {
		what := "ignored"
		if r.Ignored[i].Severity == xdsclient.SeverityWarning {
			what = "warning: ignored"
		}
		t.line(styled.Plain, 2, "%s: %s", what, &r.Ignored[i])
	}
}
