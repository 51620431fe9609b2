package dpdswrapper

import "github.com/dynxds/dynxds/xdsclient/dynparam"

// OwnConstraints returns the client's own constraints.
func (w *Wrapper) OwnConstraints() dynparam.ByType {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.own
}
