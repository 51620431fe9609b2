package livestate

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/xdsclient"
)

// channelProblem tells that a channel has no configuration, or one of DNS for want of a bootstrap.
func (g *gathering) channelProblem(d *Channel, c *inspect.Channel) {
	if config := c.Config; config != nil {
		g.covered[resourceKey{typeurl.Listener, config.Listener}] = true
		g.covered[resourceKey{typeurl.RouteConfiguration, config.Routes}] = true
	}
	p := Problem{Severity: d.Health, Kind: "channel", Subject: "channel " + text(d.Target), Text: d.Error, Since: d.Since, Target: d.Target}
	if d.RPCs != nil {
		p.weight = d.RPCs.Minute.Failed
	}
	g.Problems = append(g.Problems, p)
}

// strayProblems tells of RPCs that have failed before they had a cluster, unless that is told of their channel, or in clusters that
// are not described: routes do not lead there any more, or the balancer has not answered.
func (g *gathering) strayProblems() {
	told := make(map[string]bool) // targets of channels
	for i := range g.Problems {
		told[g.Problems[i].Target] = told[g.Problems[i].Target] || g.Problems[i].Kind == "channel"
	}
	for k, r := range g.counted {
		if g.described[k] != nil || r.Minute.Failed == 0 {
			continue
		}
		p := Problem{Severity: Degraded, Kind: "rpcs", Target: k.target, weight: r.Minute.Failed}
		failed := fmt.Sprintf("%s in %s failed", faults.Count(int(r.Minute.Failed), "RPC"), span(g.rpcs.Seconds))
		switch {
		case k.cluster != "":
			p.Subject, p.Text, p.Since = "RPCs of cluster "+bounds.Quote(k.cluster), failed+lastError(r), r.FailingSince
		case told[k.target]:
			continue
		default:
			p.Subject, p.Text = "RPCs of "+text(k.target), failed+" without a cluster"+lastError(r)
		}
		g.Problems = append(g.Problems, p)
	}
}

// clusterProblem tells what is wrong with a cluster, if something is.
func (g *gathering) clusterProblem(c *Cluster) {
	if c.Health != Failing && c.Health != Degraded {
		return
	}
	p := Problem{
		Severity: c.Health, Kind: "cluster", Subject: "cluster " + bounds.Quote(c.Name), Text: c.Error, Since: c.Since, Target: c.Target, Cluster: c.Name,
		weight: c.Minute().Failed, ended: c.Minute().Ended,
	}
	if c.Health == Failing {
		g.cover(c.Live)
	}
	// The same cause is told once.
	cause := string(p.Severity) + p.Text
	if i, ok := g.told[cause]; ok {
		same := &g.Problems[i]
		same.same++
		same.weight += p.weight
		same.ended += p.ended
		same.Since = earliest(same.Since, p.Since)
		return
	}
	g.told[cause] = len(g.Problems)
	// Only problems that are shown are worth reading their resources.
	if len(g.Problems) < 2*MaxProblems {
		p.Where = g.where(c)
	}
	g.Problems = append(g.Problems, p)
}

// cover covers the resources of a cluster, and of those under it.
func (g *gathering) cover(c *inspect.Cluster) {
	g.covered[resourceKey{typeurl.Cluster, c.Name}] = true
	g.covered[resourceKey{typeurl.Endpoints, c.Service}] = true
	for i := range c.Members {
		g.cover(&c.Members[i].Cluster)
	}
}

// resourceProblems tells the errors of resources that are not told as those of a channel or cluster.
func (g *gathering) resourceProblems() {
	for _, d := range g.source.Clients {
		for i := range d.Resources {
			r := &d.Resources[i]
			if r.Failure == nil || g.covered[resourceKey{r.TypeURL, r.Name}] {
				continue
			}
			g.faults++
			if len(g.Problems) >= 4*MaxProblems {
				continue
			}
			p := Problem{
				Severity: Degraded, Kind: "resource", Subject: typeurl.ShortName(r.TypeURL) + " " + bounds.Quote(r.Name), Since: r.Failure.Time, Server: text(r.Server),
				Text: string(r.State) + ": " + text(r.Failure.Err.Error()),
			}
			if r.Cached() {
				p.Text += "; the version before it stays in use"
				p.Where = placeOf(r)
			}
			g.Problems = append(g.Problems, p)
		}
	}
}

// kinds are the kinds of problems, the nearest to RPCs first.
var kinds = []string{"channel", "cluster", "rpcs", "server", "resource"}

func (g *gathering) sortProblems() {
	slices.SortStableFunc(g.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Severity.Rank(), b.Severity.Rank()), cmp.Compare(b.weight, a.weight),
			cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)), compareTimes(a.Since, b.Since), cmp.Compare(a.Subject, b.Subject))
	})
	for i := range g.Problems {
		p := &g.Problems[i]
		if p.same > 0 {
			p.Subject += fmt.Sprintf(" and %s", faults.Count(p.same, "other"))
		}
		if p.weight > 0 && p.Kind == "cluster" {
			m := outcomes.Minute{Ended: p.ended, Failed: p.weight}
			p.Text += fmt.Sprintf("; %s of %s in %s failed", Percent(m.Share()), faults.Count(int(m.Ended), "RPC"), span(g.rpcs.Seconds))
		}
	}
}

// compareTimes orders times, those that are not known last.
func compareTimes(a, b time.Time) int {
	switch {
	case a.IsZero() == b.IsZero():
		return a.Compare(b)
	case a.IsZero():
		return 1
	default:
		return -1
	}
}

func earliest(times ...time.Time) time.Time { return slices.MinFunc(times, compareTimes) }

// where returns the place of the first bad endpoint of a cluster, or else of the cluster, in the documents that
// the resources were made of.
func (g *gathering) where(c *Cluster) string {
	if len(c.BadEndpoints) > 0 {
		for _, r := range Entries(g.source.Clients, typeurl.Endpoints, c.Live.Service) {
			assignment := new(endpointpb.ClusterLoadAssignment)
			if r.Any().UnmarshalTo(assignment) != nil {
				continue
			}
			places := EndpointPlaces(assignment)
			for i := range c.BadEndpoints {
				if at := places[c.BadEndpoints[i].Addresses[0]]; at != "" {
					return text(at)
				}
			}
		}
	}
	for _, r := range Entries(g.source.Clients, typeurl.Cluster, c.Name) {
		if at := placeOf(r); at != "" {
			return at
		}
	}
	return ""
}

// placeOf returns the place of a Cluster, or of the first virtual host of a RouteConfiguration.
func placeOf(r *xdsclient.ResourceDump) string {
	var m *corepb.Metadata
	switch a := r.Any(); r.TypeURL {
	case typeurl.Cluster:
		c := new(clusterpb.Cluster)
		if a.UnmarshalTo(c) == nil {
			m = c.GetMetadata()
		}
	case typeurl.RouteConfiguration:
		c := new(routepb.RouteConfiguration)
		if a.UnmarshalTo(c) == nil && len(c.GetVirtualHosts()) > 0 {
			m = c.GetVirtualHosts()[0].GetMetadata()
		}
	}
	return text(provenance.At(m, provenance.Service))
}

// EndpointPlaces returns where the endpoints of an assignment were written, by address: "host:port".
func EndpointPlaces(a *endpointpb.ClusterLoadAssignment) map[string]string {
	places := make(map[string]string)
	for _, locality := range a.GetEndpoints() {
		for _, e := range locality.GetLbEndpoints() {
			if at := provenance.At(e.GetMetadata(), provenance.Endpoint, provenance.Service); at != "" {
				socket := e.GetEndpoint().GetAddress().GetSocketAddress()
				places[net.JoinHostPort(socket.GetAddress(), strconv.Itoa(int(socket.GetPortValue())))] = at
			}
		}
	}
	return places
}
