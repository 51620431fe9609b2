package status

import (
	"context"
	"strings"
	"text/tabwriter"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/mesh/internal/styled"
)

// Top is a report without resources, whose text is the clusters at a glance.
type Top struct{ *Report }

// AskTop is Ask for a Top.
func AskTop(ctx context.Context, p Process) (Top, error) {
	r, err := Ask(ctx, p)
	if err != nil {
		return Top{}, err
	}
	for i := range r.Clients {
		r.Clients[i].Resources = []Resource{}
	}
	return Top{r}, nil
}

// Lines returns for each client its verdict, and a table with a line for each cluster.
func (t Top) Lines() styled.Text {
	if len(t.Clients) == 0 {
		return noClient()
	}
	var lines text
	for i := range t.Clients {
		lines.top(&t.Clients[i])
	}
	return lines.lines
}

func (t *text) top(c *Client) {
	t.client(c.Node, c.Scope)
	if c.State == nil {
		t.unknown()
		return
	}
	t.verdict(&c.State.Verdict)
	if len(c.State.Clusters) == 0 {
		return
	}
	var cells strings.Builder
	table := tabwriter.NewWriter(&cells, 0, 0, 2, ' ', 0)
	row := func(cells ...string) {
		for i, cell := range cells {
			cells[i] = faults.Printable(cell, "")
		}
		_, _ = table.Write([]byte(strings.Join(cells, "\t") + "\n")) // a builder has no errors
	}
	row("CLUSTER", "TARGET", "STATE", "ENDPOINTS", "RPCs/s", "ERRORS", "P99")
	styles := []styled.Style{styled.Heading}
	for _, of := range c.State.Clusters {
		var minute *livestate.Minute
		if of.RPCs != nil {
			minute = &of.RPCs.Minute
		}
		rate, failed, p99 := livestate.Cells(minute)
		row(of.Name, of.Target, string(of.Health), of.Endpoints.String(), rate, failed, p99)
		styles = append(styles, styled.OfState(string(of.Health)))
	}
	_ = table.Flush()
	for line := range strings.Lines(cells.String()) {
		t.line(styles[0], 1, "%s", strings.TrimRight(line, " \n"))
		styles = styles[1:]
	}
	t.more(c.State.ClustersLeftOut, "cluster")
}
