package xdsclient

import (
	"bytes"
	"cmp"
	"slices"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// resourceKey identifies a cache entry within an authority.
type resourceKey struct {
	typ  *ResourceType
	name string
	// variant distinguishes the entries of one name (xRFC TP2). It is the key of the
	// constraints of the watches or, for the member of a collection, of its dynamic parameters.
	variant string
}

// payload is an accepted version of a resource. It is immutable.
type payload struct {
	// raw is the only copy of the server's bytes that is kept. enveloped says that it is the resource in its
	// envelope (ResourceType.Renew).
	raw       []byte
	enveloped bool
	value     any
	// server is the one that sent it.
	server *bootstrap.Server
}

// validFrom reports whether the same bytes from a server mean the same. ResourceType.Decode may go
// by the features of the server, and by which one it is only if the value has a method ServerBound that says so.
func (p *payload) validFrom(server *bootstrap.Server) bool {
	if p.server == server {
		return true
	}
	if b, ok := p.value.(interface{ ServerBound() bool }); ok && b.ServerBound() {
		return p.server.Key() == server.Key()
	}
	return decodesAs(p.server, server) && decodesAs(server, p.server)
}

// decodesAs reports whether b has the features of a that a decoder may go by.
func decodesAs(a, b *bootstrap.Server) bool {
	return !slices.ContainsFunc(a.Features, func(f bootstrap.Feature) bool {
		return f != bootstrap.FeatureDelta && f != bootstrap.FeatureDynamicParameterConstraints && !b.HasFeature(f)
	})
}

// same reports whether two versions mean the same. Each may be nil.
func (p *payload) same(q *payload) bool {
	if p == nil || q == nil {
		return p == q
	}
	return p.is(q.raw, q.server)
}

// resource returns the resource without its envelope.
func (p *payload) resource(t *ResourceType) *anypb.Any {
	raw := p.raw
	if p.enveloped {
		raw = wire.ParseWrapper(raw, t.TypeURL).Value
	}
	return &anypb.Any{TypeUrl: t.TypeURL, Value: raw}
}

// of reports whether the payload is the meaning of an item from a server. It may be nil.
func (p *payload) of(it *item, server *bootstrap.Server) bool {
	return !it.renews() && p.is(it.bytes(), server)
}

// is reports whether the payload is the meaning of bytes from a server. It may be nil.
func (p *payload) is(raw []byte, server *bootstrap.Server) bool {
	return p != nil && p.validFrom(server) && bytes.Equal(p.raw, raw)
}

// from returns the payload as one that a server sent.
func (p *payload) from(server *bootstrap.Server) *payload {
	if p.server == server {
		return p
	}
	return &payload{p.raw, p.enveloped, p.value, server}
}

// resource is one cache entry: the state of a resource, as the server says that its authority follows, and its watches.
// Guarded by XDSClient.mu.
//
// The methods that change it report to the watchers as gRFC A88 requires. Their parameter d is
// the response that caused the change, or nil.
type resource struct {
	key       resourceKey
	authority *authority
	// constraints choose among the variants of the resource, or of the members of
	// the collection.
	constraints dynparam.Constraints
	// parameters identify a member.
	parameters dynparam.Parameters
	// lastAnswer may be in part from another server, or from disk, that the authority followed before.
	lastAnswer
	// link is the connectivity error while no server can be reached, or nil. It hides err.
	link    *Error
	watches []*watch
	// restoring says that it is about to come from disk.
	restoring bool
	// subscriptions counts those of the servers. Those of a member are not counted.
	subscriptions int
	// members are the members of a collection; otherwise it is nil. A member that the server has not sent comes from an earlier
	// stream, another server or disk. It leaves when the server has answered for the collection without it.
	members map[resourceKey]*resource
	// memberOf is the collection that the resource is a member of, or nil. A member is
	// watched by the watches of its collection, and by no others.
	memberOf *resource
}

func newResource(a *authority, key resourceKey, constraints dynparam.Constraints) *resource {
	r := &resource{key: key, authority: a, constraints: constraints}
	if isCollection(key.name) {
		r.members = make(map[resourceKey]*resource)
	}
	return r
}

func (r *resource) client() *XDSClient { return r.authority.client }

// isCollection reports whether the entry stands for a collection.
func (r *resource) isCollection() bool { return r.members != nil }

// watchedEntry returns the entry that has the watches of the resource: for a member, that of its collection.
func (r *resource) watchedEntry() *resource { return cmp.Or(r.memberOf, r) }

// audience returns the watches that use the resource.
func (r *resource) audience() []*watch { return r.watchedEntry().watches }

// watched reports whether there is a watch of the resource. Nobody watches a member by itself.
func (r *resource) watched() bool { return len(r.watches) > 0 }

// cached reports whether there is an answer that would still hold if no server could be
// reached: a version that a server sent, or that the resource does not exist (gRFC A71), or not for this
// client.
func (r *resource) cached() bool {
	return r.payload != nil && !r.taken.stored || r.err.final()
}

// addWatch adds a watch and queues the same as for other watches: the value, and then the
// current error (gRFC A88, "New Watchers Started After Ambient Errors").
func (r *resource) addWatch(w *watch) {
	w.resource = r
	r.watches = append(r.watches, w)
	r.queueAllStates(w, nil)
}

// queueAllStates queues the state of a resource and of its members for a watcher.
func (r *resource) queueAllStates(w *watch, d *delivery) {
	r.queueState(w, d)
	for _, m := range r.members {
		m.queueState(w, d)
	}
}

// currentError returns the error that watchers have, or nil.
func (r *resource) currentError() *Error { return cmp.Or(r.link, r.err) }

// queueState queues the state of a resource for a watcher, if something is known.
func (r *resource) queueState(w *watch, d *delivery) {
	err := r.currentError()
	switch {
	case r.payload != nil:
		w.queueChange(r, nil, d)
		if err != nil {
			w.queueAmbientError(r, err, d)
		}
	case err != nil && !r.authority.disk.restore(r):
		w.queueChange(r, err, d)
	}
}

// accept notes a valid version. If it is the one in use, even of another variant, it is
// reported only if an error was reported since, which it clears, or if there is a TTL.
func (r *resource) accept(p *payload, taken stamp, d *delivery) {
	if r.take(p, taken) {
		r.reportChange(nil, d)
	}
}

// take notes a valid version, and reports whether there is something to report.
func (r *resource) take(p *payload, taken stamp) bool {
	same := r.payload.same(p) && taken.ttl == 0 && r.taken.ttl == 0
	changed := !same || r.state() != StateACKed
	if changed {
		r.recordAccepted(taken)
	}
	if changed || taken.volatile != r.taken.volatile {
		r.client().diskWriter.changed(r, taken)
	}
	changed = changed || r.link != nil
	r.lastAnswer, r.link = lastAnswer{p, taken, nil}, nil
	return changed
}

// adopt takes over what a server has answered that the authority follows from now on. As far as it has
// not answered, what is in use stays. Watchers are called for the difference.
func (r *resource) adopt(s *subscription, d *delivery) {
	before, errBefore := r.payload, r.currentError()
	r.link = nil
	if s.payload != nil {
		r.take(s.payload, s.taken)
	}
	if s.err != nil {
		r.note(s.err)
		r.client().diskWriter.refused(r, s.err)
		if s.err.withdraws {
			r.disband(s.err, d)
		}
	}
	err := r.currentError()
	switch {
	case !r.payload.same(before):
		for _, w := range r.audience() {
			r.queueState(w, d)
		}
	case err == nil && errBefore == nil || err.same(errBefore):
	case err == nil && r.payload == nil: // nothing is known
	case err == nil:
		r.reportChange(nil, d)
	default:
		r.reportError(err, d)
	}
}

// fail notes an error, the last answer of the server for the resource.
func (r *resource) fail(err *Error, d *delivery) {
	known := r.state() == err.state && r.link == nil && r.err.same(err)
	withdrawn := err.withdraws && r.payload != nil
	if !known || withdrawn {
		r.recordFailure(err)
	}
	r.link = nil
	r.note(err)
	r.client().diskWriter.refused(r, err)
	if !known || withdrawn {
		r.reportError(err, d)
	}
}

// setLinkError notes that no server can be reached.
func (r *resource) setLinkError(err *Error) {
	r.link = err
	r.reportError(err, nil)
}

// clearLinkError notes that the server answers again, and reports again the state from before.
// Nothing is reported where nothing was known.
func (r *resource) clearLinkError() {
	if r.link == nil {
		return
	}
	r.link = nil
	switch {
	case r.err != nil:
		r.reportError(r.err, nil)
	case r.payload != nil:
		r.reportChange(nil, nil)
	}
}

// reportError reports an error to all watchers: as an ambient error if a version is in use,
// and otherwise instead of a value, unless there is one on disk: then the error is told after it.
func (r *resource) reportError(err *Error, d *delivery) {
	if r.payload == nil {
		if !r.authority.disk.restore(r) {
			r.reportChange(err, d)
		}
		return
	}
	for _, w := range r.audience() {
		w.queueAmbientError(r, err, d)
	}
}

// reportChange reports the resource to all watchers: err, or the version in use.
func (r *resource) reportChange(err *Error, d *delivery) {
	for _, w := range r.audience() {
		w.queueChange(r, err, d)
	}
}
