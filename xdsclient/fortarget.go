package xdsclient

import "github.com/dynxds/dynxds/xdsclient/internal/ads/wire"

import "github.com/dynxds/dynxds/xdsclient/dynparam"

// ForTarget returns the client as the channels with the given target see it. It shares
// streams, caches and everything else with the client, but its watches fall back to another
// management server, and return, without those of other targets (gRFC A71). Those
// of the client itself are the watches of the target "". It may be called again, and there is
// nothing to close.
func (c *XDSClient) ForTarget(target string) LocatorClient { return &targetClient{c, target} }

// targetClient is an XDSClient for one target.
type targetClient struct {
	*XDSClient
	target string
}

// Watch implements Client.
func (c *targetClient) Watch(t *ResourceType, name string, watcher Watcher) (stop func()) {
	return c.watch(t, wire.Locator{Name: name}, &watch{watcher: watcher}, c.target)
}

// WatchCollection implements Client.
func (c *targetClient) WatchCollection(t *ResourceType, name string, watcher CollectionWatcher) (stop func()) {
	return c.watch(t, wire.Locator{Name: name}, newCollectionWatch(watcher), c.target)
}

// WatchLocator implements LocatorClient.
func (c *targetClient) WatchLocator(t *ResourceType, name string, constraints dynparam.Constraints, watcher Watcher) (stop func()) {
	return c.watch(t, wire.Locator{Name: name, Constraints: constraints}, &watch{watcher: watcher}, c.target)
}

// WatchCollectionLocator implements LocatorClient.
func (c *targetClient) WatchCollectionLocator(t *ResourceType, name string, constraints dynparam.Constraints, watcher CollectionWatcher) (stop func()) {
	return c.watch(t, wire.Locator{Name: name, Constraints: constraints}, newCollectionWatch(watcher), c.target)
}
