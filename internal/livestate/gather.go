package livestate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/internal/channels"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/xdsclient"
)

var logger = boundlog.Component("dynxds")

// Source is what a State is made of.
type Source struct {
	Channels []inspect.Channel
	Clients  []*xdsclient.Dump
}

// OfClient returns the Source of one client, and of the channels that use it.
func OfClient(d *xdsclient.Dump) *Source {
	return &Source{Clients: []*xdsclient.Dump{d}, Channels: slices.DeleteFunc(channels.Inspect(), func(c inspect.Channel) bool {
		// A channel that nothing runs for has no client; which one it had is not known.
		return c.Config == nil || c.Config.Client != d.BootstrapFingerprint
	})}
}

// OfNoClient returns the Source of the channels that have no client, for want of a bootstrap, and that DNS resolves instead.
func OfNoClient() *Source {
	return &Source{Channels: slices.DeleteFunc(channels.Inspect(), func(c inspect.Channel) bool { return !bypasses(&c) })}
}

// bypasses reports whether DNS resolves a channel for want of a bootstrap: otherwise a resolver of xDS runs, unless it is idle.
func bypasses(c *inspect.Channel) bool {
	return c.Mode == string(channels.DNS) && c.Config == nil && c.State != inspect.Idle
}

// resourceKey identifies a resource.
type resourceKey struct{ typeURL, name string }

// clusterKey identifies a cluster of the process.
type clusterKey struct{ target, cluster string }

// gathering is a State that is being made.
type gathering struct {
	*State
	source  *Source
	recent  []changes.Change
	counted map[clusterKey]*outcomes.Report
	routes  map[clusterKey][]*outcomes.Report // of each cluster, by traffic
	// described are the Clusters.
	described map[clusterKey]*Cluster
	// rpcs is what became of all RPCs, and faults counts the problems with resources.
	rpcs   outcomes.Minute
	faults int
	// covered are the resources whose errors are told as those of a channel or cluster.
	covered map[resourceKey]bool
	// told has the causes of clusters' problems, by severity and text, and the index of the problem.
	told map[string]int
}

// Take returns the state of a Source. RPCs are counted from now on. Of clusters whose balancer does not answer before ctx
// ends, only what is configured is known; the balancers of other channels are not kept waiting.
func Take(ctx context.Context, s *Source) *State {
	since := outcomes.Look()
	return take(ctx, s, since, outcomes.Reports())
}

// take is Take with what was counted.
func take(ctx context.Context, s *Source, since time.Time, reports []*outcomes.Report) *State {
	now := time.Now()
	g := &gathering{
		State: &State{Time: now, Problems: []Problem{}, Servers: []Server{}, Channels: []Channel{}, Clusters: []*Cluster{}}, source: s, recent: changes.Recent(),
		counted: make(map[clusterKey]*outcomes.Report), routes: make(map[clusterKey][]*outcomes.Report), covered: make(map[resourceKey]bool), described: make(map[clusterKey]*Cluster), told: make(map[string]int),
	}
	if since.Before(now) {
		g.CountingSince = since
	}
	g.count(reports)
	g.rpcs.Seconds = int(min(max(now.Sub(since), 0)/time.Second, outcomes.Seconds))
	g.servers()
	g.certificates()
	clusters := g.ask(ctx)
	for i := range s.Channels {
		g.channel(&s.Channels[i])
		for _, c := range clusters[i] {
			g.cluster(c)
		}
	}
	if r := g.counted[others]; r != nil {
		g.cluster(clusterOf(others.target, &inspect.Cluster{Name: others.cluster, Phase: inspect.PhaseServing, State: inspect.Idle}, r))
	}
	g.Clusters = slices.AppendSeq(g.Clusters, maps.Values(g.described))
	slices.SortFunc(g.Clusters, compare)
	g.splits()
	for _, c := range g.Clusters {
		g.clusterProblem(c)
	}
	g.strayProblems()
	g.resourceProblems()
	g.sortProblems()
	g.Verdict = g.verdict()
	return g.State
}

// others are the RPCs that have no counters of their own. Whose they are is not known, so they count for every Source.
var others = clusterKey{outcomes.Others, outcomes.Others}

// count sums the outcomes up by cluster.
func (g *gathering) count(reports []*outcomes.Report) {
	targets := map[string]bool{others.target: true}
	for i := range g.source.Channels {
		targets[g.source.Channels[i].Target] = true
	}
	for _, r := range reports {
		if !targets[r.Target] || r.Started == 0 {
			continue
		}
		g.rpcs.Add(&r.Minute)
		k := clusterKey{r.Target, r.Cluster}
		sum := g.counted[k]
		if sum == nil {
			sum = new(outcomes.Report)
			g.counted[k] = sum
		}
		sum.Add(r)
		g.routes[k] = append(g.routes[k], r)
	}
	for _, routes := range g.routes {
		slices.SortFunc(routes, func(a, b *outcomes.Report) int {
			return cmp.Or(cmp.Compare(b.Minute.Started, a.Minute.Started), cmp.Compare(a.Route, b.Route))
		})
	}
}

// splits adds the routes that have sent RPCs to several clusters in the last minute.
func (g *gathering) splits() {
	byRoute := make(map[outcomes.Key][]SplitCluster)
	for _, reports := range g.routes {
		for _, r := range reports {
			if r.Cluster != "" && r.Minute.Started > 0 {
				k := outcomes.Key{Target: r.Target, Route: r.Route}
				byRoute[k] = append(byRoute[k], SplitCluster{r.Cluster, r.Minute})
			}
		}
	}
	for k, clusters := range byRoute {
		if len(clusters) > 1 {
			slices.SortFunc(clusters, func(a, b SplitCluster) int { return cmp.Compare(a.Name, b.Name) })
			g.Splits = append(g.Splits, Split{k.Target, k.Route, clusters[:min(len(clusters), MaxSplit)]})
		}
	}
	slices.SortFunc(g.Splits, func(a, b Split) int {
		return cmp.Or(cmp.Compare(b.failed(), a.failed()), cmp.Compare(a.Target, b.Target), cmp.Compare(a.Route, b.Route))
	})
}

func (s *Split) failed() (n uint64) {
	for i := range s.Clusters {
		n += s.Clusters[i].Minute.Failed
	}
	return n
}

// ask describes the clusters of each channel. The channels are asked at the same time.
func (g *gathering) ask(ctx context.Context) [][]*Cluster {
	all := make([][]*Cluster, len(g.source.Channels))
	var asking sync.WaitGroup
	for i := range all {
		c := &g.source.Channels[i]
		if c.Source == nil {
			continue
		}
		names := c.Source.ClusterNames()
		asking.Go(func() {
			for _, name := range names {
				if d := g.describe(ctx, c, name); d != nil {
					all[i] = append(all[i], d)
				}
			}
		})
	}
	asking.Wait()
	return all
}

// describe describes a cluster with its routes, nil if the channel does not have it. It is called on goroutines of ask, where no
// HTTP server recovers from a panic, and looking at a process must not end it. What RPCs say of the cluster is told all the same.
func (g *gathering) describe(ctx context.Context, channel *inspect.Channel, name string) (c *Cluster) {
	k := clusterKey{channel.Target, name}
	defer func() {
		if p := recover(); p != nil {
			logger.Errorf("cluster %q of channel %q cannot be described: %v\n%s", name, channel.Target, p, debug.Stack())
			c = clusterOf(k.target, &inspect.Cluster{
				Name: name, Phase: inspect.PhaseResolving, State: inspect.Idle, Unserved: true,
				Error: "its endpoints are not known", Notes: fmt.Sprintf("it cannot be described, which is an error of dynxds: %v", p),
			}, g.counted[k])
		}
	}()
	live, ok := channel.Source.Cluster(ctx, name)
	if !ok {
		return nil
	}
	c = clusterOf(k.target, &live, g.counted[k])
	if routes := g.routes[k]; len(routes) > 1 {
		for _, r := range routes[:min(len(routes), MaxRoutes)] {
			c.Routes = append(c.Routes, Route{r.Route, r})
		}
	}
	return c
}

// ServersOf returns the management servers of an xDS client, and whether it is connected to each.
func ServersOf(d *xdsclient.Dump) (all []Server) {
	for _, s := range d.Servers {
		one := Server{URI: s.URI, Connected: s.Connected, NextAttempt: s.NextAttempt}
		if s.Err != nil {
			one.Error = text(s.Err.Error())
		}
		all = append(all, one)
	}
	return all
}

func (g *gathering) servers() {
	for _, d := range g.source.Clients {
		behind := g.behind(d)
		for _, one := range ServersOf(d) {
			p := Problem{Severity: Degraded, Kind: "server", Subject: "control plane " + text(one.URI), Server: one.URI}
			if one.Error != "" {
				one.Since = g.lostSince(one.URI)
				p.Text, p.Since = one.Error, one.Since
			} else if one.BehindSince = behind[one.URI]; !one.BehindSince.IsZero() {
				p.Text, p.Since = RelayAlone(g.Time.Sub(one.BehindSince)), one.BehindSince
			}
			if p.Text != "" {
				g.Problems = append(g.Problems, p)
			}
			g.Servers = append(g.Servers, one)
		}
	}
}

// certificates adds the certificates of the process, and tells of those whose end is near.
func (g *gathering) certificates() {
	g.Certificates = certfiles.Identities()
	slices.SortStableFunc(g.Certificates, func(a, b certfiles.Identity) int { return a.NotAfter.Compare(b.NotAfter) })
	for _, c := range g.Certificates {
		if c.Ending() {
			g.Problems = append(g.Problems, Problem{
				Severity: Degraded, Kind: "certificate", Subject: "certificate " + text(c.File),
				Text: CertificateEnd(c.Left()) + "; renew the file, which is read again without a restart",
			})
		}
	}
}

// CertificateEnd says for how long a certificate is still valid.
func CertificateEnd(left time.Duration) string {
	if left < 0 {
		return "expired " + Ago(-left) + " ago"
	}
	return "expires in " + Ago(left)
}

// behind returns since when servers, by URI, have said that their own control planes are unreachable: relays do, in place of
// resources. It is told as a problem of the server, once.
func (g *gathering) behind(d *xdsclient.Dump) map[string]time.Time {
	all := make(map[string]time.Time)
	for i := range d.Resources {
		r := &d.Resources[i]
		// That a server itself is unreachable is no Failure.
		if f := r.Failure; f != nil && f.Err.Kind == xdsclient.KindUnreachable {
			g.covered[resourceKey{r.TypeURL, r.Name}] = true
			all[f.Err.Server] = earliest(all[f.Err.Server], f.Time)
		}
	}
	return all
}

// lostSince returns when a server was lost, if that is remembered.
func (g *gathering) lostSince(server string) time.Time {
	for _, c := range g.recent { // the latest first
		if c.Kind == changes.ServerLost && c.Server == server {
			return c.Time
		}
	}
	return time.Time{}
}

// channel adds a channel.
func (g *gathering) channel(c *inspect.Channel) {
	d := Channel{
		Number: c.Number, Target: c.Target, Mode: c.Mode, State: string(c.State), Health: Healthy, Since: c.Since,
		RPCs: g.counted[clusterKey{c.Target, ""}],
	}
	switch config := c.Config; {
	case c.Mode == string(channels.DNS):
		d.Health = Unknown
		if bypasses(c) {
			d.Health, d.Error = Degraded, "resolved by DNS, so that its RPCs go around the mesh: "+text(c.Reason)
		}
	case config == nil && c.State == inspect.Idle:
		d.Health = Idle
	case config == nil:
		d.Health, d.Error = Failing, text(c.Why)
	case config.Error != "":
		d.Health, d.Error = Failing, text(config.Error)
	case config.Version == 0 && count(g.Servers, isLost) > 0:
		d.Health, d.Error = Failing, "RPCs wait for the first configuration: "+text(c.Reason)
	case config.Version == 0:
		d.Health, d.Error = Unknown, "RPCs wait for the first configuration: "+text(c.Reason)
	}
	if c.Config != nil {
		d.Version, d.Clusters = c.Config.Version, c.Config.Clusters
	}
	if d.Health == Failing || d.Health == Degraded {
		g.channelProblem(&d, c)
	}
	g.Channels = append(g.Channels, d)
}

// cluster adds a cluster. Channels with the same target share its row, which has the state of the worse one: what is counted is
// counted together.
func (g *gathering) cluster(c *Cluster) {
	k := clusterKey{c.Target, c.Name}
	if other := g.described[k]; other == nil || compare(c, other) < 0 {
		g.described[k] = c
	}
}

// Entries returns the entries of a resource that clients have.
func Entries(clients []*xdsclient.Dump, typeURL, name string) (found []*xdsclient.ResourceDump) {
	for _, d := range clients { // whose resources are sorted
		i, _ := slices.BinarySearchFunc(d.Resources, name, func(r xdsclient.ResourceDump, name string) int {
			return cmp.Or(cmp.Compare(r.TypeURL, typeURL), cmp.Compare(r.Name, name))
		})
		for ; i < len(d.Resources) && d.Resources[i].TypeURL == typeURL && d.Resources[i].Name == name; i++ {
			found = append(found, &d.Resources[i])
		}
	}
	return found
}
