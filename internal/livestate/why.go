package livestate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

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
	all := alternatives(c)
	for i := range all {
		if all[i].InUse {
			return all[i].label + " is in use: " + why(all, i, i)
		}
	}
	return c.Error
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
	all := alternatives(c)
	used := slices.IndexFunc(all, func(a alternative) bool { return a.InUse })
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

func alternatives(c *inspect.Cluster) (all []alternative) {
	for i := range c.Members {
		all = append(all, alternative{fmt.Sprintf("cluster %q", c.Members[i].Cluster.Name), &c.Members[i].Use})
	}
	for i := range c.Priorities {
		all = append(all, alternative{fmt.Sprintf("priority %d", c.Priorities[i].Number), &c.Priorities[i].Use})
	}
	return all
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
