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
)

// maxCell bounds what a cell of the table shows, in bytes.
const maxCell = 64

// Print writes a table with a line for each type on each stream, and below it what clients said of what
// they refuse, the errors that they were sent, and a summary.
func (f *Fleet) Print(w io.Writer) error {
	var table, nacks, errs bytes.Buffer
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	refusing, behind := 0, 0
	if len(f.Clients) > 0 {
		row(t, "NODE", "CLUSTER", "ADDRESS", "REPLICA", "SINCE", "STREAM", "TYPE", "NAMES", "ACKED", "STATE")
	}
	for i := range f.Clients {
		c := &f.Clients[i]
		if c.refuses() {
			refusing++
		}
		if c.behind() {
			behind++
		}
		c.rows(t)
		c.texts(&nacks, &errs)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	section(&table, "Configuration:", f.configurations())
	section(&table, "Refused:", nacks.String())
	section(&table, "Errors in place of resources:", errs.String())
	if table.Len() > 0 {
		table.WriteByte('\n')
	}
	switch answered := f.Replicas - len(f.Unreachable); {
	case f.Replicas == 0:
		table.WriteString("no replica is running\n")
	case answered == 0:
		fmt.Fprintf(&table, "%s did not answer: its clients are unknown\n", faults.Count(f.Replicas, "replica"))
	default:
		fmt.Fprintf(&table, "%s at %s: %d rejecting, %d behind", faults.Count(len(f.Clients), "client stream"), faults.Count(answered, "replica"), refusing, behind)
		if n := len(f.Unreachable); n > 0 {
			fmt.Fprintf(&table, "; %s did not answer", faults.Count(n, "replica"))
		}
		table.WriteByte('\n')
	}
	_, err := w.Write(table.Bytes())
	return err
}

// configurations says what each replica has published last, and what is wrong with its documents.
func (f *Fleet) configurations() string {
	var b bytes.Buffer
	for _, replica := range slices.Sorted(maps.Keys(f.Configurations)) {
		state := f.Configurations[replica]
		if p := state.Published; p != nil {
			line(&b, "%s: version %d, published at %s: %s, %s", replica, p.Version, p.At.UTC().Format(time.RFC3339),
				faults.Count(p.Services, "service"), faults.Count(p.Policies, "policy"))
		}
		for _, text := range state.Text(true) {
			line(&b, "%s: %s", replica, faults.Shorten(text, maxError))
		}
	}
	return b.String()
}

func section(b *bytes.Buffer, title, lines string) {
	if lines == "" {
		return
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	b.WriteString(title + "\n" + lines)
}

// rows writes the client's lines of the table. Only the first has the cells that are the same in all.
func (c *Client) rows(t *tabwriter.Writer) {
	stream := c.Protocol
	if c.TP2 {
		stream += " TP2"
	}
	cells := []string{orDash(c.Node), orDash(c.Cluster), orDash(c.Address), c.Replica, age(c.asked.Sub(c.Since)), stream}
	if len(c.Types) == 0 {
		row(t, append(cells, "-", "-", "-", "-")...)
	}
	for i := range c.Types {
		of := &c.Types[i]
		names := fmt.Sprint(of.Names)
		if of.Wildcard {
			names = "*"
		}
		row(t, append(cells, of.Type, names, orDash(of.ACKed), of.state(c.asked))...)
		cells = make([]string, len(cells))
	}
	if c.MoreTypes > 0 {
		row(t, append(cells, faults.Count(c.MoreTypes, "more type"), "", "", "")...)
	}
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
