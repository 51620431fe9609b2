package status

import (
	"context"
	"strings"
	"text/tabwriter"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/mesh/internal/styled"
)

// Top is the clusters of a process at a glance.
type Top struct {
	Clients []TopClient `json:"clients"`
}

// TopClient is one xDS client.
type TopClient struct {
	Node  string `json:"node"`
	Scope string `json:"scope,omitempty"`
	// Known says that the process tells how its clusters are.
	Known   bool              `json:"known"`
	Verdict livestate.Verdict `json:"verdict"`
	// Clusters are ordered from bad to good.
	Clusters        []*livestate.Cluster `json:"clusters"`
	ClustersLeftOut int                  `json:"clusters_left_out,omitempty"`
}

// AskTop is Ask for the clusters alone.
func AskTop(ctx context.Context, p Process) (*Top, error) {
	r, err := Ask(ctx, p)
	if err != nil {
		return nil, err
	}
	top := &Top{Clients: []TopClient{}}
	for i := range r.Clients {
		c := &r.Clients[i]
		client := TopClient{Node: c.Node, Scope: c.Scope, Clusters: []*livestate.Cluster{}}
		if s := c.State; s != nil {
			client.Known, client.Verdict, client.ClustersLeftOut = true, s.Verdict, s.ClustersLeftOut
			client.Clusters = append(client.Clusters, s.Clusters...)
		}
		top.Clients = append(top.Clients, client)
	}
	return top, nil
}

// Lines returns for each client its verdict, and a table with a line for each cluster.
func (t *Top) Lines() styled.Text {
	if len(t.Clients) == 0 {
		return noClient()
	}
	var lines text
	for i := range t.Clients {
		lines.top(&t.Clients[i])
	}
	return lines.lines
}

func (t *text) top(c *TopClient) {
	t.client(c.Node, c.Scope)
	if !c.Known {
		t.unknown()
		return
	}
	t.verdict(&c.Verdict)
	if len(c.Clusters) == 0 {
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
	for _, of := range c.Clusters {
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
	t.more(c.ClustersLeftOut, "cluster")
}
