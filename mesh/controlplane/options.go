package controlplane

import (
	"cmp"
	"context"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// DefaultRemovalDelay is the default of Options.RemovalDelay: twice the 15 s that gRPC
// clients wait for a resource. A client that received new routes late, and waits for their
// Clusters, still has the old ones.
const DefaultRemovalDelay = 30 * time.Second

// DefaultMaxSubscriptions is the default of Options.MaxSubscriptions.
const DefaultMaxSubscriptions = 200_000

// Options configure a [Server]. The zero value has every default.
type Options struct {
	// MaxStreams bounds how many streams all clients have together, of which a peer, that is a verified certificate
	// identity at one host, has at most half, and no more than are left for others. A stream beyond it ends with
	// RESOURCE_EXHAUSTED. The default is 20,000. The streams of one connection are limited by
	// grpc.MaxConcurrentStreams.
	//
	// Other limits of what all clients make the server hold together are fixed, for 10,000 clients in 2 GiB:
	// 16,000,000 subscriptions, 1,000,000 distinct names, 256 MiB of nodes (512 KiB a node on the wire), 500,000
	// initial_resource_versions that wait to be compared, 512 MiB of responses that are not read, and 256 MiB of requests that
	// wait for others of their peer.
	MaxStreams int

	// OnRefused is called at the end of a stream for which one of these limits was reached, with its name, such as "streams", for
	// metrics. It is called without locks by several goroutines at a time, and should be quick.
	OnRefused func(limit string)

	// MaxSubscriptions bounds how many names (each type counts as one more, a wildcard, too) a stream may
	// subscribe to at a time. A stream that asks for more ends with RESOURCE_EXHAUSTED.
	// The default is [DefaultMaxSubscriptions].
	MaxSubscriptions int

	// MaxResponseSize is the approximate size in bytes beyond which a delta response is split.
	// A larger resource is sent in a response of its own. SotW responses are never split, as
	// those of Listeners and Clusters must be complete. The default is 2 MiB, half of the
	// default limit of a gRPC client.
	MaxResponseSize int

	// WrapResources makes SotW responses wrap each resource in an
	// envoy.service.discovery.v3.Resource, with its name and version, for clients whose
	// node announces the feature "xds.config.resource-in-sotw". Off by default: some
	// clients announce less than they support, and all accept bare resources.
	WrapResources bool

	// NotFoundErrors makes SotW streams report a subscribed name that does not exist, or
	// no longer exists, by a resource error NOT_FOUND (xRFC TP3), so that clients need
	// not wait for a timeout. It applies to names of every type, not to wildcard
	// subscriptions. Delta streams report the same by removed_resources in any case.
	NotFoundErrors bool

	// Absence returns the text of an error of NotFoundErrors; empty: the server's own. Delta streams are told it by an error
	// beside the removal, and nothing if it is empty. It may name resources that
	// are similar, of which allowed says whether the client may have them. It is called by
	// several goroutines at a time, once for each name that a client asks for, so it must bound its work itself: the other streams of the
	// client's peer wait for it.
	Absence func(typeURL, name string, allowed func(name string) bool) string

	// NodeConstraints chooses variants for clients that send no constraints (xRFC TP2,
	// "Migrating From Node Metadata"). It is called once for each stream, and its
	// constraints apply to every type that the client does not subscribe to by locators.
	// Without it such a client has no constraints. The node is that of the stream's
	// first request, nil if that had none. It is called without locks, by several
	// goroutines at a time; see [Server.RefreshNodeConstraints].
	//
	// It does not apply to clients that send locators, unless BindLocators is set. The same function may
	// serve these by DPDS ([Tx.SetDPDS]).
	NodeConstraints func(node *corepb.Node) dynparam.ByType

	// BindLocators adds the NodeConstraints of a client to its locators, so that it gets variants for its own node whatever
	// constraints it sends. A locator that contradicts them gets PERMISSION_DENIED in place of the resource. If they change,
	// the client's stream ends with UNAVAILABLE, and the client opens another.
	BindLocators bool

	// Identify returns the node that a client is, in place of the one that it says it is, or the error with which its stream
	// ends. until is how long that holds, zero for ever: Identify is then called again with the same arguments, and its error
	// ends the stream; the node stays that of the first call. It is called for each stream, before any other function of the
	// options and without locks, by several goroutines at a time. ctx is the stream's, as for StoreFor. It must not change the node, which may be nil. Without it,
	// clients are who they say.
	Identify func(ctx context.Context, node *corepb.Node) (is *corepb.Node, until time.Time, err error)

	// Access decides which node a client may be, and which names it may subscribe to, before any other function
	// is called for it.
	Access Access

	// Authorize decides whether a client may have a resource that Access gives it; without it, it may. It is called when a client subscribes to a name, or to a glob collection by its
	// name; "*" is the wildcard. What a collection covers is not asked for beside it. The arguments
	// are those of StoreFor, the type of the resources, and the name in canonical form (xRFC TP1),
	// whatever the client's spelling. It is called by several
	// goroutines at a time, and the client's requests wait for it, as do its peer's other requests of 64 KiB and more,
	// [Server.RefreshNodeConstraints] and [Server.RefreshAuthorization]. It must not call functions of the server.
	//
	// The client is sent the status of an error, mostly PERMISSION_DENIED, in place of the
	// resource (xRFC TP3); for a wildcard, which TP3 has no errors for, the stream ends with it.
	// What was decided stays until the client unsubscribes, its stream ends, or [Server.RefreshAuthorization] is called.
	Authorize func(ctx context.Context, node *corepb.Node, typeURL, name string) error

	// StoreFor chooses the store that a client is served from, so that one server can serve
	// different nodes from different sets of resources; without it, all are served from the
	// server's, as if it returned nil. It is called once for each stream, with the node of the first request, nil if that
	// had none, and without locks, by several goroutines at a time. ctx is the stream's: it has
	// the client's peer.Peer and metadata, and ends with the stream. An error ends the stream with
	// its status. If the client's first request has 4 KiB or more, the other streams of its peer wait for StoreFor and NodeConstraints, too,
	// so these should be quick: what takes time, such as asking another server, belongs into Identify, for which they do not wait.
	StoreFor func(ctx context.Context, node *corepb.Node) (*Store, error)

	// RemovalDelay bounds how long a deletion is withheld from a client that has the resource
	// and is still subscribed to it (make before break). A client that follows its new
	// configuration unsubscribes before that and receives no removal: it never loses a
	// resource that its own configuration still refers to. A negative delay sends
	// deletions at once, in the order of the package documentation. The default is
	// [DefaultRemovalDelay].
	//
	// Not delayed are: the deletion of a Listener or of a DPDS resource, to which nothing
	// else refers; an error in place of a resource ([Tx.SetError], [Tx.SetVariantError]);
	// the loss of a variant that changed constraints no longer match
	// ([Server.RefreshNodeConstraints]); and the answer to a client that subscribes after the
	// deletion, subscribes again, or reconnects. So to revoke access, set an error or delete
	// the Listener. A wildcard or glob subscription cannot drop a single resource, and keeps
	// it for the whole delay.
	//
	// A stream keeps at most 10,000 deleted resources of 32 MiB in total; beyond that the
	// oldest are removed first.
	RemovalDelay time.Duration

	// OnNACK is called for each response that a client rejects, for a log or an alert. It is
	// called without locks by the goroutine that reads the client's requests, which waits for
	// it; several streams may call it concurrently.
	OnNACK func(Rejection)

	// OnACK is called like OnNACK for each response that a client accepts, for metrics. changed
	// is the time of the update of the store that the response was sent for, of the first of
	// several, and zero for a response that only answers a request.
	OnACK func(typeURL string, changed time.Time)
}

// withDefaults returns the options with defaults for zero values.
func (o Options) withDefaults() Options {
	o.MaxStreams = cmp.Or(o.MaxStreams, bounds.Streams)
	o.MaxSubscriptions = cmp.Or(o.MaxSubscriptions, DefaultMaxSubscriptions)
	o.MaxResponseSize = cmp.Or(o.MaxResponseSize, defaultMaxResponseSize)
	o.RemovalDelay = cmp.Or(o.RemovalDelay, DefaultRemovalDelay)
	return o
}

const defaultMaxResponseSize = 2 << 20
