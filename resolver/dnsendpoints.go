package resolver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/resolver/internal/lookup"
	"github.com/dynxds/dynxds/xdsclient"
)

// dnsEndpoints are those of a cluster with names that DNS resolves. Guarded by the graph's lock.
type dnsEndpoints struct {
	owner   *cluster
	cluster *xdsresource.Cluster
	names   map[string]*dnsName
	stopped bool

	endpoints *xdsresource.Endpoints
	err       error
	silent    int         // number of names without an answer
	resolved  time.Time   // when endpoints were last computed
	timer     *time.Timer // until they are computed again, if answers wait for that
	asked     time.Time   // when the names were last looked up again on demand
}

// dnsName is a name and its answer.
type dnsName struct {
	watch  *lookup.Watch
	result lookup.Result
}

// follow switches to a version of the cluster. Names that remain are not looked up again.
func (d *dnsEndpoints) follow(c *xdsresource.Cluster) {
	before, refreshed := d.names, d.cluster != nil && d.cluster.RefreshRate != c.RefreshRate
	d.cluster, d.names = c, make(map[string]*dnsName)
	for _, name := range c.DNSNames() {
		if n := before[name]; n != nil && !refreshed {
			n.result = d.accept(n.result)
			d.names[name] = n
			delete(before, name)
		} else if d.names[name] == nil {
			d.names[name] = d.start(name)
		}
	}
	for _, n := range before {
		n.watch.Stop()
	}
	d.asked, d.silent = time.Time{}, 0
	for _, n := range d.names {
		if !n.result.Answered() {
			d.silent++
		}
	}
	d.resolve()
}

func (d *dnsEndpoints) start(name string) *dnsName {
	n := &dnsName{}
	limits := lookup.Limits{Least: grpcbridge.MinResolutionInterval(), Refresh: d.cluster.RefreshRate}
	turns := sharesTurns{d.owner.graph.client, d.cluster.Name}
	n.watch, n.result = lookup.Start(name, turns, limits, func(r lookup.Result) {
		d.owner.graph.mu.Lock()
		defer d.owner.graph.mu.Unlock()
		// A result may arrive while the watch is being stopped.
		if !d.stopped && d.names[name] == n {
			d.answered(n, r)
		}
	})
	return n
}

// sharesTurns is the group of look-ups that share their turns: those of all channels for one cluster.
type sharesTurns struct {
	client  xdsclient.Client
	cluster string
}

// accept returns the result that counts, which may have addresses of the one before. A STRICT_DNS cluster loses
// addresses that are gone; the one endpoint of a LOGICAL_DNS cluster keeps them, as in Envoy.
func (d *dnsEndpoints) accept(r lookup.Result) lookup.Result {
	if d.cluster.Kind == xdsresource.ClusterStrictDNS {
		return r.Latest()
	}
	return r
}

// answered handles an answer of DNS. Computing endpoints costs time for each name, so that
// answers for a cluster with many names are batched, except the first with addresses and
// the last.
func (d *dnsEndpoints) answered(n *dnsName, r lookup.Result) {
	if !n.result.Answered() {
		d.silent--
	}
	n.result = d.accept(r)
	wait := d.spacing() - time.Since(d.resolved)
	switch {
	case wait <= 0 || d.silent == 0 || d.endpoints == nil && r.Err == nil:
		d.publish()
	case d.timer == nil:
		var t *time.Timer
		t = time.AfterFunc(wait, func() {
			d.owner.graph.mu.Lock()
			defer d.owner.graph.mu.Unlock()
			if d.timer == t {
				d.publish()
			}
		})
		d.timer = t
	}
}

func (d *dnsEndpoints) publish() {
	d.resolve()
	d.owner.update()
}

// fewNames is the number of names up to which answers are not batched.
const fewNames = 100

// spacing is the least time between two computations of endpoints: about ten times what one
// takes.
func (d *dnsEndpoints) spacing() time.Duration {
	const each, most = 100 * time.Microsecond, time.Second
	if len(d.names) <= fewNames {
		return 0
	}
	return min(most, time.Duration(len(d.names))*each)
}

// resolve computes the endpoints from the answers so far. A name without addresses is ignored
// while another one has some.
func (d *dnsEndpoints) resolve() {
	d.stopTimer()
	d.resolved = time.Now()
	d.endpoints, d.err = nil, nil
	e := d.cluster.Resolved(func(name string) []string { return d.names[name].result.Addresses })
	if len(e.Localities) > 0 || len(d.names) == 0 {
		d.endpoints = e
		return
	}
	if d.silent == 0 {
		d.err = d.failure()
	}
}

func (d *dnsEndpoints) stopTimer() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// maxListedNames bounds the names in an error.
const maxListedNames = 5

func (d *dnsEndpoints) failure() error {
	var causes []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(d.cluster.DNSNames()))) {
		if len(causes) == maxListedNames {
			causes = append(causes, fmt.Sprintf("and %d more", len(d.names)-maxListedNames))
			break
		}
		err := d.names[name].result.Err
		if err == nil {
			err = errors.New("no address has the family that dns_lookup_family asks for")
		}
		causes = append(causes, bounds.Quote(name)+": "+bounds.Text(err.Error(), bounds.ErrorText))
	}
	return fmt.Errorf("cluster %s of type %v has no endpoint: %s", bounds.Quote(d.cluster.Name), d.cluster.Kind, strings.Join(causes, "; "))
}

// resolveNow looks up all names again. If many connections of a cluster with many names fail
// together, it does so at most once per interval; those that keep failing call it again.
func (d *dnsEndpoints) resolveNow() {
	const interval = 100 * time.Millisecond
	d.owner.graph.mu.Lock()
	defer d.owner.graph.mu.Unlock()
	if len(d.names) > fewNames && time.Since(d.asked) < interval {
		return
	}
	d.asked = time.Now()
	for _, n := range d.names {
		n.watch.ResolveNow()
	}
}

func (d *dnsEndpoints) stop() {
	d.stopped = true
	d.stopTimer()
	for _, n := range d.names {
		n.watch.Stop()
	}
}
