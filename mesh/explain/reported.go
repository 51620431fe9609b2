package explain

import (
	"fmt"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/inspect"
)

// ConnectionsUnknown is said of a process that does not say how its connections are.
const ConnectionsUnknown = "connection state unknown"

// Reported is how a cluster is, as its process says beside its resources.
type Reported struct {
	// Cluster has the phase, the state and the error.
	Cluster inspect.Cluster
	// Connections says in words how many endpoints are connected, and RPCs what became of RPCs lately, or is empty.
	Connections, RPCs string
	// Bad are the endpoints that are not connected, ejected or unhealthy, by address. With Complete, all others are connected.
	Bad      map[string]inspect.Endpoint
	Complete bool
}

// reported adds what a process says of its connections, or that it does not.
func (e *explainer) reported(c *Cluster) {
	if !e.source.Running || c.Settings == nil {
		return
	}
	a := c.Assignment
	r, ok := Reported{Connections: ConnectionsUnknown}, false
	if e.source.Reported != nil {
		var found *Reported
		if found = e.source.Reported(c.Name); found != nil {
			r, ok = *found, true
			r.Cluster.Kind = c.Type
			c.setPhase(&r.Cluster)
		}
	}
	if c.Connections, c.RPCs = r.Connections, r.RPCs; a == nil || a.InUse < 0 {
		return
	}
	// The health of the resource says where RPCs may go, and not where they arrive.
	p := &a.Priorities[a.InUse]
	p.Reason = fmt.Sprintf("the first with an endpoint that the control plane calls HEALTHY or UNKNOWN; %s", r.Connections)
	a.Reason = p.Reason
	if !ok {
		return
	}
	for i := range a.Priorities {
		for j := range a.Priorities[i].Localities {
			endpoints := a.Priorities[i].Localities[j].Endpoints
			for k := range endpoints {
				endpoints[k].report(&r, a.Priorities[i].InUse)
			}
		}
	}
}

// report adds what is known of an endpoint.
func (e *Endpoint) report(r *Reported, inUse bool) {
	bad, known := r.Bad[e.Address]
	if known {
		e.State, e.LastError, e.Ejected = string(bad.State), bad.Error, bad.Ejection != nil
		if e.Ejected {
			e.EjectedUntil = timeOrNil(bad.Ejection.Until)
		}
	} else if r.Complete && inUse && e.Usable {
		e.State = string(inspect.Ready)
	}
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
	p := &a.Priorities[a.InUse]
	for i := range p.Localities {
		for _, e := range p.Localities[i].Endpoints {
			if e.Usable && e.State == string(inspect.Ready) && !e.Ejected {
				n++
			}
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
