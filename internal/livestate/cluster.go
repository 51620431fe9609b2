package livestate

import (
	"cmp"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/outcomes"
)

// text is a text of a peer, cut.
func text(s string) string { return bounds.Text(s, bounds.ErrorText) }

// clusterOf describes a cluster. r is what was counted for it, nil if nothing was.
func clusterOf(target string, c *inspect.Cluster, r *outcomes.Report) *Cluster {
	d := &Cluster{
		Name: c.Name, Target: target, Phase: string(c.Phase), State: string(c.State), Notes: notes(c.Notes), Live: c, RPCs: r,
	}
	d.endpoints(c)
	d.judge(c)
	return d
}

// notes returns the notes of a cluster, nothing if they only name the node, as they do first (gRFC A88).
func notes(all string) string {
	if strings.HasPrefix(all, "node id ") {
		_, all, _ = strings.Cut(all, "; ")
	}
	return text(all)
}

// judge sets the health, and the reason for it.
func (d *Cluster) judge(c *inspect.Cluster) {
	m := d.Minute()
	share := m.Share()
	switch {
	case c.Phase == inspect.PhaseFailed, c.Phase == inspect.PhaseServing && c.State == inspect.TransientFailure:
		d.Health, d.Error, d.Since = Failing, text(reason(c)), since(c)
	case share >= manyErrors:
		d.Health, d.Error = Failing, d.rpcError()
	case share >= someErrors:
		d.Health, d.Error = Degraded, d.rpcError()
	case c.Phase == inspect.PhaseServing && d.Endpoints.Failing+d.Endpoints.Ejected > 0:
		d.Health, d.Error, d.Since = Degraded, d.endpointError(), d.endpointSince()
	case m.Ended > m.Failed, c.Phase == inspect.PhaseServing && c.State == inspect.Ready:
		d.Health = Healthy
	case c.Phase == inspect.PhaseDormant, c.Phase == inspect.PhaseServing && c.State == inspect.Idle && m.Ended == 0:
		d.Health = Idle
	default:
		d.Health, d.Error = Unknown, text(Why(c))
	}
	if share >= someErrors && d.Since.IsZero() {
		d.Since = d.RPCs.FailingSince
	}
}

// reason says why a cluster fails.
func reason(c *inspect.Cluster) string {
	if c.Phase == inspect.PhaseFailed {
		return c.Error
	}
	if u := inUse(c); u != nil && u.Error != "" {
		return "no endpoint can be reached: " + u.Error
	}
	return cmp.Or(Why(c), "no endpoint can be reached")
}

// inUse returns the priority in use, or that of the member in use.
func inUse(c *inspect.Cluster) *inspect.Use {
	for i := range c.Members {
		if m := &c.Members[i]; m.Use.InUse {
			return cmp.Or(inUse(&m.Cluster), &m.Use)
		}
	}
	for i := range c.Priorities {
		if u := &c.Priorities[i].Use; u.InUse {
			return u
		}
	}
	return nil
}

func since(c *inspect.Cluster) time.Time {
	if u := inUse(c); u != nil && c.Phase != inspect.PhaseFailed {
		return u.Since
	}
	return time.Time{}
}

// calm is after how long without a failure RPCs that work are believed.
const calm = 5 * time.Second

// rpcError says that RPCs fail, or that they did until a while ago, and how the last one failed.
func (d *Cluster) rpcError() string {
	r := d.RPCs
	if ago := time.Since(r.FailedUntil); ago >= calm && r.EndedSince > 0 {
		return "RPCs failed until " + Ago(ago) + " ago, none since" + lastError(r)
	}
	return "RPCs fail" + lastError(r)
}

func lastError(r *outcomes.Report) string {
	if r.Last == nil {
		return ""
	}
	return "; the last error was " + r.Last.Code + ": " + r.Last.Text
}

// endpoints counts the endpoints, those of all members and priorities, and lists those that do not work.
func (d *Cluster) endpoints(c *inspect.Cluster) {
	for i := range c.Members {
		d.endpoints(&c.Members[i].Cluster)
	}
	for i := range c.Priorities {
		for e := range EndpointsOf(&c.Priorities[i]) {
			d.endpoint(e)
		}
	}
}

// EndpointsOf iterates the endpoints of all localities of a priority.
func EndpointsOf(p *inspect.Priority) iter.Seq[*inspect.Endpoint] {
	return func(yield func(*inspect.Endpoint) bool) {
		for i := range p.Localities {
			for j := range p.Localities[i].Endpoints {
				if !yield(&p.Localities[i].Endpoints[j]) {
					return
				}
			}
		}
	}
}

func (d *Cluster) endpoint(e *inspect.Endpoint) {
	n := &d.Endpoints
	n.All++
	bad := true
	switch {
	case e.Ejection != nil:
		n.Ejected++
	case unhealthy(e):
		n.Unhealthy++
	case e.State == inspect.TransientFailure:
		n.Failing++
	case e.State == inspect.Ready:
		n.Ready++
		bad = false
	case e.State == inspect.Connecting:
		n.Connecting++
		bad = e.Error != ""
	default:
		n.Idle++
		bad = false
	}
	if bad && len(d.BadEndpoints) < MaxEndpoints {
		b := *e
		b.Addresses, b.Hostname, b.Proxy, b.Connected, b.Error = b.Addresses[:1], "", "", "", text(b.Error)
		if x := b.Ejection; x != nil {
			b.Since = x.Since
		}
		d.BadEndpoints = append(d.BadEndpoints, b)
	}
}

// unhealthy reports whether an endpoint gets no RPCs by what the control plane or its health check says.
func unhealthy(e *inspect.Endpoint) bool { return !e.Usable() || e.HealthCheck == "NOT_SERVING" }

// endpointError says which endpoints do not work, and why the first of them does not.
func (d *Cluster) endpointError() string {
	n := &d.Endpoints
	var e string
	switch {
	case n.Failing == 0:
		e = fmt.Sprintf("outlier detection has ejected %s of %s", faults.Number(n.Ejected), faults.Count(n.All, "endpoint"))
	case n.Ejected == 0:
		e = fmt.Sprintf("%s of %s cannot be reached", faults.Number(n.Failing), faults.Count(n.All, "endpoint"))
	default:
		e = fmt.Sprintf("%s of %s cannot be reached, and outlier detection has ejected %s", faults.Number(n.Failing), faults.Count(n.All, "endpoint"), faults.Number(n.Ejected))
	}
	for i := range d.BadEndpoints {
		if b := &d.BadEndpoints[i]; b.Error != "" {
			return e + "; " + text(b.Addresses[0]) + ": " + b.Error
		}
	}
	return e
}

func (d *Cluster) endpointSince() time.Time {
	for i := range d.BadEndpoints {
		if b := &d.BadEndpoints[i]; !unhealthy(b) && !b.Since.IsZero() {
			return b.Since
		}
	}
	return time.Time{}
}

// none is what became of the RPCs of a cluster that has none.
var none outcomes.Report

// Minute is what became of its RPCs in the last minute.
func (d *Cluster) Minute() *outcomes.Minute { return &cmp.Or(d.RPCs, &none).Minute }

// compare orders clusters by trouble, and then by traffic.
func compare(a, b *Cluster) int {
	x, y := a.Minute(), b.Minute()
	return cmp.Or(cmp.Compare(a.Health.Rank(), b.Health.Rank()), cmp.Compare(y.Failed, x.Failed), cmp.Compare(y.Started, x.Started),
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.Target, b.Target))
}
