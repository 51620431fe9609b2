package xdsclient

import "github.com/dynxds/dynxds/xdsclient/dynparam"

// WatchLocator implements LocatorClient. Locators are not sent to any server yet,
// so every server is one that does not understand them: the constraints choose
// nothing.
func (c *XDSClient) WatchLocator(t *ResourceType, name string, _ dynparam.Constraints, w Watcher) (stop func()) {
	return c.Watch(t, name, w)
}
