package clients

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/mesh/internal/styled"
)

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
		lines.Add(styled.Plain, "clients: %s", strings.Join(agents, ", "))
	}
	if len(t.Destinations) > 0 {
		lines.Add(styled.Plain, "")
		lines.AddTable("", t.table())
	}
	if t.MoreDestinations > 0 {
		lines.Add(styled.Plain, "and %s", faults.Count(t.MoreDestinations, "more destination"))
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
