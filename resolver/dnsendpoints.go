package resolver

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/resolver/internal/lookup"
)

// dnsEndpoints are those of a version of a Cluster, with names that DNS resolves. Guarded by the graph's lock.
type dnsEndpoints struct {
	owner   *cluster
	cluster *xdsresource.Cluster
	names   map[string]*dnsName
	asked   time.Time   // when the names were last looked up again
	refresh *time.Timer // until they are without demand, nil for never
	// noted: there are answers since the endpoints were computed, which the next build does if it is due.
	noted, due bool
}

// dnsName is a name and its answer.
type dnsName struct {
	watch  *lookup.Watch
	result lookup.Result
}

// newDNSEndpoints looks up the names of a version of the Cluster. The caller stops those of the one before then, so that names
// that remain are not looked up again.
func newDNSEndpoints(c *cluster, value *xdsresource.Cluster) *dnsEndpoints {
	d := &dnsEndpoints{owner: c, cluster: value, names: make(map[string]*dnsName)}
	for _, name := range value.DNSNames() {
		if d.names[name] != nil {
			continue
		}
		n := new(dnsName)
		if c.dns != nil && c.dns.names[name] != nil {
			n.result = c.dns.names[name].result
		}
		watch, known := lookup.Start(name, value.Name, func(r lookup.Result) { d.answered(n, r) })
		n.watch, d.names[name] = watch, n
		d.accept(n, known)
	}
	if before := c.dns; before != nil && before.cluster.RefreshRate == value.RefreshRate {
		d.refresh, before.refresh = before.refresh, nil
	} else if value.RefreshRate > 0 {
		d.refresh = time.AfterFunc(d.refreshRate(), c.resolveNow)
	}
	return d
}

// refreshRate is the interval of look-ups without demand. Package lookup does not look up more often.
func (d *dnsEndpoints) refreshRate() time.Duration {
	return max(d.cluster.RefreshRate, grpcbridge.MinResolutionInterval(), time.Second)
}

// accept takes an answer. A STRICT_DNS cluster loses addresses that are gone; the one endpoint of a LOGICAL_DNS cluster keeps
// them, as in Envoy.
func (d *dnsEndpoints) accept(n *dnsName, r lookup.Result) {
	if r.Addresses != nil || n.result.Addresses == nil || d.cluster.Kind == xdsresource.ClusterStrictDNS {
		n.result = r
	}
}

// Computing endpoints costs about 10 µs for each name. Answers for a cluster with more than fewNames share what is
// computed ten times as long, at most manyNamesPause, after the first one, but not the very first.
const (
	fewNames       = 100
	namePause      = 100 * time.Microsecond
	manyNamesPause = time.Second
)

// answered handles an answer of DNS. The next build computes the endpoints.
func (d *dnsEndpoints) answered(n *dnsName, r lookup.Result) {
	g := d.owner.graph
	g.mu.Lock()
	defer g.mu.Unlock()
	// A result may arrive while the watch is being stopped.
	if d.owner.dns != d {
		return
	}
	d.accept(n, r)
	if d.noted {
		return
	}
	d.noted = true
	first := d.owner.state.Endpoints == nil && r.Addresses != nil
	if d.due = first || len(d.names) <= fewNames; d.due {
		d.owner.touch()
		return
	}
	time.AfterFunc(min(time.Duration(len(d.names))*namePause, manyNamesPause), func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if d.owner.dns == d {
			d.due = true
			d.owner.touch()
		}
	})
}

// resolve computes the endpoints from the answers so far, neither endpoints nor an error if some are missing. A name without
// addresses is ignored while another one has some.
func (d *dnsEndpoints) resolve() (*xdsresource.Endpoints, error) {
	e := d.cluster.Resolved(func(name string) []string { return d.names[name].result.Addresses })
	if len(e.Localities) > 0 || len(d.names) == 0 {
		return e, nil
	}
	for _, n := range d.names {
		if !n.result.Answered() {
			return nil, nil
		}
	}
	return nil, d.failure()
}

// maxListedNames bounds the names in an error.
const maxListedNames = 5

func (d *dnsEndpoints) failure() error {
	var causes []string
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		err := cmp.Or(d.names[name].result.Err, errors.New("no address has the family that dns_lookup_family asks for"))
		causes = append(causes, bounds.Quote(name)+": "+bounds.Text(err.Error(), bounds.ErrorText))
	}
	return fmt.Errorf("cluster %s of type %v has no endpoint: %s", bounds.Quote(d.cluster.Name), d.cluster.Kind, faults.Few(causes, maxListedNames, "; "))
}

// resolveNow looks up all names of the cluster again. If many of its connections fail together, it does so at most once per
// interval; those that keep failing call it again.
func (c *cluster) resolveNow() {
	const interval = 100 * time.Millisecond
	c.graph.mu.Lock()
	defer c.graph.mu.Unlock()
	d := c.dns
	if d == nil || time.Since(d.asked) < interval {
		return
	}
	d.asked = time.Now()
	if d.refresh != nil {
		d.refresh.Reset(d.refreshRate())
	}
	for _, n := range d.names {
		n.watch.ResolveNow()
	}
}

func (d *dnsEndpoints) stop() {
	if d.refresh != nil {
		d.refresh.Stop()
	}
	for _, name := range d.cluster.DNSNames() { // in the order in which they wait for turns
		d.names[name].watch.Stop()
	}
}
