package explain

import (
	"fmt"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/inspect"
)

// unavailable is the code of RPCs for which there is no way to an endpoint.
const unavailable = "UNAVAILABLE"

// maxOutcomes bounds the routes, and the clusters of a route, in the outcome.
const maxOutcomes = 20

// outcomes describes, for each route that is taken, what happens to its RPCs.
func (e *Explanation) outcomes() (parts []string) {
	clusters, more := e.clustersByName(), 0
	for i := range e.Routes {
		r := &e.Routes[i]
		switch {
		case r.Action == nil:
		case len(parts) < maxOutcomes:
			parts = append(parts, withShare(r.Share, r.title()+" "+clusters.fate(r.Action)))
		default:
			more++
		}
	}
	if more > 0 {
		parts = append(parts, fmt.Sprintf("and %d routes more", more))
	}
	if e.Unrouted > 0 {
		parts = append(parts, withShare(e.Unrouted, "no route of the virtual host matches: RPCs fail with UNAVAILABLE"))
	}
	return parts
}

// commonCode returns the code with which all RPCs fail, or "".
func (e *Explanation) commonCode() string {
	clusters := e.clustersByName()
	codes := make(map[string]bool)
	if e.Unrouted > 0 {
		codes[unavailable] = true
	}
	for i := range e.Routes {
		if a := e.Routes[i].Action; a != nil {
			for _, end := range clusters.endings(a) {
				codes[end.code] = true
			}
		}
	}
	if len(codes) != 1 {
		return ""
	}
	for code := range codes {
		if code != "OK" {
			return code
		}
	}
	return ""
}

// An ending is what becomes of a share of the RPCs of a route, in percent.
type ending struct {
	share float64
	code  string // that they end with on the way, or ""
	text  string
	// cluster is where they go, or "".
	cluster string
}

// endings returns what becomes of the RPCs of a route: first those that filters end.
func (all clustersByName) endings(a *Action) []ending {
	switch a.Kind {
	case kindUnroutable: // They do not reach the filters.
		return []ending{a.ending(100)}
	case kindForward:
		filtered, rest := []ending(nil), make([]ending, 0, len(a.Destinations))
		for i := range a.Destinations {
			d := &a.Destinations[i]
			if d.Weight == 0 {
				continue
			}
			if d.Error != "" { // nor do these
				rest = append(rest, ending{share: d.Percent, code: unavailable, text: unavailable + ": " + d.Error})
				continue
			}
			filters := a.filtersOf(d)
			filtered = endingsOf(filters, d.Percent, filtered)
			end := ending{share: d.Percent * passed(filters), cluster: d.Cluster}
			switch p := a.Path; {
			case end.share == 0 && d.Percent > 0:
				continue
			case p != nil && p.Error != "" && p.Ignored == "":
				end.code, end.text = unavailable, fmt.Sprintf("%s: %s turns the path into %q, which is not a path", unavailable, p.By, p.To)
			default:
				end.code, end.text = all.codeOf(d.Cluster), fmt.Sprintf("cluster %q%s", d.Cluster, all.reached(d.Cluster))
			}
			rest = append(rest, end)
		}
		return append(filtered, rest...)
	default:
		list := endingsOf(a.Filters, 100, nil)
		if share := 100 * passed(a.Filters); share > 0 {
			list = append(list, a.ending(share))
		}
		return list
	}
}

// ending is that of RPCs which are not forwarded.
func (a *Action) ending(share float64) ending {
	return ending{share: share, code: a.Code, text: strings.TrimSuffix(a.Code+": "+a.Message, ": ")}
}

// filtersOf returns the filters of the RPCs to a destination.
func (a *Action) filtersOf(d *Destination) []Filter {
	if d.Filters != nil {
		return d.Filters
	}
	return a.Filters
}

// passed returns the part of RPCs that filters let pass.
func passed(filters []Filter) float64 {
	part := 1.0
	for i := range filters {
		if end := filters[i].Ends; end != nil {
			part *= 1 - end.Percent/100
		}
	}
	return part
}

// endingsOf adds what filters do to a share of RPCs.
func endingsOf(filters []Filter, share float64, list []ending) []ending {
	for i := range filters {
		f := &filters[i]
		if f.Ends == nil || share == 0 {
			continue
		}
		end := ending{share: share * f.Ends.Percent / 100, code: f.Ends.Code, text: fmt.Sprintf("%s by filter %q", f.Ends.Code, f.Name)}
		share -= end.share
		list = addEnding(list, end)
	}
	return list
}

// addEnding adds an ending, to the share of one that is there with the same text.
func addEnding(list []ending, end ending) []ending {
	for i := range list {
		if list[i].text == end.text {
			list[i].share += end.share
			return list
		}
	}
	return append(list, end)
}

// fate describes an action in the outcome.
func (all clustersByName) fate(a *Action) string {
	list := all.endings(a)
	if len(list) == 1 && a.Kind != kindForward {
		return "ends them with " + list[0].text
	}
	var parts []string
	for i, end := range list {
		if i == maxOutcomes && len(list) > maxOutcomes+1 {
			parts = append(parts, fmt.Sprintf("and %d clusters more", len(list)-i))
			break
		}
		parts = append(parts, withShare(end.share, end.text))
	}
	return "→ " + strings.Join(parts, ", ")
}

// codeOf returns the code with which RPCs to a cluster fail, or "".
func (all clustersByName) codeOf(name string) string {
	c := all[name]
	switch {
	case c == nil:
		return ""
	case c.Error != "":
		return unavailable
	case c.Waits != "" || c.Unknown != "" || c.InUse == "":
		return ""
	default:
		return all.codeOf(c.InUse)
	}
}

// clustersByName has the clusters of an Explanation.
type clustersByName map[string]*Cluster

func (e *Explanation) clustersByName() clustersByName {
	all := make(clustersByName, len(e.Clusters))
	for i := range e.Clusters {
		all[e.Clusters[i].Name] = &e.Clusters[i]
	}
	return all
}

// reached describes where RPCs to a cluster end up.
func (all clustersByName) reached(name string) string {
	c := all[name]
	switch {
	case c == nil:
		return ""
	case c.Error != "":
		return ", where they fail with UNAVAILABLE: " + c.Error
	case c.Waits != "":
		return ", where they wait: " + c.Waits
	case c.Unknown != "":
		return ", of which it is not known what becomes of them: " + c.Unknown
	case c.InUse != "":
		return fmt.Sprintf(", of it %q%s", c.InUse, all.reached(c.InUse))
	case c.Assignment == nil || c.Assignment.InUse < 0:
		return ""
	}
	text := c.endpoints()
	if dropped := c.Assignment.dropped(); dropped > 0 {
		text += fmt.Sprintf(", %s dropped with UNAVAILABLE", formatPercent(dropped))
	}
	return text
}

// dropped returns how many percent of the RPCs are dropped.
func (a *ClusterAssignment) dropped() float64 {
	part := 1.0
	for _, d := range a.Drops {
		part *= 1 - d.Percent/100
	}
	return percent(100 * (1 - part))
}

// endpoints describes, for the outcome, where RPCs to a cluster arrive.
func (c *Cluster) endpoints() string {
	a := c.Assignment
	n, connected := a.usable(), a.connected()
	text := fmt.Sprintf(", priority %d, %s", a.InUse, faults.Count(n, "endpoint"))
	switch {
	case c.Connections == ConnectionsUnknown:
		text += ", " + ConnectionsUnknown
	case c.Connections != "":
		text = fmt.Sprintf(", priority %d, %s", a.InUse, c.Connections)
	case a.Live && connected < n:
		text = fmt.Sprintf(", priority %d, %d of %s connected", a.InUse, connected, faults.Count(n, "endpoint"))
	}
	return text
}

// connected returns the number of endpoints of the priority in use that may get RPCs, and are connected.
func (a *ClusterAssignment) connected() (n int) {
	for p, e := range a.Endpoints() {
		if p.InUse && e.Usable && e.State == string(inspect.Ready) && !e.Ejected {
			n++
		}
	}
	return n
}

// Misses says why not all RPCs arrive at the expected clusters, each of which gets some; it is empty if they do. The
// members of aggregate clusters count, too.
func (e *Explanation) Misses(expected []string) string {
	all, shares := e.clustersByName(), make(map[string]float64, len(expected))
	for _, name := range expected {
		shares[name] = 0
	}
	if e.Pending != "" || len(e.Routes) == 0 {
		return e.Outcome
	}
	for i := range e.Routes {
		a := e.Routes[i].Action
		if a == nil {
			continue
		}
		for _, end := range all.endings(a) {
			name, taken := all.under(end.cluster, shares)
			if end.cluster == "" || end.code != "" || !taken {
				return e.Routes[i].title() + " → " + withShare(end.share, end.text)
			}
			shares[name] += end.share
		}
	}
	if e.Unrouted > 0 {
		return withShare(e.Unrouted, "no route of the virtual host matches")
	}
	for _, name := range expected {
		if c := all[name]; shares[name] == 0 {
			return fmt.Sprintf("no RPC goes to cluster %q", name)
		} else if c != nil && c.Waits+c.Unknown != "" {
			return fmt.Sprintf("cluster %q%s", name, all.reached(name))
		}
	}
	return ""
}

// under returns the cluster, or the member of it that is in use, that has an entry.
func (all clustersByName) under(name string, shares map[string]float64) (string, bool) {
	for range len(all) + 1 {
		if _, ok := shares[name]; ok {
			return name, true
		}
		c := all[name]
		if c == nil || c.InUse == "" {
			break
		}
		name = c.InUse
	}
	return "", false
}
