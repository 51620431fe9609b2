package resolver

import (
	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// member follows one cluster: its Cluster, and the endpoints that this leads to.
// What is under an aggregate cluster is up to the clusterNode. Guarded by the
// graph's lock.
type member struct {
	graph *graph
	name  string
	// changed is called when state is another one than before.
	changed func(m *member, before *balancer.ClusterState)
	cds     *watch[*xdsresource.Cluster]
	notes   *notes
	// source is nil while the endpoints come from nowhere but the Cluster, or
	// there are none.
	source endpointSource
	// state is empty until the Cluster is known, and has no Endpoints and no Err
	// until they are.
	state *balancer.ClusterState
}

// endpointSource is where the endpoints of a cluster come from. It calls
// member.resolved when they are others.
type endpointSource interface {
	// follow takes over another version of the cluster. It reports false, having
	// done nothing, if the endpoints of that come from elsewhere.
	follow(*xdsresource.Cluster) bool
	// known returns the endpoints or why there are none. Neither: not yet known.
	known() (*xdsresource.Endpoints, error)
	stop()
}

func newMember(g *graph, name string, changed func(*member, *balancer.ClusterState)) *member {
	m := &member{graph: g, name: name, changed: changed, state: new(balancer.ClusterState)}
	m.cds = newWatch(g, xdsresource.ClusterType, name, m.onCluster)
	m.notes = &notes{graph: g, cluster: m.cds}
	return m
}

func (m *member) start() { m.cds.start() }

func (m *member) stop() {
	m.cds.stop()
	m.from(nil)
}

// from makes s the source. The one before ends after s has started, so that what
// both need is not given up in between.
func (m *member) from(s endpointSource) {
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
		m.from(nil)
		m.become(balancer.ClusterState{Err: err, Notes: m.notes})
		return
	}
	if m.source == nil || !m.source.follow(c) {
		m.from(m.newSource(c))
	}
	m.adopt(c)
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

// resolved is called when the source knows something else.
func (m *member) resolved() { m.adopt(m.state.Cluster) }

func (m *member) adopt(c *xdsresource.Cluster) {
	s := balancer.ClusterState{Cluster: c, Notes: m.notes}
	switch {
	case c.Kind == xdsresource.ClusterStatic:
		s.Endpoints = c.Inline
	case m.source != nil:
		s.Endpoints, s.Err = m.source.known()
		if s.Endpoints == nil && (s.Err == nil || m.state.Endpoints != nil && m.graph.isTransient(s.Err)) && m.graph.sameSecurity(m.state.Cluster, c) {
			// Those of before, if there are any, stay in use until it is known. Not with
			// another security, which they need not have.
			s.Endpoints, s.Err = m.state.Endpoints, nil
		}
		if dns, ok := m.source.(*dnsEndpoints); ok {
			s.ResolveNow = dns.resolveNow
		}
	}
	m.become(s)
}

func (m *member) become(s balancer.ClusterState) {
	if !equalStates(&s, m.state) {
		before := m.state
		m.state = &s
		m.changed(m, before)
	}
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
