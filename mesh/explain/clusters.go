package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// useCluster returns a cluster that RPCs go to, or are mirrored to.
func (e *explainer) useCluster(name string) *Cluster {
	if c := e.used[name]; c != nil {
		return c
	}
	c := &Cluster{Name: name}
	e.uses, e.used[name] = append(e.uses, c), c
	return c
}

// add adds the description of a cluster.
func (e *explainer) add(c Cluster) {
	e.described[c.Name] = len(e.out.Clusters)
	e.out.Clusters = append(e.out.Clusters, c)
}

// describeClusters describes the clusters, the likeliest first, each with its members behind it.
func (e *explainer) describeClusters() {
	slices.SortStableFunc(e.uses, func(a, b *Cluster) int { return cmp.Compare(b.Share, a.Share) })
	for _, c := range e.uses {
		c.Share = percent(c.Share)
		e.describeCluster(*c)
	}
	e.annotate()
}

// describeCluster adds a cluster, unless it is there already as a member of another one.
func (e *explainer) describeCluster(c Cluster) {
	if at, ok := e.described[c.Name]; ok {
		known := &e.out.Clusters[at]
		known.Share, known.Mirror = max(known.Share, c.Share), known.Mirror || c.Mirror
		return
	}
	value := e.clusterValue(&c)
	if value == nil {
		e.add(c)
		return
	}
	c.Type = value.Kind.String()
	if value.Kind == xdsresource.ClusterAggregate {
		e.describeAggregate(c)
		return
	}
	c.Settings = e.settings(value)
	e.describeEndpoints(&c, value)
	e.add(c)
}

// clusterValue returns the Cluster, or nil.
func (e *explainer) clusterValue(c *Cluster) *xdsresource.Cluster {
	r, value := valueFor[*xdsresource.Cluster](e, c, typeurl.Cluster, c.Name, &c.Resource)
	if value != nil {
		c.At = place(rawCluster(r.Raw).GetMetadata(), provenance.Service)
	}
	return value
}

// valueFor sets where to the status of a resource that a cluster needs, and returns the resource with its value. Without
// one it sets what the RPCs wait for, why they fail, or why that is not known.
func valueFor[T any](e *explainer, c *Cluster, typeURL, name string, where **ResourceStatus) (r *Resource, value T) {
	if r = e.findResource(typeURL, name); r == nil {
		*where = &ResourceStatus{Type: types[typeURL].Name, Name: name}
		c.Waits, _ = (*where).Missing()
		return nil, value
	}
	status, v, err := e.examine(r)
	*where = status
	switch {
	case err != nil:
		c.Unknown = fmt.Sprintf("dynxds cannot use the %s, although the client does: %v", status.Type, err)
	case v == nil:
		c.Waits, c.Error = status.Missing()
	default:
		value = v.(T)
	}
	return r, value
}

// memberDetails is about what a cluster under an aggregate one needs in an explanation, leftOut is the text for those that
// are not in it.
const (
	memberDetails = 50
	leftOut       = "the clusters under it are left out"
)

// describeAggregate adds an aggregate cluster, and those under it.
func (e *explainer) describeAggregate(c Cluster) {
	edges := 0
	walk := xdsresource.UnderlyingWalk{Under: func(name string) []string {
		if r := e.findResource(typeurl.Cluster, name); r != nil {
			value, _ := e.holdings.decode(r)
			if below, ok := value.(*xdsresource.Cluster); ok && below.Kind == xdsresource.ClusterAggregate {
				edges += len(below.Underlying)
				return below.Underlying
			}
		}
		return nil
	}}
	if !e.afford(0) {
		c.Unknown = leftOut
		e.add(c)
		return
	}
	if err := walk.Visit(c.Name); err != nil {
		c.Error = err.Error()
		e.add(c)
		return
	}
	if !e.afford(edges * memberDetails) {
		c.Unknown = leftOut
		e.add(c)
		return
	}
	c.Members = walk.Leaves
	e.add(c)
	for _, name := range c.Members {
		e.describeCluster(Cluster{Name: name, Of: c.Name})
	}
}

// chooseMember sets which member of an aggregate cluster gets the RPCs, by how its members are.
func (e *explainer) chooseMember(c *Cluster) {
	var reasons, waits []string
	for _, name := range c.Members {
		switch m := &e.out.Clusters[e.described[name]]; {
		case m.Error != "" && m.refused == "":
			reasons = append(reasons, fmt.Sprintf("%q: %s", name, m.Error))
		case m.Waits != "":
			waits = append(waits, fmt.Sprintf("%q: %s", name, m.Waits))
		case m.Unknown != "":
			c.Unknown = fmt.Sprintf("%q: %s", name, m.Unknown)
			return
		case len(reasons)+len(waits) == 0:
			c.InUse, c.Reason = name, "it is the most preferred one"
			return
		default:
			c.InUse, c.Reason = name, "those before it cannot serve: "+someOf(append(reasons, waits...))
			return
		}
	}
	if len(waits) > 0 {
		c.Waits = someOf(waits)
		return
	}
	c.Error = "no cluster under it can serve: " + someOf(reasons)
}

// maxReasons bounds the members of an aggregate cluster in one text.
const maxReasons = 5

func someOf(reasons []string) string {
	if n := len(reasons) - maxReasons; n > 1 {
		reasons = append(reasons[:maxReasons:maxReasons], fmt.Sprintf("and %d more", n))
	}
	return strings.Join(reasons, "; ")
}

func (e *explainer) settings(c *xdsresource.Cluster) *ClusterSettings {
	s := &ClusterSettings{
		Policy: c.LBPolicy, AcrossLocalities: c.AcrossLocalities, TLS: describeSecurity(c, e.source.UsesXDS), MaxRequests: c.MaxRequests,
		Outliers: describeOutliers(c.Outliers),
	}
	if c.LBConfig != "" {
		s.PolicyConfig = compact(json.RawMessage(c.LBConfig))
	}
	return s
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
		return text + ignored("the channel's credentials are not those of google.golang.org/grpc/credentials/xds (gRFC A29)")
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
	for _, c := range []struct {
		ejection *xdsresource.ConsecutiveEjection
		of       string
	}{
		{o.Consecutive5xx, "failures"}, {o.ConsecutiveGatewayFailure, "failures of a gateway"}, {o.ConsecutiveLocalOriginFailure, "RPCs without an answer"},
	} {
		if c.ejection != nil {
			parts = append(parts, fmt.Sprintf("%d %s in a row", c.ejection.Failures, c.of))
		}
	}
	return fmt.Sprintf("every %v: %s; ejected for %v to %v, at most %d%% of the endpoints",
		o.Interval, strings.Join(parts, " or "), o.BaseEjectionTime, o.MaxEjectionTime, o.MaxEjectionPercent)
}
