package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// useCluster returns a cluster that RPCs go to, or are mirrored to, or that is under an aggregate one.
func (e *explainer) useCluster(name string) *Cluster {
	if c := e.clusters[name]; c != nil {
		return c
	}
	c := &Cluster{Name: name}
	e.uses, e.clusters[name] = append(e.uses, c), c
	return c
}

// describeClusters describes the clusters, the likeliest first, each with its members behind it.
func (e *explainer) describeClusters() {
	slices.SortStableFunc(e.uses, func(a, b *Cluster) int { return cmp.Compare(b.Share, a.Share) })
	if e.source.State != nil {
		for _, c := range e.source.State.Clusters {
			if SameTarget(c.Target, e.request.Target) {
				e.said[c.Name] = c
			}
		}
	}
	for _, c := range e.uses {
		c.Share = percent(c.Share)
		e.describeCluster(c)
	}
}

// describeCluster adds a cluster, unless it is there already as a member of another one: as its resources have it, and as the process
// says that it is.
func (e *explainer) describeCluster(c *Cluster) {
	if c.described {
		return
	}
	c.described = true
	e.out.Clusters = append(e.out.Clusters, c)
	said, live := e.said[c.Name], (*inspect.Cluster)(nil)
	if said != nil {
		c.RPCs, live = livestate.RPCs(said.RPCs), said.Live
	}
	if plugin := e.routes.Plugins[c.Name]; plugin != nil {
		name, _ := xdsresource.PluginName(c.Name)
		c.Type = plugin.Kind.String()
		c.Unknown = fmt.Sprintf("plugin %q of the routes chooses a cluster for each RPC, by policy %s", name, plugin.LBPolicy)
		c.Settings = []Setting{{Name: "policy", Value: plugin.LBPolicy + " " + plugin.LBConfig}}
		return
	}
	var raw *clusterpb.Cluster
	if c.Resource, c.value, raw, c.Fate = find[*xdsresource.Cluster, *clusterpb.Cluster](e, typeurl.Cluster, c.Name); c.value == nil {
		c.setPhase(live)
		return
	}
	c.At, c.Type = placeOf(raw), c.value.Kind.String()
	if c.value.Kind == xdsresource.ClusterAggregate {
		e.describeAggregate(c, live)
		return
	}
	c.Settings = e.settings(c.value, live)
	e.describeEndpoints(c, raw)
	if live != nil {
		e.live(c, live)
	} else if e.source.Running {
		c.reported(said, e.source.State)
	}
}

// memberDetails is about what a cluster under an aggregate one needs in an explanation.
const memberDetails = 50

// describeAggregate adds the clusters under an aggregate one.
func (e *explainer) describeAggregate(c *Cluster, live *inspect.Cluster) {
	edges := 0
	walk := xdsresource.UnderlyingWalk{Under: func(name string) []string {
		if r := e.findResource(typeurl.Cluster, name); r != nil && r.Raw != nil {
			e.decode(r)
			if below, ok := r.value.(*xdsresource.Cluster); ok && below.Kind == xdsresource.ClusterAggregate {
				edges += len(below.Underlying)
				return below.Underlying
			}
		}
		return nil
	}}
	var loop error
	if !e.full {
		loop = walk.Visit(c.Name)
	}
	if !e.afford(edges * memberDetails) {
		c.Unknown = "the clusters under it are left out"
		return
	}
	if loop != nil {
		c.Error = loop.Error()
		return
	}
	c.Members = walk.Leaves
	if live != nil { // A member is as it is there.
		for i := range live.Members {
			member := livestate.Cluster{Live: &live.Members[i].Cluster}
			if own := e.said[member.Live.Name]; own != nil {
				member.RPCs = own.RPCs
			}
			e.said[member.Live.Name] = &member
		}
	}
	for _, name := range c.Members {
		m := e.useCluster(name)
		if !m.described {
			m.Of = c.Name
		}
		e.describeCluster(m)
	}
	if live == nil || len(live.Members) == 0 || live.Phase == inspect.PhaseDormant {
		e.chooseMember(c)
		return
	}
	c.setPhase(live)
	for i, why := range livestate.Reasons(live) {
		if m := &live.Members[i]; m.Use.InUse {
			c.InUse, c.Reason = m.Cluster.Name, why
		}
	}
}

// chooseMember sets which member of an aggregate cluster gets the RPCs, by how its members are.
func (e *explainer) chooseMember(c *Cluster) {
	var reasons, waits []string
	for _, name := range c.Members {
		switch m := e.clusters[name]; {
		case m.Error != "" && m.Refused == "":
			reasons = append(reasons, fmt.Sprintf("%q: %s", name, m.Error))
		case m.Waits != "":
			waits = append(waits, fmt.Sprintf("%q: %s", name, m.Waits))
		case m.Unknown != "":
			c.Unknown = fmt.Sprintf("%q: %s", name, m.Unknown)
			return
		default:
			c.InUse, c.Reason = name, "it is the most preferred one"
			if before := append(reasons, waits...); len(before) > 0 {
				c.Reason = "those before it cannot serve: " + someOf(before)
			}
			return
		}
	}
	if len(waits) > 0 {
		c.Waits = someOf(waits)
		return
	}
	c.Error = "no cluster under it can serve: " + someOf(reasons)
}

// someOf lists why members of an aggregate cluster do not serve.
func someOf(reasons []string) string { return faults.Few(reasons, 5, "; ") }

// settings describes the settings of a cluster. live is nil if it is not known how it is.
func (e *explainer) settings(c *xdsresource.Cluster, live *inspect.Cluster) []Setting {
	policy := c.LBPolicy
	if c.LBConfig != "" {
		policy += " " + string(compact([]byte(c.LBConfig)))
	}
	if c.AcrossLocalities {
		policy += ", across localities"
	}
	limit := fmt.Sprintf("%d concurrent RPCs", c.MaxRequests)
	if live != nil && live.Traffic != nil {
		limit += fmt.Sprintf(", now %d", live.Traffic.InFlight)
	}
	all := []Setting{{Name: "policy", Value: policy}, {Name: "security", Value: describeSecurity(c, e.source.UsesXDS)}, {Name: "limit", Value: limit}}
	if outliers := describeOutliers(c.Outliers); outliers != "" {
		all = append(all, Setting{Name: "outliers", Value: outliers})
	}
	return all
}

// describeSecurity describes how connections are secured (gRFC A29). usesXDS is as in Source.
func describeSecurity(c *xdsresource.Cluster, usesXDS *bool) string {
	s := c.Security
	if s == nil {
		text := "the Cluster asks for none: the channel's own credentials"
		if c.HTTPConnect {
			text += ", through the endpoints' proxies"
		}
		return text
	}
	text := "TLS"
	if s.Identity != nil {
		text = fmt.Sprintf("mTLS, own certificate of %q", s.Identity.Instance)
	}
	if s.Roots != nil {
		text += fmt.Sprintf(", roots of %q", s.Roots.Instance)
	} else {
		text += ", roots of the system"
	}
	if len(s.SANs) > 0 {
		var sans []string
		for _, m := range s.SANs {
			sans = append(sans, m.String())
		}
		text += ", server SAN " + strings.Join(sans, " or ")
	}
	switch {
	case s.AutoHostSNI:
		text += ", SNI the endpoint's hostname"
	case s.SNI != "":
		text += ", SNI " + quote(s.SNI)
	}
	switch {
	case usesXDS == nil:
		return text + "; only on channels with xDS credentials (gRFC A29)"
	case !*usesXDS:
		return text + "; NOT IN FORCE: the channel's credentials are not those of google.golang.org/grpc/credentials/xds (gRFC A29)"
	}
	return text
}

func describeOutliers(o *xdsresource.OutlierDetection) string {
	if o == nil {
		return ""
	}
	var parts []string
	if s := o.SuccessRate; s != nil {
		parts = append(parts, fmt.Sprintf("success rate below the mean by %g standard deviations (at least %d hosts with %d RPCs)",
			float64(s.StdevFactor)/1000, s.MinimumHosts, s.RequestVolume))
	}
	if f := o.FailurePercentage; f != nil {
		parts = append(parts, fmt.Sprintf("more than %d%% failures (at least %d hosts with %d RPCs)", f.Threshold, f.MinimumHosts, f.RequestVolume))
	}
	for run, of := range [xdsresource.Runs]string{"failures", "failures of a gateway", "RPCs without an answer"} {
		if c := o.Consecutive[run]; c.Failures > 0 {
			parts = append(parts, fmt.Sprintf("%d %s in a row", c.Failures, of))
		}
	}
	return fmt.Sprintf("every %v: %s; ejected for %v to %v, at most %d%% of the endpoints",
		o.Interval, strings.Join(parts, " or "), o.BaseEjectionTime, o.MaxEjectionTime, o.MaxEjectionPercent)
}
