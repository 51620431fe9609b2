package xdsclient

import (
	"bytes"
	"iter"
	"slices"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// resourceKey identifies a cache entry within an authority.
type resourceKey struct {
	typ  *ResourceType
	name string
	// variant tells the entries of one name apart (xRFC TP2). It is the key of the
	// constraints that the entry is watched with, or, of the member of a
	// collection, that of its dynamic parameters.
	variant string
}

// resourceState is the state of a cache entry, as gRFC A88 ("Cache Entry
// States") has it. Whether there is a value beside it is another question.
type resourceState int

const (
	// resourceRequested: the server has said nothing yet.
	resourceRequested resourceState = iota
	// resourceAccepted: the last version the server sent is valid.
	resourceAccepted
	// resourceRejected: the last version the server sent is invalid.
	resourceRejected
	// resourceMissing: the server does not have the resource.
	resourceMissing
	// resourceTimedOut: the server did not send the resource in time, and that
	// does not mean that it has none.
	resourceTimedOut
	// resourceFailed: the server sent an error in place of the resource (xRFC
	// TP3).
	resourceFailed
)

// payload is an accepted version of a resource. It is immutable.
type payload struct {
	// raw is what the server sent, the only copy that is kept.
	raw   []byte
	value any
	// server is who sent it.
	server *bootstrap.Server
}

// of reports whether the payload is what the bytes mean that come from a server.
// ResourceType.Decode may go by the features of the server, and by which it is only
// if the value is ServerBound.
func (p *payload) of(server *bootstrap.Server) bool {
	if p.server == server {
		return true
	}
	if b, ok := p.value.(ServerBound); ok && b.ServerBound() {
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

// same reports whether two versions, each of which may be nil, mean the same.
func (p *payload) same(q *payload) bool {
	if p == nil || q == nil {
		return p == q
	}
	return p.is(q.raw, q.server)
}

// is reports whether the payload, which may be nil, is what bytes from a server mean.
func (p *payload) is(raw []byte, server *bootstrap.Server) bool {
	return p != nil && p.of(server) && bytes.Equal(p.raw, raw)
}

// from returns the payload as one that a server sent.
func (p *payload) from(server *bootstrap.Server) *payload {
	if p.server == server {
		return p
	}
	return &payload{raw: p.raw, value: p.value, server: server}
}

// resource is one cache entry: what is known of a resource, and who watches it.
// Guarded by XDSClient.mu.
//
// The methods that change it tell the watchers what gRFC A88 wants them told; d
// is the response that caused the change, or nil.
type resource struct {
	key   resourceKey
	level *level
	// constraints choose among the variants of the resource, or of the members of
	// the collection.
	constraints dynparam.Constraints
	// parameters are those of a member.
	parameters dynparam.Parameters
	state      resourceState
	// payload is the version in use, or nil. taken is when the server last sent
	// it, and what it called its version; it may change while the bytes do not.
	payload *payload
	taken   stamp
	// fault is why state is neither requested nor accepted.
	fault *Error
	// link is the standing connectivity error, or nil. It comes before fault.
	link *Error
	// watches are those that hear of the entry, and those that stand by: they hear of
	// one of a level below. standby counts the latter.
	watches []*watch
	standby int
	// members are the members of a collection. It is nil for all else.
	members map[resourceKey]*resource
	// collection is that which the resource is a member of, or nil. A member is
	// watched by the watches of its collection, and by them only.
	collection *resource
	// saidIgnored stands for what the ignoredLog last said of it; 0: nothing.
	saidIgnored uint64
}

func newResource(l *level, key resourceKey, constraints dynparam.Constraints) *resource {
	r := &resource{key: key, level: l, constraints: constraints}
	if isCollection(key.name) {
		r.members = make(map[resourceKey]*resource)
	}
	return r
}

func (r *resource) client() *XDSClient { return r.level.authority.client }

// audience iterates those who hear of the resource.
func (r *resource) audience() iter.Seq[*watch] {
	if r.collection != nil {
		r = r.collection
	}
	return func(yield func(*watch) bool) {
		for _, w := range r.watches {
			if w.resource == r && !yield(w) {
				return
			}
		}
	}
}

// heard reports whether somebody hears of the resource.
func (r *resource) heard() bool { return len(r.watches) > r.standby }

// aside reports whether all that watch the resource stand by.
func (r *resource) aside() bool { return r.standby > 0 && !r.heard() }

// standBy notes that a watch of the resource stands by.
func (r *resource) standBy() {
	r.standby++
	r.level.channel.typeState(r.key.typ).Disturb()
}

// join adds a watcher and tells it what others know: the value, and then the
// standing error (gRFC A88, "New Watchers Started After Ambient Errors"); of a
// collection first those of the members.
func (r *resource) join(w *watch) {
	w.resource = r
	r.watches = append(r.watches, w)
	r.recountAll(w, nil)
}

// recountAll has a watcher be told all there is to tell of a resource and its members.
func (r *resource) recountAll(w *watch, d *delivery) {
	told := r.recount(w, d)
	for _, m := range r.members {
		told = m.recount(w, d) || told
	}
	if told {
		r.client().dispatcher.enqueue(w)
	}
}

// standing returns the standing error, or nil.
func (r *resource) standing() *Error {
	if r.link != nil {
		return r.link
	}
	return r.fault
}

// recount has a watcher be told all there is to tell of a resource. It reports
// whether there is anything.
func (r *resource) recount(w *watch, d *delivery) bool {
	standing := r.standing()
	switch {
	case r.payload != nil:
		w.tellChangeOf(r, nil, d)
		if standing != nil {
			w.tellAmbientOf(r, standing, d)
		}
	case standing != nil:
		w.tellChangeOf(r, standing, d)
	default:
		return false
	}
	return true
}

// leave removes a watcher.
func (r *resource) leave(w *watch) {
	r.watches = slices.DeleteFunc(r.watches, func(x *watch) bool { return x == w })
}

// take takes a valid version. If it is the one in use, even of another variant,
// watchers hear of it only if they heard of an error since, which it clears.
func (r *resource) take(p *payload, taken stamp, d *delivery) {
	same := r.payload.same(p)
	r.payload, r.taken = p, taken
	if !same {
		r.client().ignored.add(r)
	}
	if same && r.state == resourceAccepted && r.link == nil {
		return
	}
	r.state, r.fault, r.link = resourceAccepted, nil, nil
	r.tellChange(nil, d)
}

// lastError is what fail notes.
type lastError struct {
	state resourceState
	fault *Error
	drop  bool
}

// fail notes that the server's last word on the resource is an error. If drop is
// set, the version in use is withdrawn.
func (r *resource) fail(state resourceState, fault *Error, drop bool, d *delivery) {
	known := r.state == state && r.link == nil && r.fault.same(fault)
	withdrawn := drop && r.payload != nil
	r.state, r.fault, r.link = state, fault, nil
	if drop {
		r.payload, r.taken = nil, stamp{}
	}
	if !known || withdrawn {
		r.tellError(fault, d)
	}
}

// linkDown says that the server cannot be reached.
func (r *resource) linkDown(err *Error) {
	r.link = err
	r.tellError(err, nil)
}

// linkUp says that the server answers again. Watchers hear again what held before
// it was lost; those that knew nothing before know nothing now.
func (r *resource) linkUp() {
	if r.link == nil {
		return
	}
	r.link = nil
	switch {
	case r.fault != nil:
		r.tellError(r.fault, nil)
	case r.payload != nil:
		r.tellChange(nil, nil)
	}
}

// tellError tells all watchers of an error: an ambient one if there is a value,
// or else instead of a value.
func (r *resource) tellError(err *Error, d *delivery) {
	if r.payload == nil {
		r.tellChange(err, d)
		return
	}
	for w := range r.audience() {
		w.tellAmbientOf(r, err, d)
		r.client().dispatcher.enqueue(w)
	}
}

// tellChange tells all watchers what the resource is: err, or the payload.
func (r *resource) tellChange(err *Error, d *delivery) {
	for w := range r.audience() {
		w.tellChangeOf(r, err, d)
		r.client().dispatcher.enqueue(w)
	}
}
