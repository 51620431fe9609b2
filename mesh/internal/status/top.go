package status

import (
	"context"

	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/outcomes"
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
	var table styled.Table
	table.Row(styled.Heading, "CLUSTER", "TARGET", "STATE", "ENDPOINTS", "RPCs/s", "ERRORS", "P99")
	for _, of := range c.State.Clusters {
		var minute *outcomes.Minute
		if of.RPCs != nil {
			minute = &of.RPCs.Minute
		}
		rate, failed, p99 := livestate.Cells(minute)
		table.Row(styled.OfState(string(of.Health)), of.Name, of.Target, string(of.Health), of.Endpoints.String(), rate, failed, p99)
	}
	t.lines.AddTable("  ", table)
	t.more(c.State.ClustersLeftOut, "cluster")
}
