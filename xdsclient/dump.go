package xdsclient

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// stamp has the time at which a server sent a resource or an error, the version, and the parameters of
// the variant. Each cache entry has one, so it is small.
type stamp struct {
	version string
	// at is in nanoseconds since 1970.
	at int64
	// parameters identify the variant that was sent.
	parameters dynparam.Parameters
	// ttl is how long the resource is valid, if its type has ResourceType.Renew; zero: until the server says otherwise.
	ttl time.Duration
	// stored says that the resource is from disk. volatile says that it has a TTL or must not be
	// cached, and is not kept there.
	stored, volatile bool
}

func stampNow(version string) stamp { return stamp{version: version, at: time.Now().UnixNano()} }

func (s stamp) time() time.Time { return time.Unix(0, s.at) }

// expired reports whether a TTL is over: programs that the resource was passed on to no longer have it.
func (s stamp) expired() bool { return s.ttl > 0 && time.Since(s.time()) >= s.ttl }

// CacheState is the state of a cache entry (gRFC A88, "Cache Entry States, CSDS,
// and XdsClient Metrics"), as A88 and CSDS write it. Whether a resource is cached beside it is
// another question.
type CacheState string

const (
	// StateRequested: the server has not answered yet.
	StateRequested CacheState = "REQUESTED"
	// StateDoesNotExist: the server deleted the resource, or did not send it in
	// time.
	StateDoesNotExist CacheState = "DOES_NOT_EXIST"
	// StateACKed: the last version the server sent is valid, and in use.
	StateACKed CacheState = "ACKED"
	// StateNACKed: the last version the server sent is invalid.
	StateNACKed CacheState = "NACKED"
	// StateReceivedError: the server sent an error in place of the resource, for example that
	// it does not exist (xRFC TP3).
	StateReceivedError CacheState = "RECEIVED_ERROR"
	// StateTimeout: the server did not send the resource in time, and that is no
	// sign that it does not exist; see KindTimeout.
	StateTimeout CacheState = "TIMEOUT"
)

// Dump is the state of a client at one moment. It is a copy that the caller may
// keep; the messages and bytes in it are shared with the client and must not be
// changed.
type Dump struct {
	// Node is the node that the client sends to its servers.
	Node *corev3.Node
	// BootstrapSource names where the bootstrap came from, and
	// BootstrapFingerprint is equal for bootstraps that say the same.
	BootstrapSource, BootstrapFingerprint string
	// Targets are the targets of the channels that use the client, in order,
	// each once. See XDSClient.Attach.
	Targets []string
	// Servers are the servers in use, by URI. Of several streams to a server, which targets have of their own, one that
	// is not connected counts.
	Servers []ServerDump
	// Resources are the resources that are watched, ordered by type URL, name,
	// authority, constraints, parameters and server. One that several targets watch from servers
	// of their own (XDSClient.ForTarget) has an entry for each state and version that it has for them.
	Resources []ResourceDump
}

// ServerDump is how a client stands with one server.
type ServerDump struct {
	// URI is server_uri of the bootstrap.
	URI string
	// Connected says that there is a working stream, as gRFC A78 defines it for
	// the metric grpc.xds_client.connected: a stream was opened, and the last
	// one did not fail before the server answered on it.
	Connected bool
	// Err is why the server counts as unreachable, or nil.
	Err error
	// NextAttempt is when the client tries again to open a stream to an unreachable server. It is zero while an attempt is under way, and
	// if Err is nil. Without a connection gRPC has a backoff of its own, of the same length give or take its jitter.
	NextAttempt time.Time
}

// ResourceDump is one cache entry.
type ResourceDump struct {
	// TypeURL is the type, and Name the name it is watched by.
	TypeURL, Name string
	// Constraints are those that it is watched with (xRFC TP2). There is an entry
	// for each set of constraints with which a name is watched. They are those of
	// the collection for a member.
	Constraints dynparam.Constraints
	// Parameters are those of the variant in use or, for the member of a collection, those that
	// identify it.
	Parameters dynparam.Parameters
	// Member says that the entry is the member of a collection.
	Member bool
	// Authority is that of the name, percent-decoded, or "#old" for a name that has none because it
	// is not an xdstp name (gRFC A78).
	Authority string
	// Server is the URI of the server that sent the resource or, if there is none, of the one
	// that Failure is from. It is empty if there is neither.
	Server string
	State  CacheState
	// Version is that of the last response that carried the resource and in
	// which it was valid, and LastUpdated when that response came. Both move
	// when a server sends the same bytes under another version: the control
	// plane then knows the client to have that version. Version is the resource's
	// own where the protocol gives it one. They are empty and zero if no resource
	// is cached. A response that only repeats the one before it does not count.
	Version     string
	LastUpdated time.Time
	// FromDisk says that no server has answered for the resource, which is from an earlier run of the
	// program or from another process (resource_cache of the bootstrap). LastUpdated is then when it was
	// last known to be current.
	FromDisk bool
	// Failure is the last answer for the resource if it is an error: why State is
	// neither StateRequested nor StateACKed, or why a collection cannot be
	// requested from its server. Otherwise it is nil.
	Failure *Failure

	collection bool
	typ        *ResourceType
	payload    *payload
}

// Failure is the last answer of a server for a resource if it is an error. That a
// server cannot be reached is not one: see ServerDump.Err.
type Failure struct {
	// Version is that of the response with the error: the version that was
	// rejected, or the one in which the resource was missing. It is empty if
	// there was no response.
	Version string
	// Time is when the response came, or the resource timer expired.
	Time time.Time
	// Err says what is wrong. The rejected resource is not kept.
	Err *Error
}

// Cached reports whether there is a resource in use.
func (r *ResourceDump) Cached() bool { return r.payload != nil }

// Any returns the resource in use as the server sent it, or nil. A collection is
// none: its members have entries of their own. Value is shared with the client.
func (r *ResourceDump) Any() *anypb.Any {
	if !r.Cached() || r.collection {
		return nil
	}
	return r.payload.resource(r.typ)
}

// Value returns the resource in use as ResourceType.Decode made it, or nil. A collection has
// none. It is shared with the client and must not be changed.
func (r *ResourceDump) Value() any {
	if !r.Cached() {
		return nil
	}
	return r.payload.value
}

// Ignored lists the parts of the resource in use that the program does not use.
func (r *ResourceDump) Ignored() []Ignored {
	if !r.Cached() || r.collection || r.typ.Ignored == nil {
		return nil
	}
	return r.typ.Ignored(r.payload.value)
}

// Dump returns the state of the client at one moment. The client is locked while its entries are
// listed; their bytes are not copied.
func (c *XDSClient) Dump() *Dump {
	d := &Dump{
		Node:                 c.config.Node,
		BootstrapSource:      c.config.Source,
		BootstrapFingerprint: c.config.Fingerprint(),
		Targets:              c.attached.targets(),
	}
	c.list(d)
	slices.SortFunc(d.Servers, func(a, b ServerDump) int { return strings.Compare(a.URI, b.URI) })
	order := func(a, b ResourceDump) int {
		return cmp.Or(strings.Compare(a.TypeURL, b.TypeURL), strings.Compare(a.Name, b.Name), strings.Compare(a.Authority, b.Authority),
			strings.Compare(a.Constraints.Key(), b.Constraints.Key()), strings.Compare(a.Parameters.Key(), b.Parameters.Key()),
			strings.Compare(a.Server, b.Server), strings.Compare(string(a.State), string(b.State)), strings.Compare(a.Version, b.Version))
	}
	slices.SortFunc(d.Resources, order)
	d.Resources = slices.CompactFunc(d.Resources, func(a, b ResourceDump) bool { return order(a, b) == 0 })
	return d
}

// list adds the servers and the entries to a dump.
func (c *XDSClient) list(d *Dump) {
	c.mu.Lock()
	defer c.mu.Unlock()
	servers := make(map[string]ServerDump)
	for key, ch := range c.channels {
		s := ServerDump{URI: ch.server.URI, Connected: ch.link.Connected(), Err: ch.link.Failure()}
		if next := ch.nextAttempt.Load(); s.Err != nil && next != nil {
			s.NextAttempt = *next
		}
		if other, ok := servers[key.server]; !ok || other.Connected && !s.Connected {
			servers[key.server] = s
		}
	}
	d.Servers = slices.Collect(maps.Values(servers))
	for r := range c.entries() {
		d.Resources = append(d.Resources, r.dump())
	}
}

// entries iterates the entries that watches use, members of collections included.
func (c *XDSClient) entries() iter.Seq[*resource] {
	return func(yield func(*resource) bool) {
		for _, a := range c.authorities {
			for _, r := range a.resources {
				if !r.watched() {
					continue
				}
				if !yield(r) {
					return
				}
				for _, m := range r.members {
					if !yield(m) {
						return
					}
				}
			}
		}
	}
}

// label is the authority as dumps and metrics name it.
func (k authorityKey) label() string {
	if !k.newStyle {
		return "#old"
	}
	return k.name
}

func (r *resource) dump() ResourceDump {
	d := ResourceDump{
		TypeURL:     r.key.typ.TypeURL,
		Name:        r.key.name,
		Constraints: r.watchedEntry().constraints,
		Member:      r.memberOf != nil,
		Parameters:  r.parameters,
		Authority:   r.authority.key.label(),
		State:       r.state(),

		collection: r.isCollection(),
		typ:        r.key.typ,
		payload:    r.payload,
	}
	if f := r.err; f != nil {
		d.Server = f.Server
		d.Failure = &Failure{Version: f.stamp.version, Time: f.stamp.time(), Err: f}
	}
	if p := r.payload; p != nil {
		d.Server = p.server.URI
		d.Version, d.LastUpdated, d.Parameters = r.taken.version, r.taken.time(), r.taken.parameters
		d.FromDisk = r.taken.stored
	}
	return d
}
