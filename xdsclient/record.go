package xdsclient

import (
	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// The records of changes, for people who look (package changes). XDSClient.mu is held.

// recordAccepted records a version that is about to replace the one in use, or an error.
func (r *resource) recordAccepted(taken stamp) {
	if r.isCollection() || !r.watchedEntry().watched() {
		return
	}
	c := r.change(changes.Accepted, taken)
	if r.payload != nil {
		c.From = r.taken.version
	}
	if !taken.parameters.IsZero() {
		c.Detail = taken.parameters.String()
	}
	changes.Add(c)
}

// recordFailure records the last answer for the resource, which is an error.
func (r *resource) recordFailure(err *Error) {
	if !r.watchedEntry().watched() {
		return
	}
	kind := changes.Failed
	switch err.state {
	case StateNACKed:
		kind = changes.Rejected
	case StateDoesNotExist:
		kind = changes.Removed
	}
	c := r.change(kind, err.stamp)
	c.Server, c.Detail = err.Server, err.Err.Error()
	if r.payload != nil {
		c.From = r.taken.version
	}
	changes.Add(c)
}

func (r *resource) change(kind changes.Kind, s stamp) changes.Change {
	return changes.Change{
		Time: s.time(), Kind: kind, Type: r.key.typ.Name, Name: r.key.name,
		To: s.version, Server: r.authority.active().server.URI,
	}
}

// recordServer records that a server became unreachable, for the given reason, or that it answers
// again.
func recordServer(kind changes.Kind, server *bootstrap.Server, failure error) {
	c := changes.Change{Kind: kind, Server: server.URI}
	if failure != nil {
		c.Detail = failure.Error()
	}
	changes.Add(c)
}
