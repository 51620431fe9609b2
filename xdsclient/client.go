package xdsclient

import (
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Client watches resources by type and name: what the layers above package dpdswrapper use of a client.
type Client interface {
	// Watch starts to watch the resource of the given type and name. The watcher is
	// called until stop is; after stop has returned no new call starts, and one that is
	// under way may still finish. stop is idempotent and may be called from within the
	// watcher.
	//
	// Watch never blocks on the network, and calls the watcher from another goroutine
	// only.
	Watch(t *ResourceType, name string, w Watcher) (stop func())
	// WatchCollection does for a glob collection (xRFC TP1, "Glob") what Watch does for a
	// resource. name is that of the collection: it starts with "xdstp:" and its path ends
	// in "/*"; or it is "*", for all resources of the type with other names (wildcard).
	WatchCollection(t *ResourceType, name string, w CollectionWatcher) (stop func())
	// Bootstrap returns the configuration of the client.
	Bootstrap() *bootstrap.Config
}

// LocatorClient can be asked for variants of resources (xRFC TP2): what layers that attach constraints to watches
// are built on. All watchers of a client are called from one goroutine, whichever resources and targets they are for.
type LocatorClient interface {
	// WatchLocator does what Client.Watch does, for the variant that the constraints choose. Watches of one name
	// with different constraints are of different resources. Without constraints it is Watch.
	WatchLocator(t *ResourceType, name string, c dynparam.Constraints, w Watcher) (stop func())
	// WatchCollectionLocator does for a collection what WatchLocator does for a resource: its
	// members are all variants that match the constraints.
	WatchCollectionLocator(t *ResourceType, name string, c dynparam.Constraints, w CollectionWatcher) (stop func())
	// Batch calls f. The watches that f starts and stops go out together when it returns,
	// with one request for each server and type, or with none if nothing changes in the end.
	// f must not block; it may call any method of the client, and the stop functions of
	// watches.
	Batch(f func())
	// ForTarget returns the client for the channels with the given target, which fall back
	// between servers by themselves; see XDSClient.ForTarget.
	ForTarget(target string) LocatorClient
	// Bootstrap returns the configuration of the client.
	Bootstrap() *bootstrap.Config
}

// Watcher is notified of one resource (gRFC A88). The calls to one watcher are serial.
//
// Each call passes a done callback: the next response is not read from the resource's stream
// until done has been called for every call that the last one caused. The watches that a watcher
// starts before it calls done go out in one batch of requests. done is idempotent, must be
// called, and may be called from any goroutine.
type Watcher interface {
	// ResourceChanged is called with the new value, as ResourceType.Decode made it, or, if
	// err is not nil, with the reason why there is no value to use. It replaces the result
	// of all earlier calls. err is an *Error.
	ResourceChanged(value any, err error, done func())
	// AmbientError is called for an error that leaves the last value in use. err is an *Error.
	AmbientError(err error, done func())
}

// ResourceType is what a client needs to know of a type of resource. It is compared by pointer:
// there is one ResourceType per type and process.
type ResourceType struct {
	// TypeURL is the type of the resource message, as in Any.type_url.
	TypeURL string
	// Name is the short name for logs and errors, for example "Listener".
	Name string
	// FullStateInSotW says that a SotW response carries every subscribed resource of the
	// type, so that one that is missing was deleted (Listener and Cluster).
	FullStateInSotW bool
	// Nameless says that the message has no name: only the envelope of a resource has one. The name of a message of any
	// other type is in its field 1, where Envoy's types have it.
	Nameless bool
	// Decode validates a resource and makes the immutable value of it that watchers get. The resource is never changed,
	// and the value may refer to its bytes, which the client keeps.
	Decode func(resource *anypb.Any, opts DecodeOptions) (value any, err error)
	// Renew is for programs that pass resources on together with their envelopes; otherwise it is nil. Values
	// then have what DecodeOptions.Envelope says: watchers are called when anything in the envelope changes, and
	// each time that the server extends a TTL. Of a heartbeat, which has a TTL (or zero) but no resource, Renew
	// makes the value that takes the place of the one in use. It must not block.
	Renew func(value any, ttl time.Duration) any
	// Ignored returns what the program ignores of a resource that Decode made value of. nil: it is not known.
	Ignored func(value any) []Ignored
}

// Envelope is what a server says of a resource beside its bytes (envoy.service.discovery.v3.Resource).
type Envelope struct {
	// Name is what the server calls the resource, which may be watched by an alias.
	Name string
	// Version is the resource's own version, which is not that of the response.
	Version string
	// Aliases are the other names of the resource, in the server's order.
	Aliases []string
	// Parameters are the dynamic parameters of the variant (xRFC TP2, Resource.dynamic_parameters).
	Parameters dynparam.Parameters
	// TTL is how long the resource is valid unless the server extends it. Zero: until the server says otherwise.
	TTL time.Duration
	// DoNotCache says that the resource is for this client alone (Resource.cache_control.do_not_cache).
	DoNotCache bool
}

// DecodeOptions is what a decoder may need besides the bytes.
type DecodeOptions struct {
	// Server is the management server that sent the resource. The value may depend on its
	// features other than "delta" and "dynamic_parameter_constraints". It may depend on which
	// server it is only if it has a method ServerBound() bool that returns true: other values are
	// used again when a server with the same other features sends the same bytes.
	Server *bootstrap.Server
	// Envelope is what the server says of the resource beside its bytes. It is zero for a resource without an
	// envelope (SotW), and for types without ResourceType.Renew.
	Envelope Envelope
	// Loads counts load for the load reports to that server (LRS). A value that keeps it depends
	// on the server.
	Loads *load.Store
	// Bootstrap is that of the client, which has the certificate providers that resources
	// name. nil: such names are not checked.
	Bootstrap *bootstrap.Config
	// Last is the value that Decode last made of the resource, or of any variant of it, from that server. A decoder may build on
	// it, so that a small change to a large resource costs little. nil: there is none.
	Last any
}
