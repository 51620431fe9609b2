package livestate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// String says how many endpoints of a cluster are connected, and what is wrong with the others.
func (e *Endpoints) String() string {
	if e.All == 0 {
		return "no endpoints"
	}
	text := fmt.Sprintf("%d of %s connected", e.Ready, faults.Count(e.All, "endpoint"))
	for _, part := range []struct {
		n    int
		what string
	}{{e.Connecting, "connecting"}, {e.Idle, "idle"}, {e.Failing, "failing"}, {e.Ejected, "ejected"}, {e.Unhealthy, "unhealthy"}} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	return text
}

// RPCs says what became of RPCs in the last minute; it is empty for nil.
func RPCs(r *outcomes.Report) string {
	if r == nil {
		return ""
	}
	m := &r.Minute
	text := fmt.Sprintf("%s in %d s", faults.Count(int(m.Started), "RPC"), m.Seconds)
	if m.Failed > 0 {
		text += fmt.Sprintf(", %d failed (%.1f %%)", m.Failed, 100*m.Share())
	}
	if m.P50 != nil && m.P99 != nil {
		text += ", p50 " + Latency(*m.P50) + ", p99 " + Latency(*m.P99)
	}
	if r.InFlight > 0 {
		text += fmt.Sprintf(", %d in flight", r.InFlight)
	}
	if r.Retries > 0 {
		text += ", " + faults.Count(int(r.Retries), "retry")
	}
	if r.Hedges > 0 {
		text += ", " + faults.Count(int(r.Hedges), "hedge")
	}
	if e := r.Last; e != nil {
		text += fmt.Sprintf("%s: %s: %s", strings.TrimSuffix("; last error "+Clock(e.Time), " "), e.Code, e.Text)
	}
	return text
}

// Cells are the rate of RPCs, the share that failed and the 99th percentile of their latency, for a table: "-" for what is not known, all of it if
// m is nil.
func Cells(m *outcomes.Minute) (rate, failed, p99 string) {
	rate, failed, p99 = "-", "-", "-"
	if m == nil {
		return rate, failed, p99
	}
	rate = fmt.Sprintf("%.1f", m.Rate())
	if m.Ended > 0 {
		failed = Percent(m.Share())
	}
	if m.P99 != nil {
		p99 = Latency(*m.P99)
	}
	return rate, failed, p99
}

// Latency writes milliseconds.
func Latency(ms float64) string {
	switch {
	case ms >= 1000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.3g ms", ms)
	}
}

// Variant returns what distinguishes a resource from others of its name: the constraints that it is watched with or, of a member of a
// collection, the parameters of the variant (xRFC TP2). It is empty if there is only one.
func Variant(r *xdsclient.ResourceDump) string {
	switch {
	case r.Member && !r.Parameters.IsZero():
		return r.Parameters.String()
	case !r.Member && !r.Constraints.IsZero():
		return r.Constraints.String()
	default:
		return ""
	}
}

// Clock writes a time, nothing for the zero time.
func Clock(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02 15:04:05 UTC")
}

// Why gives the reason of a cluster's phase in words.
func Why(c *inspect.Cluster) string {
	switch c.Phase {
	case inspect.PhaseFailed:
		return c.Error
	case inspect.PhaseResolving:
		return waits(c)
	case inspect.PhaseDormant:
		return "no RPC has needed the cluster yet"
	}
	all, used := alternatives(c)
	if used < 0 {
		return c.Error
	}
	return all[used].label + " is in use: " + why(all, used, used)
}

// waits says for what RPCs of a cluster wait.
func waits(c *inspect.Cluster) string {
	switch {
	case c.Unserved:
		return cmp.Or(c.Error, "the routes to it are not in use yet")
	case c.Kind == "":
		return "RPCs wait for the Cluster"
	case c.Kind == xdsresource.ClusterAggregate.String():
		return "RPCs wait for the clusters under it"
	case c.Kind == xdsresource.ClusterStrictDNS.String(), c.Kind == xdsresource.ClusterLogicalDNS.String():
		return "RPCs wait for the addresses from DNS"
	default:
		return fmt.Sprintf("RPCs wait for ClusterLoadAssignment %q", c.Service)
	}
}

// Reasons says in words why each member of an aggregate cluster, or each priority of another one, is in use, or is not. Reasons are empty for
// priorities that only their resource describes.
func Reasons(c *inspect.Cluster) []string {
	all, used := alternatives(c)
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = why(all, i, used)
	}
	return texts
}

// alternative is a priority or a cluster, one of several, of which the most preferred is the first (gRFC A56).
type alternative struct {
	label string
	*inspect.Use
}

// alternatives returns the members or priorities of a cluster, and the index of the one in use, or -1.
func alternatives(c *inspect.Cluster) (all []alternative, used int) {
	for i := range c.Members {
		all = append(all, alternative{fmt.Sprintf("cluster %q", c.Members[i].Cluster.Name), &c.Members[i].Use})
	}
	for i := range c.Priorities {
		all = append(all, alternative{fmt.Sprintf("priority %d", c.Priorities[i].Number), &c.Priorities[i].Use})
	}
	return all, slices.IndexFunc(all, func(a alternative) bool { return a.InUse })
}

// why says whether the i-th alternative works, and why it is in use or another, -1: none, is.
func why(all []alternative, i, used int) string {
	u := all[i].Use
	switch {
	case u.Status == "":
		return ""
	case used < 0:
		return "not started: no RPC has needed the cluster yet"
	case i == used:
		return status(u) + useError(u) + lastResort(u, len(all))
	}
	preferred, its := all[used].label, status(all[used].Use)
	switch {
	case u.Status == inspect.StatusNotStarted:
		return "not started: " + preferred + " is " + its
	case !u.Deactivated.IsZero():
		return fmt.Sprintf("%s%s; deactivated since %s because %s is %s; connected until %s",
			status(u), useError(u), second(u.Deactivated), preferred, its, second(u.RetentionEnd))
	default:
		return status(u) + useError(u) + "; " + preferred + " is in use"
	}
}

// status describes an alternative without regard to the others.
func status(u *inspect.Use) string {
	switch {
	case u.Status == inspect.StatusIdle:
		return "idle: the next RPC connects it"
	case u.Status != inspect.StatusConnecting:
		return string(u.Status)
	case u.FailoverEnd.IsZero():
		return "connecting again after it failed"
	case u.TimedOut:
		return fmt.Sprintf("connecting, failover timer ran out at %s (%v)", second(u.FailoverEnd), u.FailoverEnd.Sub(u.Since))
	default:
		return "connecting, failover timer running since " + second(u.Since)
	}
}

func useError(u *inspect.Use) string {
	if u.Status == inspect.StatusReady || u.Error == "" {
		return ""
	}
	return ": " + u.Error
}

// lastResort says why an alternative is in use that does not work.
func lastResort(u *inspect.Use, alternatives int) string {
	switch {
	case u.Status == inspect.StatusReady, u.Status == inspect.StatusIdle,
		u.Status == inspect.StatusConnecting && !u.FailoverEnd.IsZero() && !u.TimedOut:
		return ""
	case alternatives == 1:
		return "; there is no other"
	case u.Status == inspect.StatusConnecting:
		return "; in use because none works and this is the first that is connecting"
	default:
		return "; in use because none works and this is the last"
	}
}

func second(t time.Time) string { return t.UTC().Format(time.RFC3339) }
