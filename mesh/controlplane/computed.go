package controlplane

import (
	"fmt"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// computed is a resource that is computed for each client, for DPDS; see Tx.SetDPDS.
type computed struct {
	name string
	of   func(node *corepb.Node) (dynparam.ByType, error)
}

// answer computes the resource for a client, or the error in its place: the status of the
// function's error.
func (c *computed) answer(node *corepb.Node) *entry {
	constraints, err := c.of(node)
	var r *Resource
	if err == nil {
		r, err = newResource(c.name, dynparam.Parameters{}, constraints.ToProto())
	}
	if err == nil {
		return &entry{resource: r}
	}
	e, err := newResourceError(c.name, statusOf(err))
	if err != nil {
		e, _ = newResourceError(c.name, status.New(codes.Internal, fmt.Sprintf("the error of %q cannot be sent", c.name)))
	}
	return &entry{err: e}
}

// answers are the computed resources of one client. stream.mu guards them.
type answers struct {
	byName map[nameKey]answer
	// epoch counts the calls of refresh.
	epoch uint64
}

// answer is the result of a computed entry.
type answer struct{ of, is *entry }

// unanswered stands for a computed resource without an answer yet.
var unanswered = &entry{}

// answerTo returns e, or the answer of a computed e.
func (a *answers) answerTo(key nameKey, e *entry) *entry {
	if e == nil || e.computed == nil {
		return e
	}
	if known, ok := a.byName[key]; ok && known.of == e {
		return known.is
	}
	return unanswered
}

// set stores the result of a computation, unless refresh was called after it began: it may be
// based on older data.
func (a *answers) set(c computation, is *entry) {
	if a.epoch != c.epoch {
		return
	}
	if a.byName == nil {
		a.byName = map[nameKey]answer{}
	}
	a.byName[c.key] = answer{of: c.of, is: is}
}

func (a *answers) forget(key nameKey) { delete(a.byName, key) }

// refresh discards the answer for a name, so that it is computed again.
func (a *answers) refresh(key nameKey) {
	a.epoch++
	a.forget(key)
}

// computation is an entry to compute for a client.
type computation struct {
	sub   *subscription
	key   nameKey
	of    *entry
	epoch uint64
}

// collectComputed computes the computed resources that are due, without a lock, and then calls
// collect, with Store.mu held for reading, to collect everything that is due for a push. No other
// change may reach the client before the constraints that it must subscribe with.
func (s *stream) collectComputed(collect func()) {
	for {
		todo := s.collectIfComputed(collect)
		if len(todo) == 0 {
			return
		}
		for _, c := range todo {
			is := c.of.computed.answer(s.node)
			s.mu.Lock()
			c.sub.answers.set(c, is)
			s.mu.Unlock()
		}
	}
}

// collectIfComputed calls collect, in the turn of the stream, unless there is something to compute first, which it returns.
func (s *stream) collectIfComputed(collect func()) []computation {
	s.usage.peer.enter()
	defer s.usage.peer.leave()
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	todo := s.computations()
	if len(todo) == 0 {
		collect()
	}
	return todo
}

// computations returns what is due and not computed yet. The caller holds Store.mu.
func (s *stream) computations() []computation {
	if s.released {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var todo []computation
	for _, sub := range s.dueSubs {
		t := s.store.tables[sub.typeURL]
		if t == nil || !t.computes {
			continue
		}
		sub.pending.promote(s.store.pace.due)
		for tp := range sub.pending.topics {
			if !sub.named(tp) {
				continue
			}
			if e := sub.askOf(tp).choice; sub.answers.answerTo(tp.name, e) == unanswered {
				todo = append(todo, computation{sub, tp.name, e, sub.answers.epoch})
			}
		}
	}
	return todo
}

// RefreshDPDS makes the streams call the function of [Tx.SetDPDS] again, without waiting for that:
// for one name or, if it is empty, for all, and for the clients whose nodes affected accepts or, if
// it is nil, for all. Only clients whose answer changed are sent anything. affected is called
// without locks.
func (s *Store) RefreshDPDS(name string, affected func(*corepb.Node) bool) {
	for _, asked := range s.askedDPDS(name) {
		if affected != nil && !affected(asked.sub.stream.node) {
			continue
		}
		asked.sub.refresh(asked.topic)
	}
}

type askedTopic struct {
	sub   *subscription
	topic topic
}

// askedDPDS returns the subscriptions to computed resources.
func (s *Store) askedDPDS(name string) []askedTopic {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := s.tables[dynparam.MapTypeURL]
	if t == nil || !t.computes {
		return nil
	}
	var asked []askedTopic
	for key, asks := range t.asks {
		if name != "" && key != keyOf(name) {
			continue
		}
		for _, a := range asks {
			if a.choice == nil || a.choice.computed == nil {
				continue
			}
			for sub := range a.subscriptions() {
				asked = append(asked, askedTopic{sub, sub.topicOf(a)})
			}
		}
	}
	return asked
}

// refresh makes a computed resource due again.
func (sub *subscription) refresh(tp topic) {
	s := sub.stream
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released || !sub.named(tp) {
		return
	}
	sub.answers.refresh(tp.name)
	sub.pending.add(tp, false)
	s.markDue(sub)
}
