package clients

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/mesh/internal/styled"
)

// Lines returns a summary, a table with a line for each destination, and below it the versions where there are several, what clients
// refuse and what is wrong at the replicas.
func (t *Top) Lines() styled.Text {
	var lines styled.Text
	t.summary(&lines, t.Clients, fmt.Sprintf("%d in sync, %d behind, %d refusing", t.InSync, t.Behind, t.Refusing))
	if len(t.Agents) > 0 {
		var agents []string
		for _, a := range t.Agents {
			agents = append(agents, fmt.Sprintf("%d %s", a.Clients, a.Name))
		}
		lines.Add(styled.Plain, "%s", faults.Printable("clients: "+strings.Join(agents, ", "), ""))
	}
	t.table(&lines)
	if t.MoreDestinations > 0 {
		lines.Add(styled.Plain, "and %s", faults.Count(t.MoreDestinations, "more destination"))
	}
	section(&lines, "Several versions:", t.severalVersions())
	section(&lines, "Refused:", t.refused())
	section(&lines, "Configuration:", t.troubles())
	section(&lines, "Relays without their control plane:", t.upstreams())
	return lines
}

func (t *Top) table(lines *styled.Text) {
	if len(t.Destinations) == 0 {
		return
	}
	var cells bytes.Buffer
	table := tabwriter.NewWriter(&cells, 0, 0, 2, ' ', 0)
	row(table, "DESTINATION", "CLIENTS", "IN SYNC", "BEHIND", "REFUSING", "VERSIONS", "RPCs/s", "ERRORS", "P99")
	for i := range t.Destinations {
		d := &t.Destinations[i]
		rate, failed, p99 := livestate.Cells(d.RPCs)
		row(table, d.Name, strconv.Itoa(d.Clients), strconv.Itoa(d.InSync), strconv.Itoa(d.Behind), strconv.Itoa(d.Refusing), strconv.Itoa(d.MostVersions), rate, failed, p99)
	}
	_ = table.Flush() // a buffer has no errors
	lines.Add(styled.Plain, "")
	begin := len(*lines)
	lines.AddAll(styled.Plain, cells.String())
	(*lines)[begin].Style = styled.Heading
	for i := range t.Destinations {
		(*lines)[begin+1+i].Style = t.Destinations[i].style()
	}
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
func (t *Top) severalVersions() string {
	var b bytes.Buffer
	for i := range t.Destinations {
		d := &t.Destinations[i]
		byType := make(map[string][]string)
		for _, v := range d.Versions {
			byType[v.Type] = append(byType[v.Type], fmt.Sprintf("%s (%d)", v.Version, v.Clients))
		}
		for _, v := range d.Versions {
			if of := byType[v.Type]; len(of) > 1 {
				line(&b, "%s %s: %s", v.Type, d.Name, strings.Join(of, ", "))
				delete(byType, v.Type)
			}
		}
		if d.MoreVersions > 0 {
			line(&b, "%s: and %s", d.Name, faults.Count(d.MoreVersions, "more version"))
		}
	}
	return b.String()
}

func (t *Top) refused() string {
	var b bytes.Buffer
	for i := range t.Refusals {
		r := &t.Refusals[i]
		who := r.Client
		if r.Clients > 1 {
			who += fmt.Sprintf(" and %d more", r.Clients-1)
		}
		line(&b, "%s: %s, version %s: %s", who, r.Type, r.Version, r.Error)
	}
	if t.MoreRefusals > 0 {
		line(&b, "and %d more", t.MoreRefusals)
	}
	return b.String()
}
