package xdsclient

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// typeState is a channel's state of one type: the subscriptions, which can be found in
// several ways, and the requests that are due for them. Guarded by XDSClient.mu.
type typeState struct {
	channel *managementServer
	typ     *ResourceType
	subs    *subscriptions
	// collections counts the subscriptions to collections.
	collections int
	// byCanonicalName finds subscriptions to aliases by the canonical names of their resources.
	byCanonicalName map[string][]*subscription
	// touched are the subscriptions that may have changed since the last request. It has no meaning before the first one.
	touched map[*subscription]struct{}
	// version is the last that was accepted as a whole. It outlives the stream.
	version string
	// limit is the size from which delta requests are split, in bytes.
	limit int
	// last is the outcome of the last response.
	last outcome
	requests
}

func newTypeState(t *ResourceType, ch *managementServer) *typeState {
	return &typeState{
		channel:         ch,
		typ:             t,
		subs:            newSubscriptions(),
		byCanonicalName: make(map[string][]*subscription),
		touched:         make(map[*subscription]struct{}),
		limit:           bounds.Request,
	}
}

// add starts a subscription.
func (ts *typeState) add(r *resource) *subscription {
	s := newSubscription(r, ts)
	ts.subs.add(s)
	ts.places = nil
	if s.isCollection() {
		ts.collections++
	}
	ts.touch(s)
	return s
}

// refuseUnserved reports to the watchers of a collection that the server has none.
func (s *subscription) refuseUnserved() {
	ts, ch := s.types, s.types.channel
	if ts.serves(s) {
		return
	}
	reason := errors.New(`collections need the incremental protocol, and server_features of the server does not have "delta"`)
	if ch.server.HasFeature(bootstrap.FeatureDelta) {
		reason = errors.New("collections need the incremental protocol, which the server does not implement")
	}
	s.step(ads.Forgotten)
	s.fail(ch.fault(KindConfiguration, s.resource, reason), nil)
}

// expire notes that the resource timer fired after a time (gRFC A88, "Changes to Resource Timer Behavior").
// That says nothing of a resource that is cached (gRFC A57), unless the server was asked for it
// again and sent its full state without it, also if the resource is from another server, or while its authority follows another server.
//
// Otherwise it says that the resource does not exist only if the server's answers do (saysAbsent). The timer
// runs over delta too: there are servers that name a missing resource only if they had it before, and clients
// are "encouraged to use a timeout" (Envoy, xDS protocol, "Knowing When a Requested Resource Does Not Exist").
//
// If the server has sent a variant of the name that matches, its silence may mean that variant: a
// server that goes by names does not see that it was asked again.
func (s *subscription) expire(after time.Duration) {
	ts, ch := s.types, s.types.channel
	ts.disturb()
	deleted := s.runOut() == ads.Tell && s.payload != nil || s.inherits() && ts.typ.FullStateInSotW && s.saysAbsent()
	if s.isCollection() && s.payload != nil {
		s.step(ads.Sent)
		s.cullMembers(nil)
	}
	if !ch.serves(s.resource) || s.resource.cached() && !deleted {
		return
	}
	if ts.channel.dialect.Locators {
		if other := s.otherVariant((*subscription).sent); other != nil {
			s.step(ads.Sent)
			s.accept(other.payload, other.taken, nil)
			return
		}
	}
	if l := s.resource.authority.disk; l.open() && (s.resource.taken.stored || l.restore(s.resource)) {
		return
	}
	if s.resource.authority.useOtherVariant(s.resource) {
		return
	}
	kind := KindTimeout
	text := "the server did not send it within %v"
	switch {
	case deleted || s.saysAbsent():
		s.step(ads.Denied)
		kind = KindDoesNotExist
		text = "does not exist: the server did not send it within %v"
	case ts.responses == 0:
		text += ", nor anything else of its type"
	}
	fault := ch.fault(kind, s.resource, fmt.Errorf(text, after))
	ch.client.warningf("a management server did not answer in time: %v", fault)
	fault.withdraws = deleted && ch.server.HasFeature(bootstrap.FeatureFailOnDataErrors)
	s.fail(fault, nil)
}

// runOut notes that the server did not send the resource in time. It has read the request by now.
func (s *subscription) runOut() ads.Effect {
	s.older, s.types.read = min(s.older, s.types.responses), max(s.types.read, s.request)
	return s.step(ads.TimedOut)
}

// saysAbsent reports whether the server's answers for the type, without the resource, say that it does not
// exist when the resource timer fires:
//
//	the server has sent                          the resource
//	nothing for the type on this stream          is late: the server is silent, whatever the protocol
//	delta responses                              is late: the server would name it as removed
//	SotW: the full state without it              does not exist
//	SotW: the full state, before it was asked    is late
//	SotW: other resources, if the type has none  does not exist (gRFC A57): there is no way to say so
//	                                             but an error (xRFC TP3)
func (s *subscription) saysAbsent() bool {
	ts := s.types
	switch {
	case ts.responses == 0, ts.channel.dialect.Incremental, ts.channel.server.HasFeature(bootstrap.FeatureResourceTimerIsTransientError):
		return false
	case ts.typ.FullStateInSotW:
		return s.older < ts.responses
	default:
		return true
	}
}

// forgetAnswers forgets what the server has sent for a subscription, and the version of the type.
func (ts *typeState) forgetAnswers(s *subscription) {
	ts.disturb()
	s.dropMembers()
	s.step(ads.Forgotten)
	s.lastAnswer = lastAnswer{}
	ts.version = ""
	s.refuseUnserved()
}

// dropMembers forgets the members of a collection.
func (s *subscription) dropMembers() {
	for m := range s.members.all() {
		m.drop()
	}
}

// drop forgets a member of a collection.
func (m *subscription) drop() {
	m.types.disturb()
	m.step(ads.Closed)
	m.types.subs.get(m.resource.memberOf.key).members.remove(m)
}

// drop ends a subscription. The cache entry goes too if it is not watched.
func (ts *typeState) drop(s *subscription) {
	ts.disturb()
	s.step(ads.Closed)
	delete(ts.touched, s)
	s.dropMembers()
	ts.setCanonicalName(s, "")
	ts.subs.remove(s)
	ts.places = nil
	if s.isCollection() {
		ts.collections--
	}
	s.resource.authority.forget(s.resource)
}

// versions returns the versions of the resources that the client has from this server, by their own names, as far as the
// request that is made lists their subscriptions.
//
// A version is left empty if the server would send nothing because of it, but should: if its last
// answer was an error, it may have returned to the version in use, which clears
// the error; if its TTL is over, it is no longer in use; and of several subscriptions that a resource is for, by its name or by
// its collection, none needs an answer only if all have the same version, as there is one version
// by name.
func (ts *typeState) versions() map[string]string {
	versions := make(map[string]string)
	var apart []string // have a subscription without a version
	for s := range ts.subs.all() {
		name := s.resource.key.name
		if s.payload == nil || !s.isListed() {
			apart = append(apart, name)
		}
		if !s.isListed() {
			continue
		}
		name = cmp.Or(s.canonical, name)
		ts.addVersion(versions, s, name)
		for m := range s.members.all() {
			ts.addVersion(versions, m, m.resource.key.name)
		}
	}
	for _, name := range apart {
		if _, ok := versions[name]; ok {
			versions[name] = ""
		}
	}
	return versions
}

// versionsSize is the size of the versions that versions returns for a subscription, in bytes.
func (ts *typeState) versionsSize(s *subscription) (size int) {
	const overhead = 10 // of tags and lengths
	if s.payload != nil && !s.isCollection() {
		size = max(len(s.resource.key.name), len(s.canonical)) + len(echo(s.taken.version)) + overhead
	}
	for m := range s.members.all() {
		size += len(m.resource.key.name) + len(echo(m.taken.version)) + overhead
	}
	return size
}

// echo returns a version as the server is told that the client has it. A very long one is not.
func echo(version string) string {
	if len(version) > bounds.EchoedVersion {
		return ""
	}
	return version
}

// addVersion adds the version that a subscription has from the server to versions.
func (ts *typeState) addVersion(versions map[string]string, s *subscription, name string) {
	if s.isCollection() || s.payload == nil {
		return
	}
	version := echo(s.taken.version)
	if other, ok := versions[name]; s.err != nil || s.taken.expired() || ok && other != version ||
		ts.collectionLacks(name, s.taken.parameters) {
		version = ""
	}
	versions[name] = version
}

// collectionLacks reports whether a resource is in a collection that does not have it from the server:
// one that is not answered, or only by resources that came for names, as the stream ended before the others.
func (ts *typeState) collectionLacks(name string, parameters dynparam.Parameters) bool {
	if ts.collections == 0 {
		return false
	}
	first, canonical := ts.collectionsOf([]byte(name))
	for c := range first.siblings() {
		if c.payload == nil {
			return true
		}
		if !c.resource.constraints.Match(parameters) {
			continue
		}
		m := c.members.get(resourceKey{typ: ts.typ, name: canonical, variant: parameters.Key()})
		if m == nil || m.payload == nil {
			return true
		}
	}
	return false
}

// setCanonicalName notes the canonical name of a resource that was subscribed to by an alias.
func (ts *typeState) setCanonicalName(s *subscription, name string) {
	if name == s.resource.key.name {
		name = ""
	}
	old := s.canonical
	if old == name {
		return
	}
	if s.canonical = name; old != "" {
		ts.byCanonicalName[old] = slices.DeleteFunc(ts.byCanonicalName[old], func(x *subscription) bool { return x == s })
		if len(ts.byCanonicalName[old]) == 0 {
			delete(ts.byCanonicalName, old)
		}
	}
	if name != "" {
		ts.byCanonicalName[name] = append(ts.byCanonicalName[name], s)
	}
}

// forgetVersion forgets, between two streams, the version of a type without subscriptions:
// the server could take the next resource for one that the client has.
func (ts *typeState) forgetVersion() {
	if ts.subs.size == 0 {
		ts.version = ""
	}
}

// begin prepares for a new stream, on which nothing was said yet. It drops the subscriptions that are not wanted any more.
func (ts *typeState) begin() {
	for s := range ts.subs.all() {
		if s.offer != nil { // the server may have other variants to offer
			s.offer.asks, s.offer.confirmed = false, 0
		}
		if s.taken.expired() { // its TTL is over
			ts.version = ""
		}
	}
	if ts.last.nack != "" { // of a response that was rejected the client has a part, and no version names that
		ts.version = ""
	}
	unread := false
	for s := range ts.subs.all() {
		if !s.wanted() {
			ts.drop(s)
			continue
		}
		read := s.State == ads.Received && (s.read || ts.hasRead(s))
		s.requested, s.seen = requested{read: read, older: s.older}, 0
		s.step(ads.Reopened)
		// A SotW server may have sent the resource for another subscription, and not have read the request for this one, for which
		// it may prefer another variant.
		unread = unread || ts.channel.dialect.Locators && !ts.channel.dialect.Incremental && s.State == ads.Received && !s.read
	}
	ts.forgetVersion()
	// A server takes the version that a request has for that of all variants which the request asks for.
	ts.requests = requests{probe: unread}
}
