package xdsclient

import (
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// ForTarget returns the client as the channels with the given target see it. Its watches fall back to another
// management server, and return, without the watches of other targets (gRFC A71): where an authority has several servers, the
// target has streams and a cache of its own. It shares everything else with the client. Watches
// of the client itself are the watches of the target "". It may be called again, and there is
// nothing to close.
func (c *XDSClient) ForTarget(target string) LocatorClient {
	return &targetClient{c, watches{c, target}}
}

// targetClient is an XDSClient for one target.
type targetClient struct {
	*XDSClient
	watches
}

// watches starts the watches of a target.
type watches struct {
	client *XDSClient
	target string
}

// Watch implements Client. All watchers of the client are called from one
// goroutine, so a watcher must not block in a call; it may keep done for later.
//
// A watch that can never be served, for example because the authority of the name is unknown,
// gets one ResourceChanged with an Error of KindConfiguration. After Close, Watch does nothing
// and the watcher is never called.
func (w watches) Watch(t *ResourceType, name string, watcher Watcher) (stop func()) {
	return w.WatchLocator(t, name, dynparam.Constraints{}, watcher)
}

// WatchCollection implements Client. Members are added and removed as the server says, with any
// server features: the members are the content of a collection, and that
// one left is no data error in the sense of gRFC A88. An error for the
// collection as a whole is: it withdraws the members if the server has
// fail_on_data_errors.
//
// Only delta has collections. With a server
// that does not speak it, the watcher gets an *Error of KindConfiguration.
func (w watches) WatchCollection(t *ResourceType, name string, watcher CollectionWatcher) (stop func()) {
	return w.WatchCollectionLocator(t, name, dynparam.Constraints{}, watcher)
}

// WatchLocator implements LocatorClient. If none of the servers of the name's authority has the
// feature dynamic_parameter_constraints, it is Watch: the constraints choose nothing. If only some
// have, a watch gets the resource of the server that is followed: without the feature, whatever
// the server has under the name.
func (w watches) WatchLocator(t *ResourceType, name string, constraints dynparam.Constraints, watcher Watcher) (stop func()) {
	return w.client.watch(t, wire.Locator{Name: name, Constraints: constraints}, &watch{watcher: watcher}, w.target)
}

// WatchCollectionLocator implements LocatorClient. The features of servers count as with
// WatchLocator.
func (w watches) WatchCollectionLocator(t *ResourceType, name string, constraints dynparam.Constraints, watcher CollectionWatcher) (stop func()) {
	return w.client.watch(t, wire.Locator{Name: name, Constraints: constraints}, &watch{watcher: wholeWatcher{watcher}}, w.target)
}
