// Package perendpoint has one pick_first for each endpoint (gRFC A61), for policies that pick among
// endpoints themselves.
//
// It picks nothing, and connects to an endpoint only when its policy asks for that. It works on
// the tree's loop, except for what pickers read of a Member. A change of one endpoint costs the
// same however many others there are.
package perendpoint

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Set has the usable endpoints of a policy.
type Set struct {
	env     *tree.Env
	changed func(*Member)
	members map[string]*Member
	order   []*Member
	count   [connectivity.Shutdown]int
	// connecting is the number of members that are CONNECTING, for pickers.
	connecting atomic.Int32
	// Members before idleFrom are not IDLE.
	idleFrom int
}

// Member is one endpoint.
type Member struct {
	// Requested is for pickers: the one that asks for a connection sets it, until that has been
	// dealt with.
	Requested atomic.Bool
	// Data is the policy's own, nil at first.
	Data any

	set      *Set
	endpoint xdsresource.Endpoint
	leaf     *leaf.Policy // nil until Connect
	index    int          // in Set.order; -1 after its removal
	// seen is the state that is counted, and that pickers see.
	seen atomic.Pointer[balancer.State]
}

// idle is the state of a member before Connect.
var idle = tree.Waiting(connectivity.Idle)

// New returns a Set without endpoints. changed is called when the state of a Member has
// changed.
func New(env *tree.Env, changed func(*Member)) *Set {
	return &Set{env: env, changed: changed, members: make(map[string]*Member)}
}

// Update makes the usable endpoints among all the members. Endpoints with the same addresses as
// before keep their connections.
func (s *Set) Update(all []xdsresource.Endpoint) {
	before := s.members
	s.members = make(map[string]*Member, len(all))
	s.order = s.order[:0:0]
	for _, e := range all {
		key := conns.Key(&e)
		if _, twice := s.members[key]; twice || !e.Health.Usable() {
			continue
		}
		m := before[key]
		delete(before, key)
		if m == nil {
			m = &Member{set: s}
			m.seen.Store(&idle)
		}
		m.index = len(s.order)
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
	s.count, s.idleFrom = [connectivity.Shutdown]int{}, 0
	for _, m := range s.order {
		if m.leaf != nil {
			state := m.leaf.State()
			m.seen.Store(&state)
		}
		s.count[m.State().ConnectivityState]++
	}
	s.connecting.Store(int32(s.count[connectivity.Connecting]))
}

// observe counts the state of a member.
func (s *Set) observe(m *Member) {
	if m.leaf == nil || m.index < 0 {
		return
	}
	before, now := m.State().ConnectivityState, m.leaf.State()
	m.seen.Store(&now)
	s.count[before]--
	s.count[now.ConnectivityState]++
	s.connecting.Store(int32(s.count[connectivity.Connecting]))
	if now.ConnectivityState == connectivity.Idle {
		s.idleFrom = min(s.idleFrom, m.index)
	}
}

// Members returns the members in the order of the endpoints.
func (s *Set) Members() []*Member { return s.order }

// Count returns the number of members in each state.
func (s *Set) Count() [connectivity.Shutdown]int { return s.count }

// Connecting reports whether a member is CONNECTING. It is safe for concurrent use.
func (s *Set) Connecting() bool { return s.connecting.Load() > 0 }

// FirstIdle returns the first member that is IDLE, or nil.
func (s *Set) FirstIdle() *Member {
	for ; s.idleFrom < len(s.order); s.idleFrom++ {
		if m := s.order[s.idleFrom]; m.State().ConnectivityState == connectivity.Idle {
			return m
		}
	}
	return nil
}

// Close ends all connections.
func (s *Set) Close() {
	for _, m := range s.order {
		m.close()
	}
	s.members, s.order, s.count = nil, nil, [connectivity.Shutdown]int{}
}

// Endpoint returns the member's endpoint.
func (m *Member) Endpoint() xdsresource.Endpoint { return m.endpoint }

// State returns the state of the connection, IDLE before Connect. It is safe for concurrent
// use.
func (m *Member) State() balancer.State { return *m.seen.Load() }

// Index returns the place of the member among Members; it is negative after its removal.
func (m *Member) Index() int { return m.index }

// Connect connects an idle member.
func (m *Member) Connect() {
	if m.leaf != nil {
		m.leaf.ExitIdle()
		return
	}
	m.leaf = leaf.New(m.set.env, "pick_first", leaf.ForEndpoint, func() {
		m.set.observe(m)
		m.set.changed(m)
	})
	m.leaf.Update([]xdsresource.Endpoint{m.endpoint}, "")
	m.set.observe(m)
}

func (m *Member) close() {
	m.index = -1
	if m.leaf != nil {
		m.leaf.Close()
		m.leaf = nil
	}
}
