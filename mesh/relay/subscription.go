package relay

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient"
)

// subscription is one subscription upstream, to a resource or to a collection, and the last that
// upstream sent. It implements xdsclient.Watcher. Guarded by group.mu.
type subscription struct {
	group *group
	key   subscriptionKey
	// demand is the demand that the subscription is for; nil while it lingers.
	demand *controlplane.Demand
	linger *time.Timer
	// stop ends the watch, and gives back what the subscription has of the limits; nil if upstream is not asked.
	stop func()

	// held has the resource, and err is why there is none, or the last error for the resource in use.
	held
	err *xdsclient.Error
	// members are those that a collection has upstream, and complete is set when upstream has answered for it as a whole.
	members  map[memberKey]struct{}
	complete bool
	// awaySince is since when the management servers are unreachable, zero if they are not. late fires when that is told to subscribers.
	awaySince time.Time
	late      *time.Timer
}

// subscribe subscribes to the resource of the demand, unless a limit is reached. The caller holds g.mu.
func (s *subscription) subscribe() {
	g, d := s.group, s.demand
	client, typ, free, err := g.upstreamFor(d)
	if err != nil {
		g.tryAgain(s, status.Convert(err))
		g.relay.warn("subscriptions refused: limit reached", "error", err)
		return
	}
	delete(g.refused, s)
	var stop func()
	if d.Collection() {
		s.members = make(map[memberKey]struct{})
		stop = client.WatchCollectionLocator(typ, d.Name, d.Constraints, collection{s})
	} else {
		stop = client.WatchLocator(typ, d.Name, d.Constraints, s)
	}
	s.stop = func() {
		stop()
		free()
	}
}

// isKnown reports whether there is an answer.
func (s *subscription) isKnown() bool {
	return s.group.refused[s] != nil || s.raw != nil || s.err != nil || s.complete
}

// worthKeeping reports whether the subscription may linger: it has something, that others may get.
func (s *subscription) worthKeeping() bool {
	return s.key.stream == 0 && (s.raw != nil && !s.raw.DoNotCache || s.complete)
}

// close ends the watch.
func (s *subscription) close() {
	s.endLinger()
	stopTimer(&s.late)
	stopTimer(&s.ttl)
	delete(s.group.refused, s)
	if s.stop != nil {
		s.stop()
	}
	if s.isAway() {
		s.isBack("no subscriptions left on the unreachable control plane: the clients that waited for it have gone")
	}
}

// endLinger ends the time without a demand.
func (s *subscription) endLinger() {
	stopTimer(&s.linger)
	if _, lingers := s.group.lingering[s]; lingers {
		delete(s.group.lingering, s)
		s.group.relay.lingering.Give(s.group, 1)
	}
}

// drop ends the subscription.
func (s *subscription) drop() {
	s.close()
	s.disband()
	delete(s.group.subs, s.key)
	delete(s.group.dirty, s)
	s.group.flushLater()
}

// noted is the call of a watcher with an error or none: note notes the change of a subscription, unless that has ended. The management
// server is not read further until the store has the change, and done is called.
func (s *subscription) noted(err error, done func(), note func(*xdsclient.Error)) {
	g := s.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.subs[s.key] != s {
		done()
		return
	}
	e, _ := err.(*xdsclient.Error) // as xdsclient.Watcher promises
	note(e)
	g.done = append(g.done, done)
	g.changed(s, false)
}

// ResourceChanged implements xdsclient.Watcher.
func (s *subscription) ResourceChanged(value any, err error, done func()) {
	s.noted(err, done, func(e *xdsclient.Error) {
		s.noteReach(e)
		if s.isAway() && s.err != nil { // the last answer still holds
			return
		}
		raw, _ := value.(*resource)
		s.hold(s.group, s, raw, s.err != nil)
		s.err = e
	})
}

// AmbientError implements xdsclient.Watcher.
func (s *subscription) AmbientError(err error, done func()) {
	s.noted(err, done, func(e *xdsclient.Error) {
		s.noteReach(e)
		if !s.isAway() {
			s.err = e
		}
	})
}

// change implements answer.
func (s *subscription) change(tx *controlplane.Tx, renewed bool) {
	d := s.demand
	if d == nil || !s.isKnown() || s.waits() {
		return
	}
	st := s.errorToPass()
	if st != nil && s.group.refused[s] == nil && d.Collection() && d.Name == "*" {
		if s.err.Kind != xdsclient.KindConfiguration { // clients wait
			return
		}
		// TP3 has no errors for a wildcard, and without an answer they would wait for ever.
		st = status.Newf(codes.FailedPrecondition,
			`the xDS relay has no wildcard subscriptions, as they need the incremental protocol upstream: add "delta" to server_features in the relay's bootstrap if the control plane speaks it, or subscribe by names: %v`, s.err)
		s.group.relay.warn("ending the stream of a client that subscribes to a wildcard, which the relay does not serve", "error", st.Err())
	}
	switch {
	case st != nil:
		tx.AnswerError(d, st)
	case s.raw == nil, s.expired, s.err != nil && s.err.Kind == xdsclient.KindDoesNotExist: // clients decide themselves what becomes of it (gRFC A88)
		tx.Answer(d, nil)
	default:
		answerResource(tx, d, s.raw.as(d.Name), s.beside())
		if renewed {
			tx.Renew(d.TypeURL, d.Name, s.raw.Parameters.Map())
		}
	}
}

// waits reports whether the error that the management servers are unreachable is withheld from the
// subscribers for now. A client that gets it goes on without the resource; one that does not keeps the
// configuration that it has.
func (s *subscription) waits() bool {
	return s.raw == nil && s.err != nil && s.err.Kind == xdsclient.KindUnreachable && s.isEarly()
}

// beside returns the error that the subscribers get beside the resource, so that they know that it may be old: that the management
// servers are unreachable. It is nil if there is none. A RouteConfiguration is enough: each client has few of them, and over SotW a
// response may leave others out.
func (s *subscription) beside() *status.Status {
	if !s.isAway() || s.key.typeURL != typeurl.RouteConfiguration || s.isEarly() {
		return nil
	}
	return errAlone
}

// errorToPass returns the error that the subscribers get in place of a resource, or nil. An error
// of the server is passed on as it is. That it is unreachable, is late or has sent something that is no
// resource concerns only subscribers of resources that the relay does not have.
func (s *subscription) errorToPass() *status.Status {
	if refusal := s.group.refused[s]; refusal != nil || s.err == nil {
		return refusal
	}
	st, sent := s.err.Status()
	switch {
	case sent:
		return st
	case s.err.Kind == xdsclient.KindDoesNotExist, s.raw != nil, s.complete:
		return nil
	default:
		m := st.Proto()
		m.Message = "the xDS relay has nothing for this: " + s.err.Error()
		return status.FromProto(m)
	}
}

// answerResource answers a demand with a resource, and an error beside it unless that is nil. A resource that the store cannot hold is
// an error for the subscribers.
func answerResource(tx *controlplane.Tx, d *controlplane.Demand, m *discoverypb.Resource, beside *status.Status) {
	r, err := controlplane.NewResource(m)
	if err == nil && !d.Constraints.Match(r.Parameters()) {
		err = status.Errorf(codes.Internal, "the parameters %v do not match the constraints %v", r.Parameters(), d.Constraints)
	}
	if err != nil {
		tx.AnswerError(d, status.Newf(codes.Internal, "the xDS relay cannot forward the response of its control plane: %v", err))
		return
	}
	if beside == nil {
		tx.Answer(d, r)
	} else {
		tx.AnswerBeside(d, r, beside)
	}
}
