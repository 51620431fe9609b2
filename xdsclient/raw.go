package xdsclient

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/protofield"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Raw is a resource as its server sent it, for programs that pass resources on without knowing
// what is in them. Watchers get one of a ResourceType without Decode. Unlike with decoded values,
// they are called when anything in it changes, and each time that the server extends a TTL. It is
// immutable.
//
// The name of a resource that is not wrapped (SotW) is taken from field 1 of its message, where
// Envoy's types of resources have it.
type Raw struct {
	// Name is what the server calls the resource; of one watched by an alias it is the
	// resource's own name.
	Name string
	// Resource has the type and the bytes. They are shared with the client and must not be
	// changed.
	Resource *anypb.Any
	// Version is the resource's own version. It is empty if the server gives none, as it does
	// for resources that are not wrapped: the version of a SotW response is that of all
	// resources of the type.
	Version string
	// Parameters are the dynamic parameters of the variant (xRFC TP2, Resource.dynamic_parameters).
	Parameters dynparam.Parameters
	// TTL is how long after Time the resource is valid (Resource.ttl). Zero: until the server
	// says otherwise.
	TTL time.Duration
	// DoNotCache says that the resource is for this client alone
	// (Resource.cache_control.do_not_cache).
	DoNotCache bool
	// Aliases are the other names of the resource (Resource.aliases), in the server's order.
	Aliases []string
	// Time is when the server last sent the resource, or said that it is still valid.
	Time time.Time
}

// envelope is what is known of a resource of a type without a decoder beside its bytes and its
// stamp. It is immutable.
type envelope struct {
	name string
	// versioned says that the version in the stamp is the resource's own.
	versioned  bool
	ttl        time.Duration
	doNotCache bool
	aliases    []string
}

// newEnvelope returns the envelope of an item for a subscription, which is the one that it has
// if that says the same. Of a heartbeat only the TTL counts.
func newEnvelope(s *subscription, it *item) *envelope {
	known := s.taken.envelope
	e := &envelope{name: string(it.Name), versioned: len(it.Version) > 0, ttl: it.TTL, doNotCache: it.DoNotCache}
	switch {
	case it.bare:
		e.name = s.resource.key.name
	case it.Heartbeat && known != nil:
		*e = *known
		e.ttl = it.TTL
	case it.HasAliases():
		for alias := range it.Aliases() {
			e.aliases = append(e.aliases, string(alias))
		}
	}
	if known != nil && known.same(e) {
		return known
	}
	return e
}

func (e *envelope) same(other *envelope) bool {
	return e.name == other.name && e.versioned == other.versioned && e.ttl == other.ttl && e.doNotCache == other.doNotCache &&
		slices.Equal(e.aliases, other.aliases)
}

// repeats reports whether a resource whose bytes are those of an earlier one with the stamp old is
// nothing new to watchers.
func (s stamp) repeats(old stamp) bool {
	if s.envelope == nil || old.envelope == nil {
		return s.envelope == old.envelope
	}
	return s.envelope.ttl == 0 && s.envelope.same(old.envelope) && s.parameters.Equal(old.parameters) && (!s.envelope.versioned || s.version == old.version)
}

// expired reports whether a TTL is over: those whom the resource was passed on to no longer have it.
func (s stamp) expired() bool {
	return s.envelope != nil && s.envelope.ttl > 0 && time.Since(s.time()) >= s.envelope.ttl
}

// value is what watchers get of the version in use.
func (r *resource) value() any {
	e := r.taken.envelope
	if e == nil {
		return r.payload.value
	}
	raw := &Raw{
		Name:       e.name,
		Resource:   &anypb.Any{TypeUrl: r.key.typ.TypeURL, Value: r.payload.raw},
		Parameters: r.taken.parameters,
		TTL:        e.ttl,
		DoNotCache: e.doNotCache,
		Aliases:    e.aliases,
		Time:       r.taken.time(),
	}
	if e.versioned {
		raw.Version = r.taken.version
	}
	return raw
}

// admitRaw does for a type without a decoder what decode does for others. Bytes that are no message
// at all are of no use to any program: a client that gets them from the watcher may not even find a
// name in them by which to reject them.
func (d *resourceDecoder) admitRaw(it *item, p *payload) {
	name, err := nameIn(it.Value)
	switch {
	case err != nil:
		it.Err = fmt.Errorf("it is no message: %w", err)
	case len(it.Name) == 0 && name == "":
		it.Err = errors.New("it is not wrapped, and has no name in field 1")
	case len(it.Name) == 0:
		it.decodedName = name
	}
	if it.Err == nil {
		it.payload = p
	}
}

// nameIn returns the text in field 1 of a message, or "". The error says that the fields of the
// message cannot be told apart.
func nameIn(message []byte) (name string, err error) {
	for len(message) > 0 {
		f, rest, err := protofield.Next(message)
		if err != nil {
			return "", err
		}
		if f.Number == 1 && f.Kind == protowire.BytesType && utf8.Valid(f.Value) {
			name = string(f.Value)
		}
		message = rest
	}
	return name, nil
}
