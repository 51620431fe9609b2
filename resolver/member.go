package resolver

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// member is one Cluster that the channel watches, with its endpoints. The clusters under an aggregate one are
// up to the clusterNodes that use the member. Guarded by the graph's lock.
type member struct {
	graph *graph
	name  string
	users []*clusterNode // that depend on the member, as of the last sweep
	cds   watch[*xdsresource.Cluster]
	// eds or dns provides the endpoints, unless the Cluster has them itself or is an aggregate one. They call
	// resolved. eds can be read without the lock.
	eds atomic.Pointer[endpointsWatch]
	dns *dnsEndpoints
	// state is empty until the Cluster is known, and has neither Endpoints nor Err until
	// the endpoints are.
	state *balancer.ClusterState
}

type endpointsWatch = watch[*xdsresource.Endpoints]

// member returns the member of the given name. It starts to watch a new one, which ends with the next sweep unless a
// clusterNode depends on it.
func (g *graph) member(name string) *member {
	m := g.members[name]
	if m == nil {
		m = &member{graph: g, name: name, state: new(balancer.ClusterState)}
		m.cds = watch[*xdsresource.Cluster]{graph: g, typ: xdsresource.ClusterType, name: name, changed: m.onCluster}
		g.members[name], g.unswept = m, true
		if plugin := g.plugin(name); plugin != nil {
			m.usePlugin(plugin)
		} else {
			m.cds.start()
		}
	}
	return m
}

func (m *member) stop() {
	m.cds.stop()
	m.follow(nil)
}

func (m *member) onCluster(c *xdsresource.Cluster, err error) {
	m.follow(c)
	if err != nil {
		m.setState(balancer.ClusterState{Err: err, Notes: (*notes)(m)})
		return
	}
	m.update(c)
}

// follow makes the endpoints those of a version of the Cluster, nil for none. What has to end does so after what it needs
// instead has started, so that what both need stays subscribed.
func (m *member) follow(c *xdsresource.Cluster) {
	var eds *endpointsWatch
	var dns *dnsEndpoints
	switch {
	case c == nil:
	case c.Kind == xdsresource.ClusterEDS:
		if eds = m.eds.Load(); eds == nil || eds.name != c.EDSServiceName {
			eds = newWatch(m.graph, xdsresource.EndpointsType, c.EDSServiceName, func(*xdsresource.Endpoints, error) { m.resolved() })
			eds.start()
		}
	case c.Kind.DNS():
		if dns = m.dns; dns == nil {
			dns = &dnsEndpoints{member: m}
		}
		dns.follow(c)
	}
	if before := m.eds.Swap(eds); before != nil && before != eds {
		before.stop()
	}
	if m.dns != nil && m.dns != dns {
		m.dns.stop()
	}
	m.dns = dns
}

// known returns the endpoints, or why there are none; neither if that is not known yet.
func (m *member) known() (*xdsresource.Endpoints, error) {
	if m.dns != nil {
		return m.dns.endpoints, m.dns.err
	}
	if eds := m.eds.Load(); eds != nil {
		return eds.last, eds.lastErr
	}
	return nil, nil
}

// resolved is called when the endpoints have changed.
func (m *member) resolved() { m.update(m.state.Cluster) }

// update computes the state for a version of the Cluster.
func (m *member) update(c *xdsresource.Cluster) {
	s := balancer.ClusterState{Cluster: c, Notes: (*notes)(m)}
	switch c.Kind {
	case xdsresource.ClusterAggregate:
	case xdsresource.ClusterStatic:
		s.Endpoints = c.Inline
	default:
		s.Endpoints, s.Err = m.known()
		if s.Endpoints == nil && m.waits(s.Err) && m.graph.sameConnections(m.state.Cluster, c) {
			// The old endpoints, if there are any, stay in use until the new ones are known,
			// but not with another security or without their proxies, by which they need not be reached.
			s.Endpoints, s.Err = m.state.Endpoints, nil
		}
		if m.dns != nil {
			s.ResolveNow = m.dns.resolveNow
		}
	}
	m.setState(s)
}

// waits reports whether the endpoints in use, if there are any, wait for the new ones, err being the answer so far: a server
// that is unreachable or silent has not said that there are none.
func (m *member) waits(err error) bool {
	if err == nil {
		return true
	}
	var e *xdsclient.Error
	silent := errors.As(err, &e) && e.Kind == xdsclient.KindTimeout
	return m.state.Endpoints != nil && (silent || m.graph.isTransient(err))
}

func (m *member) setState(s balancer.ClusterState) {
	before := m.state
	if s.Cluster == before.Cluster && s.Endpoints == before.Endpoints && sameError(s.Err, before.Err) {
		return
	}
	m.state = &s
	// The requests for the clusters under it leave at once.
	for _, name := range under(&s) {
		m.graph.member(name)
	}
	sameUnder := slices.Equal(under(before), under(&s))
	for _, n := range m.users {
		n.memberChanged(m, m == n.self || !sameUnder)
	}
	m.graph.changed()
}

func sameError(a, b error) bool {
	return a == b || a != nil && b != nil && a.Error() == b.Error()
}
