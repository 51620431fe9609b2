package dpdswrapper

import (
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// ForTarget returns the client of the channels with the given target; see
// xdsclient.XDSClient.ForTarget. Constraints are the same for all targets. DPDS resources are
// watched for no target, and fall back to other servers by themselves.
func (w *wrapper) ForTarget(target string) xdsclient.Client {
	return &targetClient{w, w.below.ForTarget(target)}
}

type targetClient struct {
	wrapper *wrapper
	below   xdsclient.LocatorClient
}

// Bootstrap implements xdsclient.Client.
func (c *targetClient) Bootstrap() *bootstrap.Config { return c.below.Bootstrap() }

// Watch implements xdsclient.Client.
func (c *targetClient) Watch(t *xdsclient.ResourceType, name string, watcher xdsclient.Watcher) (stop func()) {
	return c.wrapper.add(&watch{below: c.below, typ: t, name: name, watcher: watcher})
}

// WatchCollection implements xdsclient.Client.
func (c *targetClient) WatchCollection(t *xdsclient.ResourceType, name string, watcher xdsclient.CollectionWatcher) (stop func()) {
	return c.wrapper.add(&watch{below: c.below, typ: t, name: name, collection: watcher, members: make(map[memberKey]heldMember)})
}
