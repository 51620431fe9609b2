package dpdswrapper

import (
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// ForTarget returns the wrapper as the channels with the given target see it: see
// xdsclient.XDSClient.ForTarget. What is asked for with which constraints is the same for
// all targets. A DPDS resource is not watched for one of them, and falls back by itself.
func (w *Wrapper) ForTarget(target string) xdsclient.Client {
	return &targetWrapper{w, w.below.ForTarget(target)}
}

// targetWrapper is a Wrapper for one target.
type targetWrapper struct {
	wrapper *Wrapper
	below   xdsclient.LocatorClient
}

// Bootstrap implements xdsclient.Client.
func (w *targetWrapper) Bootstrap() *bootstrap.Config { return w.wrapper.Bootstrap() }

// Watch implements xdsclient.Client.
func (w *targetWrapper) Watch(t *xdsclient.ResourceType, name string, watcher xdsclient.Watcher) (stop func()) {
	return w.wrapper.watch(w.below, t, name, watcher)
}

// WatchCollection implements xdsclient.Client.
func (w *targetWrapper) WatchCollection(t *xdsclient.ResourceType, name string, watcher xdsclient.CollectionWatcher) (stop func()) {
	return w.wrapper.watchCollection(w.below, t, name, watcher)
}
