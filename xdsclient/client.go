package xdsclient

import (
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Client is what the layers above see of the transport: a place to watch
// resources by type and name. Layers that change how resources are asked for
// wrap one Client in another.
type Client interface {
	// Watch starts to watch the resource of the given type and name. The
	// watcher hears of the resource until stop is called; after stop has
	// returned no new call is started, and one that is under way may still
	// finish. stop is idempotent and may be called from within the watcher.
	//
	// Watch never blocks on the network and calls the watcher back only
	// from another goroutine.
	Watch(t *ResourceType, name string, w Watcher) (stop func())
	// WatchCollection does for a glob collection what Watch does for one
	// resource (xRFC TP1, "Glob"). name is that of the collection: it starts
	// with "xdstp:" and its path ends in "/*".
	WatchCollection(t *ResourceType, name string, w CollectionWatcher) (stop func())
	// Bootstrap returns the configuration the client was made from.
	Bootstrap() *bootstrap.Config
}

// LocatorClient is a Client that can be asked for a variant of a resource (xRFC
// TP2). It is what a layer is built on that attaches constraints to watches.
type LocatorClient interface {
	Client
	// WatchLocator is Watch for the variant that the constraints choose. Watches
	// of one name with different constraints are watches of different resources.
	// Without constraints it is Watch.
	WatchLocator(t *ResourceType, name string, c dynparam.Constraints, w Watcher) (stop func())
	// WatchCollectionLocator does for a collection what WatchLocator does for a
	// resource: the watcher hears of all variants of the members that match the
	// constraints.
	WatchCollectionLocator(t *ResourceType, name string, c dynparam.Constraints, w CollectionWatcher) (stop func())
	// Batch calls f and returns when f has. The watches that f starts and stops
	// go out together, with one request for each server and type, or with none
	// if nothing changes in the end. f must not block; it may call any method of
	// the client, and the stop functions of watches.
	Batch(f func())
	// ForTarget returns the client as the channels with the given target see it, with a
	// fallback of their own; see XDSClient.ForTarget.
	ForTarget(target string) LocatorClient
	// Attach says that the channel with the given target uses the client; see
	// XDSClient.Attach.
	Attach(target string, recorder estats.MetricsRecorder) (detach func())
}

// Watcher hears of one resource (gRFC A88). The calls to one watcher are
// serial.
//
// Each call hands over a done callback: no further response is read from the
// resource's stream until done was called for every call that the previous
// response caused. A watcher that starts further watches before it calls done
// gets them into the same batch of requests. done is idempotent, must be
// called, and may be called from any goroutine.
type Watcher interface {
	// ResourceChanged says what the resource is now: value as the
	// ResourceType decoded it, or, if err is not nil, that there is none to
	// use and why. It replaces whatever was said before. err is an *Error.
	ResourceChanged(value any, err error, done func())
	// AmbientError reports a fault that leaves the last value in use. err is
	// an *Error.
	AmbientError(err error, done func())
}

// ResourceType tells the transport what it has to know of a type of resource.
// It is compared by pointer: one ResourceType per type and process.
type ResourceType struct {
	// TypeURL is the type of the resource message, as in Any.type_url.
	TypeURL string
	// Name is the short name for logs and errors, for example "Listener".
	Name string
	// FullStateInSotW says that a SotW response carries every subscribed
	// resource of the type, so that one that is missing was deleted
	// (Listener and Cluster).
	FullStateInSotW bool
	// Decode validates a resource and turns it into the immutable value that
	// watchers get. It returns the resource's name, also beside an error if
	// the name could be read, so that the fault is laid at its door.
	Decode func(resource *anypb.Any, opts DecodeOptions) (name string, value any, err error)
	// Ignored lists what of a resource, which Decode made value of, the program
	// does without. It may be slow: it is called for dumps and, beside the updates
	// and at most every 10 s for a resource, for the log. nil: nobody knows.
	Ignored func(resource *anypb.Any, value any) []Ignored
}

// DecodeOptions is what a decoder may need beyond the bytes.
type DecodeOptions struct {
	// Server is the management server that sent the resource. A decoder may go
	// by its features, but not by "delta", "dynamic_parameter_constraints" or,
	// unless the value is ServerBound, by which server it is: what was decoded is
	// used again when a server of the same other features sends the same bytes.
	Server *bootstrap.Server
	// Loads counts load for that server, which gets it in load reports (LRS). A
	// value that keeps it is ServerBound.
	Loads *load.Store
	// Bootstrap is that of the client, which has the certificate providers that resources
	// name. nil: such names are not checked.
	Bootstrap *bootstrap.Config
	// Last returns the value that Decode last made of the resource of a name from that
	// server, or of any variant of it, or nil. A decoder may build on it, so that a
	// small change to a large resource costs little. nil: there is none.
	Last func(name string) any
}

// ServerBound is implemented by values of ResourceType.Decode that may depend on
// which server the resource came from. If that is so, the same bytes from another
// server are decoded again, and watchers hear of the new value.
type ServerBound interface{ ServerBound() bool }
