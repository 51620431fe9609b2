package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
)

// unavailable is the code of RPCs for which there is no way to an endpoint.
const unavailable = "UNAVAILABLE"

// maxOutcomes bounds the routes, and the clusters of a route, in the outcome.
const maxOutcomes = 20

// conclude sums up the shares of the routes, and what becomes of the RPCs.
func (e *explainer) conclude() {
	left, codes := 100.0, make(map[string]bool)
	var parts []string
	for i := range e.out.Routes {
		r := &e.out.Routes[i]
		if r.Action == nil {
			continue
		}
		left -= r.Share
		for j := range r.endings {
			end := &r.endings[j]
			if end.text == "" {
				e.follow(end)
			}
			codes[end.code] = true
		}
		parts = append(parts, withShare(r.Share, r.title()+" "+r.outcome()))
	}
	parts = few(parts, maxOutcomes, " routes")
	if e.out.Unrouted = max(percent(left), 0); e.out.Unrouted > 0 {
		codes[unavailable] = true
		parts = append(parts, withShare(e.out.Unrouted, "no route of the virtual host matches: RPCs fail with UNAVAILABLE"))
	}
	e.out.outcomes, e.out.Outcome = parts, strings.Join(parts, "; ")
	for code := range codes {
		if len(codes) == 1 && code != "OK" {
			e.out.Code = code
		}
	}
}

// outcome describes what becomes of the RPCs that take a route.
func (r *Route) outcome() string {
	if len(r.endings) == 1 && r.Action.Kind != kindForward {
		return "ends them with " + r.endings[0].text
	}
	var parts []string
	for _, end := range r.endings {
		parts = append(parts, withShare(end.share, end.text))
	}
	return "→ " + strings.Join(few(parts, maxOutcomes, " clusters"), ", ")
}

// An ending is what becomes of a share of the RPCs of a route, in percent.
type ending struct {
	share float64
	code  string // that they end with on the way, or ""
	// text says it, empty for those that go to a cluster as long as they are not followed.
	text    string
	cluster string
	// way are the clusters on their way, beginning with one that the route names, each with the member that is in use behind it. arrive is set
	// if they get to the end of it.
	way    []string
	arrive bool
}

// follow follows the RPCs that go to a cluster.
func (e *explainer) follow(end *ending) {
	c := e.clusters[end.cluster]
	end.way, end.text = []string{c.Name}, fmt.Sprintf("cluster %q", c.Name)
	if c.InUse != "" && c.Fate == (Fate{}) {
		end.way, end.text = append(end.way, c.InUse), end.text+fmt.Sprintf(", of it %q", c.InUse)
		c = cmp.Or(e.clusters[c.InUse], new(Cluster))
	}
	if end.text += c.outcome(); c.Error != "" {
		end.code = unavailable
	}
	end.arrive = c.Fate == Fate{}
}

// outcome describes what becomes of RPCs at the last cluster on their way.
func (c *Cluster) outcome() string {
	p := c.Assignment.InUse()
	switch {
	case c.Error != "":
		return ", where they fail with UNAVAILABLE: " + c.Error
	case c.Waits != "":
		return ", where they wait: " + c.Waits
	case c.Unknown != "":
		return ", of which it is not known what becomes of them: " + c.Unknown
	case p == nil:
		return ""
	}
	usable, connected := 0, 0
	for e := range livestate.EndpointsOf(&p.Priority) {
		if !e.Usable() {
			continue
		}
		usable++
		if e.State == inspect.Ready && e.Ejection == nil {
			connected++
		}
	}
	where := faults.Count(usable, "endpoint")
	switch {
	case c.Connections == ConnectionsUnknown:
		where += ", " + ConnectionsUnknown
	case c.Connections != "":
		where = c.Connections
	case c.Assignment.Live && connected < usable:
		where = fmt.Sprintf("%d of %s connected", connected, where)
	}
	passed := 1.0
	for _, d := range c.Assignment.Drops {
		passed *= 1 - d.Percent/100
	}
	if passed < 1 {
		where += fmt.Sprintf(", %s dropped with UNAVAILABLE", formatPercent(100*(1-passed)))
	}
	return fmt.Sprintf(", priority %d, %s", p.Number, where)
}

// Misses says why not all RPCs arrive at the expected clusters, each of which gets some; it is empty if they do. The
// members of aggregate clusters count, too. The explanation is as it was made, not read from JSON.
func (e *Explanation) Misses(expected []string) string {
	if e.Pending != "" || len(e.Routes) == 0 {
		return e.Outcome
	}
	shares := make(map[string]float64)
	for i := range e.Routes {
		for _, end := range e.Routes[i].endings {
			at := slices.IndexFunc(end.way, func(name string) bool { return slices.Contains(expected, name) })
			if !end.arrive || at < 0 {
				return e.Routes[i].title() + " → " + withShare(end.share, end.text)
			}
			shares[end.way[at]] += end.share
		}
	}
	if e.Unrouted > 0 {
		return withShare(e.Unrouted, "no route of the virtual host matches")
	}
	for _, name := range expected {
		if shares[name] == 0 {
			return fmt.Sprintf("no RPC goes to cluster %q", name)
		}
	}
	return ""
}
