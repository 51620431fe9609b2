package resolver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/dynxds/dynxds/internal/lookup"
	"github.com/dynxds/dynxds/xdsresource"
)

// dnsEndpoints are those of a cluster whose names DNS resolves. Its fields but
// asked are guarded by the graph's lock.
type dnsEndpoints struct {
	member  *member
	cluster *xdsresource.Cluster
	names   map[string]*dnsName
	stopped bool
	// endpoints and err are what is known.
	endpoints *xdsresource.Endpoints
	err       error
	// asked has what resolveNow asks.
	asked atomic.Pointer[[]*lookup.Watch]
}

// dnsName is one name and what DNS says of it.
type dnsName struct {
	watch  *lookup.Watch
	result lookup.Result
}

func newDNSEndpoints(m *member, c *xdsresource.Cluster) *dnsEndpoints {
	d := &dnsEndpoints{member: m}
	d.follow(c)
	return d
}

// follow implements endpointSource. Names that stay are not looked up anew.
func (d *dnsEndpoints) follow(c *xdsresource.Cluster) bool {
	if !c.Kind.DNS() {
		return false
	}
	before, anew := d.names, d.cluster != nil && d.cluster.RefreshRate != c.RefreshRate
	d.cluster, d.names = c, make(map[string]*dnsName)
	for _, name := range c.DNSNames() {
		if n := before[name]; n != nil && !anew {
			d.names[name] = n
			delete(before, name)
		} else if d.names[name] == nil {
			d.names[name] = d.start(name)
		}
	}
	for _, n := range before {
		n.watch.Stop()
	}
	watches := make([]*lookup.Watch, 0, len(d.names))
	for _, n := range d.names {
		watches = append(watches, n.watch)
	}
	d.asked.Store(&watches)
	d.resolve()
	return true
}

func (d *dnsEndpoints) start(name string) *dnsName {
	n := &dnsName{}
	n.watch, n.result = lookup.Start(name, d.cluster.RefreshRate, func(r lookup.Result) {
		d.member.graph.mu.Lock()
		defer d.member.graph.mu.Unlock()
		// A result may be on its way when the watch is stopped.
		if !d.stopped && d.names[name] == n {
			n.result = r
			d.resolve()
			d.member.resolved()
		}
	})
	return n
}

// resolve makes endpoints of what DNS has said so far. A name that has no address
// is left out as long as another one has.
func (d *dnsEndpoints) resolve() {
	d.endpoints, d.err = nil, nil
	e := d.cluster.Resolved(func(name string) []string { return d.names[name].result.Addresses })
	if len(e.Localities) > 0 || len(d.names) == 0 {
		d.endpoints = e
		return
	}
	for _, n := range d.names {
		if !n.result.Answered() {
			return
		}
	}
	d.err = d.failure()
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
			err = errors.New("no address is of the family that dns_lookup_family asks for")
		}
		causes = append(causes, fmt.Sprintf("%q: %v", name, err))
	}
	return fmt.Errorf("cluster %q of type %v has no endpoint: %s", d.cluster.Name, d.cluster.Kind, strings.Join(causes, "; "))
}

// known implements endpointSource.
func (d *dnsEndpoints) known() (*xdsresource.Endpoints, error) { return d.endpoints, d.err }

// resolveNow has all names looked up again. It takes no lock of the graph's.
func (d *dnsEndpoints) resolveNow() {
	for _, w := range *d.asked.Load() {
		w.ResolveNow()
	}
}

// stop implements endpointSource.
func (d *dnsEndpoints) stop() {
	d.stopped = true
	for _, n := range d.names {
		n.watch.Stop()
	}
}
