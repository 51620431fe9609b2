package dpdswrapper

import (
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

type Wrapper = wrapper

// New returns a wrapper that is not shared.
var New = newWrapper

// AcquireWrapper returns a shared wrapper.
var AcquireWrapper = acquireWrapper

// OwnConstraints returns the client's own constraints.
func (w *wrapper) OwnConstraints() dynparam.ByType {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.own
}

// Remembered reports whether there is a wrapper or there are constraints for a bootstrap.
func Remembered(cfg *bootstrap.Config) bool {
	program.Lock()
	defer program.Unlock()
	_, set := program.only[cfg.Fingerprint()]
	pool.Each(func(fingerprint string, _ *wrapper) { set = set || fingerprint == cfg.Fingerprint() })
	return set
}

// SetConstraints sets the constraints of the program for one wrapper.
func (w *wrapper) SetConstraints(constraints dynparam.ByType) { w.setConstraints(constraints) }
