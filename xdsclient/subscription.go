package xdsclient

import (
	"bytes"
	"strings"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// subscriptionState says how far a subscription got with its server.
type subscriptionState int

const (
	// subscriptionUnsent: no request of this stream names the resource.
	subscriptionUnsent subscriptionState = iota
	// subscriptionSending: a request that names the resource is being written.
	subscriptionSending
	// subscriptionRequested: a request is out, and the resource timer runs.
	subscriptionRequested
	// subscriptionReceived: the server has sent the resource. A response with
	// the full state that omits it therefore deletes it.
	subscriptionReceived
	// subscriptionMissing: the server deleted the resource, does not have it,
	// or did not send it in time. It may still come.
	subscriptionMissing
	// subscriptionFailed: the server sent an error in place of the resource. It
	// does so once, so that a response without either changes nothing (xRFC
	// TP3, "Protocol Behavior").
	subscriptionFailed
	// subscriptionDropped: the subscription has ended.
	subscriptionDropped
)

// subscription is a resource that a server is asked for. It stays after the last
// watch stopped until the server was told: if a watch starts before that, the
// server does not notice and would not send the resource again.
//
// The members of a collection have one each as well, of which the server is not
// told.
type subscription struct {
	resource *resource
	state    subscriptionState
	// hash is that of the accepted bytes if they name the resource, or 0.
	hash uint64
	// seen is the number of the last response that has something to say of the
	// resource, and found that of the last thing in a response that was found
	// to be for it.
	seen, found uint64
	// deadline is when the resource timer fires, on the channel's stopwatch.
	deadline stopwatchTime
	// members are those of a collection by name. It is nil for a resource.
	members map[string]*subscription
}

func newSubscription(r *resource) *subscription {
	s := &subscription{resource: r}
	if isCollection(r.key.name) {
		s.members = make(map[string]*subscription)
		if r.members == nil {
			r.members = make(map[string]*resource)
		}
	}
	return s
}

// wanted reports whether the resource is watched.
func (s *subscription) wanted() bool { return len(s.resource.watches) > 0 }

// holds reports whether the bytes are those of the version in use, from the same
// server.
func (s *subscription) holds(raw []byte, server *bootstrap.Server) bool {
	p := s.resource.payload
	return p != nil && p.server == server && bytes.Equal(p.raw, raw)
}

func bySubscribedName(a, b *subscription) int {
	return strings.Compare(a.resource.key.name, b.resource.key.name)
}
