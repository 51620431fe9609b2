package clients

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/mesh/internal/styled"
)

// maxCell bounds what a cell of the table shows, in bytes.
const maxCell = 64

// Lines returns a table with a line for each type on each stream, and below it what clients said of what
// they refuse, the errors that they were sent, and a summary.
func (f *Fleet) Lines() styled.Text {
	var table styled.Table
	var nacks, errs []string
	standings := map[string]int{}
	if len(f.Clients) > 0 {
		table.Row(styled.Heading, "NODE", "CLUSTER", "ADDRESS", "REPLICA", "SINCE", "STREAM", "TYPE", "NAMES", "ACKED", "STATE")
	}
	for i := range f.Clients {
		c := &f.Clients[i]
		standings[c.Standing]++
		c.rows(&table, f.Resources)
		nacks, errs = c.texts(nacks, errs)
	}
	var lines styled.Text
	lines.AddTable("", table)
	section(&lines, "Configuration:", f.configurations(true))
	section(&lines, "Relays without their control plane:", f.upstreams())
	section(&lines, "Refused:", nacks)
	section(&lines, "Errors in place of resources:", errs)
	if len(lines) > 0 {
		lines.Add(styled.Plain, "")
	}
	f.summary(&lines, &Standings{
		Clients: len(f.Clients), InSync: standings[InSync.String()], Refusing: standings[Refusing.String()],
		Behind: standings[Behind.String()] + standings[Late.String()],
	})
	return lines
}

// summary adds the line that counts replicas and clients.
func (f *Replies) summary(lines *styled.Text, s *Standings) {
	switch answered := f.Replicas - len(f.Unreachable); {
	case f.Replicas == 0:
		lines.Add(styled.Plain, "no replica is running")
	case answered == 0:
		lines.Add(styled.Bad, "%s did not answer: its clients are unknown", faults.Count(f.Replicas, "replica"))
	default:
		text := fmt.Sprintf("%s at %s: %s", faults.Count(s.Clients, "client stream"), faults.Count(answered, "replica"), s.Text())
		if n := len(f.Unreachable); n > 0 {
			text += fmt.Sprintf("; %s did not answer", faults.Count(n, "replica"))
		}
		lines.Add(styled.Plain, "%s", text)
	}
}

// configurations says what is wrong with the documents of each replica, and, if published, also what it has published last and which of that has
// no effect.
func (f *Replies) configurations(published bool) (lines []string) {
	for _, replica := range slices.Sorted(maps.Keys(f.Configurations)) {
		state := f.Configurations[replica]
		texts := state.Text(true)
		if p := state.Published; published && p != nil {
			last := fmt.Sprintf("version %d, published at %s: %s, %s", p.Version, p.At.UTC().Format(time.RFC3339), faults.Count(p.Services, "service"), faults.Count(p.Policies, "policy"))
			reports, more := p.Beside()
			texts = slices.Concat([]string{last}, texts, reports)
			if more > 0 {
				texts = append(texts, "and "+faults.Count(more, "more report"))
			}
		}
		for _, text := range texts {
			lines = append(lines, replica+": "+faults.Shorten(text, maxError))
		}
	}
	return lines
}

// upstreams says which relays do not reach their control plane.
func (f *Replies) upstreams() (lines []string) {
	for _, relay := range slices.Sorted(maps.Keys(f.Upstreams)) {
		lines = append(lines, relay+": "+faults.Shorten(f.Upstreams[relay], maxError))
	}
	return lines
}

// section adds lines below a title.
func section(to *styled.Text, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	if len(*to) > 0 {
		to.Add(styled.Plain, "")
	}
	to.Add(styled.Plain, "%s", title)
	for _, line := range lines {
		to.Add(styled.Plain, "  %s", line)
	}
}

// rows adds the client's lines to the table. Only the first has the cells that are the same in all.
func (c *Client) rows(t *styled.Table, resources bool) {
	stream := c.Protocol
	if c.TP2 {
		stream += " TP2"
	}
	cells := []string{cmp.Or(c.Node, "-"), cmp.Or(c.Cluster, "-"), cmp.Or(c.Address, "-"), c.Replica, livestate.Ago(c.asked.Sub(c.Since)), stream}
	if len(c.Types) == 0 {
		row(t, styled.Plain, append(cells, "-", "-", "-", "-")...)
	}
	for i := range c.Types {
		of := &c.Types[i]
		names := fmt.Sprint(of.Names)
		if of.Wildcard {
			names = "*"
		}
		style, state := of.shown(c.asked)
		row(t, style, append(cells, of.Type, names, cmp.Or(of.ACKed, "-"), state)...)
		cells = make([]string, len(cells))
		if !resources {
			continue
		}
		for _, r := range of.Resources {
			row(t, styled.Plain, append(cells, "  "+r.Name, "", r.Version, "")...)
		}
	}
	if c.MoreTypes > 0 {
		row(t, styled.Plain, append(cells, faults.Count(c.MoreTypes, "more type"), "", "", "")...)
	}
}

// shown says in words what the client has of a type, and how that looks.
func (t *Type) shown(now time.Time) (styled.Style, string) {
	switch {
	case t.State == StateBehind:
		state := t.State + ": " + t.Sent + " sent"
		if t.Late {
			state = "late: " + t.Sent + " sent"
		}
		if t.SentAt != nil {
			state += " " + livestate.Ago(now.Sub(*t.SentAt)) + " ago"
		}
		if t.Refuses() {
			return styled.Bad, state + ", NACKed " + t.Refused
		}
		return styled.Doubtful, state
	case t.Refuses():
		return styled.Bad, "NACKed " + t.Refused
	case t.State == StateACK:
		return styled.Good, "ACKed"
	default:
		return styled.Plain, t.State
	}
}

// texts adds the client's rejections and the errors that it was sent, a line each.
func (c *Client) texts(nacks, errs []string) ([]string, []string) {
	who := c.Node
	if c.Address != "" {
		who += " (" + c.Address + ")"
	}
	for i := range c.Types {
		of := &c.Types[i]
		if of.Refuses() {
			nacks = append(nacks, fmt.Sprintf("%s: %s, version %s: %s", who, of.Type, of.Refused, of.Error))
		}
		for _, e := range of.Errors {
			name := fmt.Sprintf("%q", e.Name)
			if e.Constraints != "" {
				name += " with " + e.Constraints
			}
			errs = append(errs, fmt.Sprintf("%s: %s %s: %s", who, of.Type, name, e.Error))
		}
		if of.MoreErrors > 0 {
			errs = append(errs, fmt.Sprintf("%s: %s: and %s", who, of.Type, faults.Count(of.MoreErrors, "more error")))
		}
	}
	return nacks, errs
}

func row(t *styled.Table, style styled.Style, cells ...string) {
	for i, cell := range cells {
		cells[i] = faults.Shorten(cell, maxCell)
	}
	t.Row(style, cells...)
}

// Lines returns a summary, a table with a line for each destination, and below it the versions where there are several, what clients
// refuse and what is wrong at the replicas.
func (t *Top) Lines() styled.Text {
	var lines styled.Text
	t.summary(&lines, &t.Standings)
	if len(t.Agents) > 0 {
		var agents []string
		for _, a := range t.Agents {
			agents = append(agents, fmt.Sprintf("%d %s", a.Clients, a.Name))
		}
		if t.MoreAgents > 0 {
			agents = append(agents, faults.Count(t.MoreAgents, "more version"))
		}
		lines.Add(styled.Plain, "clients: %s", strings.Join(agents, ", "))
	}
	if len(t.Destinations) > 0 {
		lines.Add(styled.Plain, "")
		lines.AddTable("", t.table())
	}
	if t.MoreDestinations > 0 {
		lines.Add(styled.Plain, "and %s", faults.Count(t.MoreDestinations, "more destination"))
	}
	if t.Partial > 0 {
		lines.Add(styled.Doubtful, "of %s with many names, only some are counted here: dynxds clients has their number", faults.Count(t.Partial, "client"))
	}
	section(&lines, "Several versions:", t.severalVersions())
	section(&lines, "Refused:", t.refused())
	section(&lines, "Configuration:", t.configurations(false))
	section(&lines, "Relays without their control plane:", t.upstreams())
	return lines
}

func (t *Top) table() (table styled.Table) {
	row(&table, styled.Heading, "DESTINATION", "CLIENTS", "IN SYNC", "BEHIND", "REFUSING", "VERSIONS", "RPCs/s", "ERRORS", "P99")
	for i := range t.Destinations {
		d := &t.Destinations[i]
		rate, failed, p99 := livestate.Cells(d.RPCs)
		row(&table, d.style(), d.Name, strconv.Itoa(d.Clients), strconv.Itoa(d.InSync), strconv.Itoa(d.Behind), strconv.Itoa(d.Refusing), strconv.Itoa(d.MostVersions), rate, failed, p99)
	}
	return table
}

func (d *Destination) style() styled.Style {
	switch {
	case d.Refusing > 0:
		return styled.Bad
	case d.Behind > 0, d.RPCs != nil && d.RPCs.Failed > 0:
		return styled.Doubtful
	default:
		return styled.Good
	}
}

// severalVersions has the resources of which clients have several versions.
func (t *Top) severalVersions() (lines []string) {
	for i := range t.Destinations {
		d := &t.Destinations[i]
		byType := make(map[string][]string)
		for _, v := range d.Versions {
			byType[v.Type] = append(byType[v.Type], fmt.Sprintf("%s (%d)", v.Version, v.Clients))
		}
		for _, v := range d.Versions {
			if of := byType[v.Type]; len(of) > 1 {
				lines = append(lines, fmt.Sprintf("%s %s: %s", v.Type, d.Name, strings.Join(of, ", ")))
				delete(byType, v.Type)
			}
		}
		if d.MoreVersions > 0 {
			lines = append(lines, fmt.Sprintf("%s: and %s", d.Name, faults.Count(d.MoreVersions, "more version")))
		}
	}
	return lines
}

func (t *Top) refused() (lines []string) {
	for i := range t.Refusals {
		r := &t.Refusals[i]
		who := r.Client
		if r.Clients > 1 {
			who += fmt.Sprintf(" and %d more", r.Clients-1)
		}
		lines = append(lines, fmt.Sprintf("%s: %s, version %s: %s", who, r.Type, r.Version, r.Error))
	}
	if t.MoreRefusals > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", t.MoreRefusals))
	}
	return lines
}
