package controlplane

import (
	"fmt"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Constraints is a function that says which constraints a client has to
// subscribe with, by type of resource. The node is the one of the stream's first
// request, nil if that had none; it must not be changed.
//
// It is called without any lock held, by several goroutines at a time, and only
// the one stream waits for it. It should be quick all the same, and it must not
// panic.
type Constraints func(node *corepb.Node) (dynparam.ByType, error)

// computed is a resource that is made for each client: DPDS's.
type computed struct {
	name string
	of   Constraints
}

// answer makes the resource for a client, or the error in its place. The error
// of the function is sent as it is, as a status.
func (c *computed) answer(node *corepb.Node) *entry {
	constraints, err := c.of(node)
	var r *Resource
	if err == nil {
		r, err = newResource(c.name, dynparam.Parameters{}, constraints.ToProto())
	}
	if err == nil {
		return &entry{resource: r}
	}
	st := status.Convert(err)
	if st.Code() == codes.OK {
		st = status.New(codes.Unknown, err.Error())
	}
	e, err := newResourceError(c.name, st)
	if err != nil {
		e, _ = newResourceError(c.name, status.New(codes.Internal, fmt.Sprintf("the error of %q cannot be sent", c.name)))
	}
	return &entry{err: e}
}

// answers are what computed resources are for one client. stream.mu guards them.
type answers struct {
	byName map[nameKey]answer
	// epoch counts how often the answers were said to be out of date.
	epoch uint64
}

// answer is what a computed resource was for one subscription.
type answer struct {
	// of is the entry that was asked.
	of *entry
	is *entry
}

// unanswered stands for a computed resource that has no answer yet.
var unanswered = &entry{}

// answerTo returns what e is for the client.
func (a *answers) answerTo(key nameKey, e *entry) *entry {
	if e == nil || e.computed == nil {
		return e
	}
	if known, ok := a.byName[key]; ok && known.of == e {
		return known.is
	}
	return unanswered
}

// set stores the answer of a computation, unless the answers were said to be out of date
// after it began: it may be made of older data.
func (a *answers) set(c computation, is *entry) {
	if a.epoch != c.epoch {
		return
	}
	if a.byName == nil {
		a.byName = map[nameKey]answer{}
	}
	a.byName[c.key] = answer{of: c.of, is: is}
}

// forget drops the answer for a name.
func (a *answers) forget(key nameKey) { delete(a.byName, key) }

// refresh makes the client's answer for a name be computed again.
func (a *answers) refresh(key nameKey) {
	a.epoch++
	a.forget(key)
}

// computation is a resource to be made for a client.
type computation struct {
	sub   *subscription
	key   nameKey
	of    *entry
	epoch uint64
}

// collectComputed calls collect, which collects what is due for a push, once every computed
// resource that is due has been made for the stream's client. They are made without a lock,
// and first: no other change may reach the client before the constraints that it is to
// subscribe with.
//
// collect holds Store.mu for reading.
func (s *stream) collectComputed(collect func()) {
	for {
		s.store.mu.RLock()
		todo := s.computations()
		if len(todo) == 0 {
			collect()
		}
		s.store.mu.RUnlock()
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

// computations returns what is due and has to be made. The caller holds Store.mu.
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
		for tp := range sub.pending.topics {
			if !sub.named(tp) {
				continue
			}
			if e := t.asks[tp.name][sub.askKey(tp)].choice; sub.answers.answerTo(tp.name, e) == unanswered {
				todo = append(todo, computation{sub, tp.name, e, sub.answers.epoch})
			}
		}
	}
	return todo
}

// RefreshDPDS calls the functions of [Tx.SetDPDS] again, for a name or, if it is
// empty, for all of them, and for the clients whose nodes affected accepts, or,
// if it is nil, for all. Clients whose answer changed are sent the new one;
// nobody else is sent anything. affected is called without any lock held.
//
// RefreshDPDS does not wait for the functions, which the streams call.
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

// askedDPDS returns who asked for computed resources.
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
			for sub := range a.subs {
				asked = append(asked, askedTopic{sub, sub.topicOf(key, a)})
			}
		}
	}
	return asked
}

// refresh has the answer computed again, and makes it due.
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
