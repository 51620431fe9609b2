// Package shard keeps one pick_first for each endpoint (gRFC A61), for policies
// that pick among endpoints themselves.
//
// It picks nothing, and connects to an endpoint only when its policy asks. It
// works on the tree's loop.
package shard

import (
	"slices"
	"strings"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/balancer/leaf"
	"github.com/dynxds/dynxds/xdsresource"
)

const pickFirst = "pick_first"

// Set is the usable endpoints of a policy.
type Set struct {
	env     *tree.Env
	changed func()
	members map[string]*Member
	order   []*Member
}

// Member is one endpoint.
type Member struct {
	set      *Set
	endpoint xdsresource.Endpoint
	leaf     *leaf.Policy // nil until Connect
}

// New returns a Set without endpoints. changed is called when the state of a
// Member is another one.
func New(env *tree.Env, changed func()) *Set {
	return &Set{env: env, changed: changed, members: make(map[string]*Member)}
}

// Update makes the members those of endpoints that are usable. Endpoints with
// the same addresses as before keep their connection.
func (s *Set) Update(endpoints []xdsresource.Endpoint) {
	before := s.members
	s.members = make(map[string]*Member, len(endpoints))
	s.order = s.order[:0:0]
	for _, e := range endpoints {
		key := keyOf(e)
		if _, twice := s.members[key]; twice || !e.Health.Usable() {
			continue
		}
		m := before[key]
		delete(before, key)
		if m == nil {
			m = &Member{set: s}
		}
		m.endpoint = e
		if m.leaf != nil {
			m.leaf.Update([]xdsresource.Endpoint{e}, "")
		}
		s.members[key] = m
		s.order = append(s.order, m)
	}
	for _, m := range before {
		m.close()
	}
}

// keyOf identifies an endpoint by its addresses, in whatever order (gRFC A61,
// "Address List Updates in Petiole Policies").
func keyOf(e xdsresource.Endpoint) string {
	if len(e.Additional) == 0 {
		return e.Address
	}
	addresses := append([]string{e.Address}, e.Additional...)
	slices.Sort(addresses)
	return strings.Join(addresses, " ")
}

// Members returns the members in the order of the endpoints.
func (s *Set) Members() []*Member { return s.order }

// Count returns the number of members in each state.
func (s *Set) Count() [connectivity.Shutdown]int {
	var n [connectivity.Shutdown]int
	for _, m := range s.order {
		n[m.State().ConnectivityState]++
	}
	return n
}

// Close ends all connections.
func (s *Set) Close() {
	for _, m := range s.order {
		m.close()
	}
	s.members, s.order = nil, nil
}

// Endpoint returns the member's endpoint.
func (m *Member) Endpoint() xdsresource.Endpoint { return m.endpoint }

// State returns the state of the connection. It is IDLE before Connect.
func (m *Member) State() balancer.State {
	if m.leaf == nil {
		return tree.Waiting(connectivity.Idle)
	}
	return m.leaf.State()
}

// Connect connects an idle member.
func (m *Member) Connect() {
	if m.leaf != nil {
		m.leaf.ExitIdle()
		return
	}
	m.leaf = leaf.New(m.set.env, pickFirst, leaf.ForEndpoint, m.set.changed)
	m.leaf.Update([]xdsresource.Endpoint{m.endpoint}, "")
}

func (m *Member) close() {
	if m.leaf != nil {
		m.leaf.Close()
		m.leaf = nil
	}
}
