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
	// stop ends the watch.
	stop func()
	// demand is the demand that the subscription is for; nil while it lingers.
	demand *controlplane.Demand
	linger *time.Timer

	// raw is the resource, and err why there is none, or the last error for the resource in
	// use.
	raw *resource
	err *xdsclient.Error
	// expiry is the TTL of raw.
	expiry expiry
	// refused is set if a limit was reached, so that upstream is not asked. free gives back what the
	// subscription has of the limits, or stops it from waiting for that.
	refused bool
	free    func()
	// stopped is set when the watch has ended, though it may still be called.
	stopped bool
	// collection has the members of a collection, or is nil.
	collection *collection
	// begun is when the relay subscribed, and late fires when it has waited long enough for
	// management servers that are unreachable.
	begun time.Time
	late  *time.Timer
	// renewed is set if upstream has sent the same resource again, and nothing else.
	renewed bool
	// away is set while the management servers are unreachable, since awaySince.
	away      bool
	awaySince time.Time
}

// newSubscription subscribes to the resource of a demand. A subscription that cannot begin has an error.
// The caller holds g.mu.
func (g *group) newSubscription(key subscriptionKey, d *controlplane.Demand) *subscription {
	s := &subscription{group: g, key: key, stop: func() {}, free: func() {}, begun: time.Now()}
	s.subscribe(d)
	return s
}

// subscribe is for newSubscription, and for retry.
func (s *subscription) subscribe(d *controlplane.Demand) {
	g := s.group
	s.free = func() {}
	up, typ, err := g.upstreamFor(s, d)
	if s.refused = err != nil; s.refused {
		s.refuse(status.Convert(err))
		g.relay.warnRefused(err)
		return
	}
	s.err = nil
	if d.Collection() {
		s.collection = newCollection(s)
		s.stop = up.client.WatchCollectionLocator(typ, d.Name, d.Constraints, s.collection)
		return
	}
	s.stop = up.client.WatchLocator(typ, d.Name, d.Constraints, s)
}

// refuse has the subscribers get an error without upstream being asked.
func (s *subscription) refuse(st *status.Status) {
	s.err = &xdsclient.Error{Kind: xdsclient.KindConfiguration, Code: st.Code(), Resource: s.key.name, Err: st.Err()}
}

// isKnown reports whether upstream has answered.
func (s *subscription) isKnown() bool {
	return s.raw != nil || s.err != nil || s.collection != nil && s.collection.complete
}

// worthKeeping reports whether the subscription may linger: it has something, that others may get.
func (s *subscription) worthKeeping() bool {
	if s.key.stream != 0 {
		return false
	}
	return s.raw != nil && !s.raw.DoNotCache || s.collection != nil && s.collection.complete
}

// close ends the watch.
func (s *subscription) close() {
	stopTimer(&s.linger)
	stopTimer(&s.late)
	s.expiry.stop()
	s.stopped = true
	s.stop()
	s.free()
}

// endLinger notes that the subscription does not linger any more.
func (s *subscription) endLinger() {
	g := s.group
	if _, lingers := g.lingering[s]; lingers {
		delete(g.lingering, s)
		g.relay.lingering.Add(-1)
	}
}

// drop ends the subscription.
func (s *subscription) drop() {
	s.close()
	delete(s.group.subs, s.key)
	s.endLinger()
	s.group.noteVariant(s, nil)
	delete(s.group.dirty, s)
	s.collection.disband()
	s.group.forgetReach(s)
	s.group.flushLater()
}

// ResourceChanged implements xdsclient.Watcher.
func (s *subscription) ResourceChanged(value any, err error, done func()) {
	s.noted(done, func() {
		e := asError(err)
		s.group.noteReach(s, e)
		if s.away && s.err != nil { // the last answer still holds
			return
		}
		raw, _ := value.(*resource)
		s.renewed = s.err == nil && !s.expiry.expired && raw.repeats(s.raw)
		s.group.noteVariant(s, raw)
		s.raw, s.err = raw, e
		s.restartExpiry()
	})
}

// AmbientError implements xdsclient.Watcher.
func (s *subscription) AmbientError(err error, done func()) {
	s.noted(done, func() {
		e := asError(err)
		s.group.noteReach(s, e)
		if !s.away {
			s.err = e
		}
	})
}

func asError(err error) *xdsclient.Error {
	e, _ := err.(*xdsclient.Error) // as xdsclient.Watcher promises
	return e
}

// restartExpiry starts the TTL of raw.
func (s *subscription) restartExpiry() {
	s.expiry.restart(s.group, s.raw, func() { s.group.dirty[s] = struct{}{} })
}

// outcome is the answer that the subscribers of a demand get.
type outcome int

const (
	// undecided: nothing for now. Upstream has not answered, or is unreachable and may come back soon.
	undecided outcome = iota
	// failed: an error in place of the resource or the collection.
	failed
	// absent: there is no resource; or the collection has the members that it has.
	absent
	// renewed: upstream has extended the TTL of the resource, and changed nothing else.
	renewed
	// present: there is a resource.
	present
)

// outcome returns the answer that the subscribers get now, with the error for failed.
func (s *subscription) outcome() (outcome, *status.Status) {
	if s.waits() {
		return undecided, nil
	}
	if st := s.errorToPass(); st != nil {
		if !s.demand.Collection() || s.demand.Name != "*" || s.refused {
			return failed, st
		}
		return s.wildcardOutcome()
	}
	switch complete := s.collection != nil && s.collection.complete; {
	case s.expiry.expired, s.raw == nil && s.err != nil, s.raw != nil && s.removed(), complete:
		return absent, nil
	case s.raw == nil:
		return undecided, nil
	case s.renewed && s.raw.TTL > 0:
		return renewed, nil
	default:
		return present, nil
	}
}

// wildcardOutcome is the outcome of a demand for a wildcard that upstream has an error for. Clients wait while
// upstream only is away.
func (s *subscription) wildcardOutcome() (outcome, *status.Status) {
	if s.err.Kind != xdsclient.KindConfiguration {
		return undecided, nil
	}
	st := errNoWildcards(s.err)
	s.group.relay.warnWildcards.Do(func() {
		s.group.relay.log.Warn("ending the stream of a client that subscribes to a wildcard, which the relay does not serve", "error", st.Err())
	})
	return failed, st
}

// answer returns the change of the store that answers the demand, or nil if there is none. The
// caller holds g.mu; the change is made without it.
func (s *subscription) answer() func(*controlplane.Tx) {
	d := s.demand
	if d == nil {
		return nil
	}
	switch what, st := s.outcome(); what {
	case failed:
		return func(tx *controlplane.Tx) { tx.AnswerError(d, st) }
	case absent:
		return func(tx *controlplane.Tx) { tx.Answer(d, nil) }
	case renewed, present:
		m, parameters, beside := s.raw.as(d.Name), s.raw.Parameters.Map(), s.beside()
		return func(tx *controlplane.Tx) {
			if answerResource(tx, d, m, beside); what == renewed {
				tx.Renew(d.TypeURL, d.Name, parameters)
			}
		}
	default:
		return nil
	}
}

// waits reports whether the error that the management servers are unreachable is withheld from the
// subscribers for now. A client that gets it goes on without the resource; one that does not keeps the
// configuration that it has.
func (s *subscription) waits() bool {
	if s.raw != nil || s.err == nil || s.err.Kind != xdsclient.KindUnreachable {
		return false
	}
	return s.isEarly(s.begun)
}

// isEarly reports whether the relay has not waited long enough, since some time, for management servers that are unreachable. It looks
// again when it has.
func (s *subscription) isEarly(since time.Time) bool {
	left := s.group.relay.opts.AwayDelay - time.Since(since)
	if left <= 0 {
		return false
	}
	if s.late == nil {
		s.group.after(&s.late, left, func() {
			s.late = nil
			s.group.dirty[s] = struct{}{}
			s.group.flushLater()
		})
	}
	return true
}

// beside returns the error that the subscribers get beside the resource, so that they know that it may be old: that the management
// servers are unreachable. It is nil if there is none. A RouteConfiguration is enough: each client has few of them, and over SotW a
// response may leave others out.
func (s *subscription) beside() *status.Status {
	if !s.away || s.key.typeURL != typeurl.RouteConfiguration || s.isEarly(s.awaySince) {
		return nil
	}
	return errAlone
}

// removed reports whether upstream no longer has the resource that is still in use. Clients decide
// themselves what becomes of it (gRFC A88).
func (s *subscription) removed() bool {
	return s.err != nil && s.err.Kind == xdsclient.KindDoesNotExist
}

// errorToPass returns the error that the subscribers get in place of a resource, or nil. An error
// of the server is passed on as it is. That it is unreachable, is late or has sent something that is no
// resource concerns only subscribers of resources that the relay does not have.
func (s *subscription) errorToPass() *status.Status {
	if s.err == nil {
		return nil
	}
	st, sent := s.err.Status()
	switch {
	case s.raw != nil && s.err.Kind == xdsclient.KindUnreachable: // it goes beside the resource
		return nil
	case sent:
		return st
	case s.err.Kind == xdsclient.KindDoesNotExist, s.raw != nil, s.collection != nil && s.collection.complete:
		return nil
	case s.err.Kind == xdsclient.KindConfiguration && s.err.Server == "" && s.err.TypeName == "":
		return status.Convert(s.err.Err) // of refuse
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
