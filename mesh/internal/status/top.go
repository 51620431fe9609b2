package status

import (
	"context"

	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/mesh/internal/styled"
)

// AskTop is Ask for a report without resources, whose text is the clusters at a glance.
func AskTop(ctx context.Context, p Process) (*Report, error) {
	r, err := Ask(ctx, p)
	if err != nil {
		return nil, err
	}
	r.glance = true
	for i := range r.Clients {
		r.Clients[i].Resources = []Resource{}
	}
	return r, nil
}

// top adds the verdict of a client, and a table with a line for each cluster.
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
