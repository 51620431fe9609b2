package relay

import (
	"bytes"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/protofield"
	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient"
)

// resource is a resource as upstream sent it. It is immutable.
type resource struct {
	xdsclient.Envelope
	// message has the type and the bytes, which are shared with the client.
	message *anypb.Any
	// time is when upstream last sent the resource or extended its TTL.
	time time.Time
}

// newType is a type of resources that are passed on as they are. Their values are of type *resource.
func newType(typeURL string) *xdsclient.ResourceType {
	name := typeurl.Name(typeURL)
	return &xdsclient.ResourceType{
		TypeURL: typeURL,
		Name:    name[strings.LastIndexByte(name, '.')+1:],
		// Envoy, xDS protocol, "Deleting Resources".
		FullStateInSotW: typeURL == typeurl.Listener || typeURL == typeurl.Cluster,
		Decode:          decode,
		Renew: func(value any, ttl time.Duration) any {
			r := *value.(*resource)
			r.TTL, r.time = ttl, time.Now()
			return &r
		},
	}
}

// decode takes a resource as it is. Bytes that are no message at all are of no use to any program: a client that
// gets them from the relay may not even find a name in them by which to reject them.
func decode(message *anypb.Any, opts xdsclient.DecodeOptions) (any, error) {
	if err := protofield.Each(message.GetValue(), "message", func(protofield.Field) error { return nil }); err != nil {
		return nil, err
	}
	return &resource{Envelope: opts.Envelope, message: message, time: time.Now()}, nil
}

// repeats reports whether a resource equals the one before. Each may be nil.
func (r *resource) repeats(old *resource) bool {
	return r != nil && old != nil && r.Version == old.Version && r.TTL == old.TTL && r.Parameters.Equal(old.Parameters) &&
		bytes.Equal(r.message.GetValue(), old.message.GetValue())
}

// held is the resource that a subscription or a member has from upstream, with its TTL. Guarded by group.mu.
type held struct {
	raw *resource
	// expired is set when the TTL has passed, which ttl waits for.
	expired bool
	ttl     *time.Timer
}

// hold replaces the resource that an answer has, by nil if upstream has none, and has the store follow. failed says that there was an error in its place.
func (h *held) hold(g *group, of answer, raw *resource, failed bool) {
	g.changed(of, !failed && !h.expired && raw.repeats(h.raw) && raw.TTL > 0)
	h.raw, h.expired = raw, false
	stopTimer(&h.ttl)
	if raw == nil || raw.TTL == 0 {
		return
	}
	g.after(&h.ttl, time.Until(raw.time.Add(raw.TTL)), func() {
		h.expired = true
		g.changed(of, false)
	})
}

// as is the resource as it was received, under the name that clients use.
func (r *resource) as(name string) *discoverypb.Resource {
	m := &discoverypb.Resource{
		Name: name, Version: r.Version, Resource: r.message, Aliases: r.Aliases,
		DynamicParameters: r.Parameters.Map(),
	}
	if r.TTL > 0 {
		m.Ttl = durationpb.New(r.TTL)
	}
	if r.DoNotCache {
		m.CacheControl = &discoverypb.Resource_CacheControl{DoNotCache: true}
	}
	return m
}
