package controlplane

import (
	"fmt"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// A computed resource, for DPDS, is an entry with a source of its own: each client that gets the entry has a demand, which the store
// answers for the client's node. No other change may reach the client before the constraints that it must subscribe with: until
// the demand is answered, the client is sent nothing.

// computing returns the source of a computed resource.
func (s *Store) computing(name string, of func(node *corepb.Node) (dynparam.ByType, error)) *sourceOf {
	return &sourceOf{notify: func(begun, _ []*Demand) {
		for _, d := range begun {
			answer := compute(name, of, d.Node)
			s.mu.Lock()
			d.answered(answer, s.version)
			s.mu.Unlock()
		}
	}}
}

// compute returns the resource for a client, or the error in its place: the status of the function's error.
func compute(name string, of func(node *corepb.Node) (dynparam.ByType, error), node *corepb.Node) *entry {
	constraints, err := of(node)
	var r *Resource
	if err == nil {
		r, err = newResource(name, dynparam.Parameters{}, constraints.ToProto())
	}
	if err == nil {
		return &entry{resource: r}
	}
	e, err := newResourceError(name, statusOf(err))
	if err != nil {
		e, _ = newResourceError(name, status.New(codes.Internal, fmt.Sprintf("the error of %q cannot be sent", name)))
	}
	return &entry{err: e}
}

// compute begins the demand of a subscription to a computed resource, in place of the one that it may have. Until there is an answer,
// it has the one that it was given before. The caller holds Store.mu.
func (a *ask) compute(sub *subscription, before *entry) {
	earlier := a.own[sub]
	d := newDemand(a)
	d.only(sub)
	d.answer, d.holds = before, true
	sub.stream.mu.Lock()
	sub.settling++
	sub.items.add(sub.topicOf(a), dueNow, false)
	sub.items.updated(a.table.store.updating)
	sub.stream.mu.Unlock()
	if earlier != nil {
		earlier.update()
	}
	d.update()
}

// release lets the client of a computed resource be sent what is due. The caller holds Store.mu.
func (d *Demand) release() {
	if d.holds {
		d.holds = false
		d.sub.stream.settle(d.sub, -1)
	}
}

// RefreshDPDS makes the store call the function of [Tx.SetDPDS] again, without waiting for that:
// for one name or, if it is empty, for all, and for the clients whose nodes affected accepts or, if
// it is nil, for all. Only clients whose answer changed are sent anything. affected is called
// without locks.
func (s *Store) RefreshDPDS(name string, affected func(*corepb.Node) bool) {
	for _, d := range s.computed(name) {
		if affected == nil || affected(d.Node) {
			s.computeAgain(d.ask, d.sub)
		}
	}
}

// computed returns the demands for computed resources.
func (s *Store) computed(name string) (demands []*Demand) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := s.tables[dynparam.MapTypeURL]
	if t == nil {
		return nil
	}
	for key, asks := range t.asks.m {
		if name != "" && key != keyOf(name) {
			continue
		}
		for _, a := range asks {
			if !a.choice.isComputed() {
				continue
			}
			for _, d := range a.own {
				demands = append(demands, d)
			}
		}
	}
	return demands
}

// computeAgain replaces a demand whose answer is computed, or is being computed.
func (s *Store) computeAgain(a *ask, sub *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := a.own[sub]; d != nil && d.begun && d.live() && a.choice.isComputed() {
		a.compute(sub, d.answer)
	}
}
