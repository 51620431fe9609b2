package resolver

import (
	"errors"
	"slices"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// member is one Cluster that the channel watches, with its endpoints. The clusters under an aggregate one are
// up to the clusterNodes that use the member. Guarded by the graph's lock.
type member struct {
	graph  *graph
	name   string
	users  []*clusterNode // the member ends with the last one
	cds    *watch[*xdsresource.Cluster]
	notes  *notes
	source endpointSource // nil: there are no endpoints outside the Cluster
	// state is empty until the Cluster is known, and has neither Endpoints nor Err until
	// the endpoints are.
	state *balancer.ClusterState
}

// endpointSource provides the endpoints of a cluster. It calls member.resolved when they have
// changed.
type endpointSource interface {
	// follow switches to another version of the cluster. It reports false, having done
	// nothing, if that has another kind of source.
	follow(*xdsresource.Cluster) bool
	// known returns the endpoints, or why there are none; neither if that is not known yet.
	known() (*xdsresource.Endpoints, error)
	stop()
}

// acquire returns the member of the given name for a user. It starts to watch a new one.
func (g *graph) acquire(name string, user *clusterNode) *member {
	m := g.members[name]
	if m == nil {
		m = &member{graph: g, name: name, state: new(balancer.ClusterState)}
		m.cds = newWatch(g, xdsresource.ClusterType, name, m.onCluster)
		m.notes = &notes{graph: g, cluster: m.cds}
		g.members[name] = m
		m.cds.start()
	}
	m.users = append(m.users, user)
	return m
}

// release ends the use of a member.
func (m *member) release(user *clusterNode) {
	m.users = slices.DeleteFunc(m.users, func(n *clusterNode) bool { return n == user })
	if len(m.users) == 0 {
		m.stop()
		delete(m.graph.members, m.name)
	}
}

func (m *member) stop() {
	m.cds.stop()
	m.setSource(nil)
}

// setSource makes s the source. The old one stops after s has started, so that what both need
// stays subscribed.
func (m *member) setSource(s endpointSource) {
	if m.source != nil {
		m.source.stop()
	}
	m.source = s
	if eds, ok := s.(*edsEndpoints); ok {
		m.notes.endpoints.Store(eds.watch)
	} else {
		m.notes.endpoints.Store(nil)
	}
}

func (m *member) onCluster(c *xdsresource.Cluster, err error) {
	if err != nil {
		m.setSource(nil)
		m.setState(balancer.ClusterState{Err: err, Notes: m.notes})
		return
	}
	if m.source == nil || !m.source.follow(c) {
		m.setSource(m.newSource(c))
	}
	m.update(c)
}

func (m *member) newSource(c *xdsresource.Cluster) endpointSource {
	switch {
	case c.Kind == xdsresource.ClusterEDS:
		return newEDSEndpoints(m, c)
	case c.Kind.DNS():
		return newDNSEndpoints(m, c)
	default:
		return nil
	}
}

// resolved is called when the endpoints have changed.
func (m *member) resolved() { m.update(m.state.Cluster) }

// update computes the state for a version of the Cluster.
func (m *member) update(c *xdsresource.Cluster) {
	s := balancer.ClusterState{Cluster: c, Notes: m.notes}
	switch {
	case c.Kind == xdsresource.ClusterStatic:
		s.Endpoints = c.Inline
	case m.source != nil:
		s.Endpoints, s.Err = m.source.known()
		if s.Endpoints == nil && m.waits(s.Err) && m.graph.sameConnections(m.state.Cluster, c) {
			// The old endpoints, if there are any, stay in use until the new ones are known,
			// but not with another security or without their proxies, by which they need not be reached.
			s.Endpoints, s.Err = m.state.Endpoints, nil
		}
		if dns, ok := m.source.(*dnsEndpoints); ok {
			s.ResolveNow = dns.resolveNow
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
	sameUnder := slices.Equal(under(before), under(&s))
	for _, n := range m.users {
		n.memberChanged(m, m == n.self || !sameUnder)
	}
	m.graph.changed()
}

func sameError(a, b error) bool {
	return a == b || a != nil && b != nil && a.Error() == b.Error()
}

// edsEndpoints are those of a ClusterLoadAssignment.
type edsEndpoints struct {
	watch *watch[*xdsresource.Endpoints]
}

func newEDSEndpoints(m *member, c *xdsresource.Cluster) *edsEndpoints {
	e := &edsEndpoints{}
	e.watch = newWatch(m.graph, xdsresource.EndpointsType, c.EDSServiceName,
		func(*xdsresource.Endpoints, error) { m.resolved() })
	e.watch.start()
	return e
}

func (e *edsEndpoints) follow(c *xdsresource.Cluster) bool {
	return c.Kind == xdsresource.ClusterEDS && c.EDSServiceName == e.watch.name
}

func (e *edsEndpoints) known() (*xdsresource.Endpoints, error) {
	value, _ := e.watch.value()
	return value, e.watch.err()
}

func (e *edsEndpoints) stop() { e.watch.stop() }
