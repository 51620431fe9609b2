package clients

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
	"github.com/dynxds/dynxds/mesh/internal/styled"
)

// maxCell bounds what a cell of the table shows, in bytes.
const maxCell = 64

// Lines returns a table with a line for each type on each stream, and below it what clients said of what
// they refuse, the errors that they were sent, and a summary.
func (f *Fleet) Lines() styled.Text {
	var cells, nacks, errs bytes.Buffer
	var lines styled.Text
	t := tabwriter.NewWriter(&cells, 0, 0, 2, ' ', 0)
	refusing, behind := 0, 0
	styles := []styled.Style{styled.Heading} // of the rows
	if len(f.Clients) > 0 {
		row(t, "NODE", "CLUSTER", "ADDRESS", "REPLICA", "SINCE", "STREAM", "TYPE", "NAMES", "ACKED", "STATE")
	}
	for i := range f.Clients {
		c := &f.Clients[i]
		switch c.Standing {
		case Refusing.String():
			refusing++
		case Behind.String(), Late.String():
			behind++
		}
		styles = append(styles, c.rows(t, f.Resources)...)
		c.texts(&nacks, &errs)
	}
	_ = t.Flush() // a buffer has no errors
	lines.AddAll(styled.Plain, cells.String())
	for i := range lines {
		lines[i].Style = styles[i]
	}
	section(&lines, "Configuration:", f.configurations())
	section(&lines, "Relays without their control plane:", f.upstreams())
	section(&lines, "Refused:", nacks.String())
	section(&lines, "Errors in place of resources:", errs.String())
	if len(lines) > 0 {
		lines.Add(styled.Plain, "")
	}
	f.summary(&lines, len(f.Clients), fmt.Sprintf("%d rejecting, %d behind", refusing, behind))
	return lines
}

// summary adds the line that counts replicas and clients.
func (f *Replies) summary(lines *styled.Text, clients int, standings string) {
	switch answered := f.Replicas - len(f.Unreachable); {
	case f.Replicas == 0:
		lines.Add(styled.Plain, "no replica is running")
	case answered == 0:
		lines.Add(styled.Bad, "%s did not answer: its clients are unknown", faults.Count(f.Replicas, "replica"))
	default:
		text := fmt.Sprintf("%s at %s: %s", faults.Count(clients, "client stream"), faults.Count(answered, "replica"), standings)
		if n := len(f.Unreachable); n > 0 {
			text += fmt.Sprintf("; %s did not answer", faults.Count(n, "replica"))
		}
		lines.Add(styled.Plain, "%s", text)
	}
}

// inOrder iterates over the configurations by the addresses of the replicas.
func (f *Replies) inOrder(yield func(string, *planestate.State) bool) {
	for _, replica := range slices.Sorted(maps.Keys(f.Configurations)) {
		state := f.Configurations[replica]
		if !yield(replica, &state) {
			return
		}
	}
}

// troubles says what is wrong with the documents of replicas.
func (f *Replies) troubles() string {
	var b bytes.Buffer
	for replica, state := range f.inOrder {
		for _, text := range state.Text(true) {
			line(&b, "%s: %s", replica, faults.Shorten(text, maxError))
		}
	}
	return b.String()
}

// configurations says what each replica has published last, and what is wrong with its documents or has no effect.
func (f *Replies) configurations() string {
	var b bytes.Buffer
	for replica, state := range f.inOrder {
		if p := state.Published; p != nil {
			line(&b, "%s: version %d, published at %s: %s, %s", replica, p.Version, p.At.UTC().Format(time.RFC3339),
				faults.Count(p.Services, "service"), faults.Count(p.Policies, "policy"))
		}
		for _, text := range state.Text(true) {
			line(&b, "%s: %s", replica, faults.Shorten(text, maxError))
		}
		if p := state.Published; p != nil {
			reports, more := p.Beside()
			for _, text := range reports {
				line(&b, "%s: %s", replica, faults.Shorten(text, maxError))
			}
			if more > 0 {
				line(&b, "%s: and %s", replica, faults.Count(more, "more report"))
			}
		}
	}
	return b.String()
}

// upstreams says which relays do not reach their control plane.
func (f *Replies) upstreams() string {
	var b bytes.Buffer
	for _, relay := range slices.Sorted(maps.Keys(f.Upstreams)) {
		line(&b, "%s: %s", relay, faults.Shorten(f.Upstreams[relay], maxError))
	}
	return b.String()
}

func section(to *styled.Text, title, lines string) {
	if lines == "" {
		return
	}
	if len(*to) > 0 {
		to.Add(styled.Plain, "")
	}
	to.Add(styled.Plain, "%s", title)
	to.AddAll(styled.Plain, lines)
}

// rows writes the client's lines of the table, and returns their styles. Only the first has the cells that are the same in all.
func (c *Client) rows(t *tabwriter.Writer, resources bool) (styles []styled.Style) {
	stream := c.Protocol
	if c.TP2 {
		stream += " TP2"
	}
	cells := []string{orDash(c.Node), orDash(c.Cluster), orDash(c.Address), c.Replica, age(c.asked.Sub(c.Since)), stream}
	if len(c.Types) == 0 {
		row(t, append(cells, "-", "-", "-", "-")...)
		styles = append(styles, styled.Plain)
	}
	for i := range c.Types {
		of := &c.Types[i]
		names := fmt.Sprint(of.Names)
		if of.Wildcard {
			names = "*"
		}
		row(t, append(cells, of.Type, names, orDash(of.ACKed), of.state(c.asked))...)
		styles = append(styles, of.style())
		cells = make([]string, len(cells))
		if !resources {
			continue
		}
		for _, r := range of.Resources {
			row(t, append(cells, "  "+r.Name, "", r.Version, "")...)
			styles = append(styles, styled.Plain)
		}
	}
	if c.MoreTypes > 0 {
		row(t, append(cells, faults.Count(c.MoreTypes, "more type"), "", "", "")...)
		styles = append(styles, styled.Plain)
	}
	return styles
}

func (t *Type) style() styled.Style {
	switch {
	case t.Refuses():
		return styled.Bad
	case t.State == StateBehind:
		return styled.Doubtful
	case t.State == StateACK:
		return styled.Good
	}
	return styled.Plain
}

// state says in words what the client has of a type.
func (t *Type) state(now time.Time) string {
	switch {
	case t.State == StateBehind:
		state := "behind: " + t.Sent + " sent"
		if t.SentAt != nil {
			state += " " + age(now.Sub(*t.SentAt)) + " ago"
		}
		if t.Refuses() {
			state += ", NACKed " + t.Refused
		}
		return state
	case t.Refuses():
		return "NACKed " + t.Refused
	case t.State == StateACK:
		return "ACKed"
	}
	return t.State
}

// texts writes the client's rejections and the errors that it was sent, a line each.
func (c *Client) texts(nacks, errs *bytes.Buffer) {
	who := c.Node
	if c.Address != "" {
		who += " (" + c.Address + ")"
	}
	for i := range c.Types {
		of := &c.Types[i]
		if of.Refuses() {
			line(nacks, "%s: %s, version %s: %s", who, of.Type, of.Refused, of.Error)
		}
		for _, e := range of.Errors {
			name := fmt.Sprintf("%q", e.Name)
			if e.Constraints != "" {
				name += " with " + e.Constraints
			}
			line(errs, "%s: %s %s: %s", who, of.Type, name, e.Error)
		}
		if of.MoreErrors > 0 {
			line(errs, "%s: %s: and %s", who, of.Type, faults.Count(of.MoreErrors, "more error"))
		}
	}
}

// line writes a line, in which what clients say has no control characters.
func line(b *bytes.Buffer, format string, args ...any) {
	b.WriteString("  " + faults.Printable(fmt.Sprintf(format, args...), "") + "\n")
}

func row(t io.Writer, cells ...string) {
	for i, cell := range cells {
		cells[i] = faults.Printable(faults.Shorten(cell, maxCell), "")
	}
	fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
}

func orDash(cell string) string {
	if cell == "" {
		return "-"
	}
	return cell
}

// age is a duration for a person to read.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	default:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
}
