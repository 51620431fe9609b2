// Package filterchain is what chains of HTTP filters are made of: instances of filters, which are closed when nothing refers to them any
// more, and their interceptors, which report to the traces of RPCs.
//
// It does not say which filters are in a chain: package configselector does, and the composite filter for those inside it.
package filterchain

import (
	"runtime"
	"sync"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// TypeOf identifies a type of filter by a type URL, as filters need not be comparable.
func TypeOf(f httpfilter.Filter) string {
	if urls := f.TypeURLs(); len(urls) > 0 {
		return urls[0]
	}
	return ""
}

// Instance is the instance of a filter, under one name, on a channel. Chains refer to it, and the filter does not. So the garbage
// collector finds out when the last of them is gone, and no RPC has to be counted.
type Instance struct {
	httpfilter.ClientInstance
	Name, Type string
	// Warned has the types of filters of whose overrides for this one the log tells.
	Warned sync.Map
}

// closer is a ClientInstance that has something to release.
type closer interface{ Close() }

// NewInstance makes the instance of a filter.
func NewInstance(filter httpfilter.ClientFilter, info httpfilter.ClientInstanceInfo) *Instance {
	in := &Instance{ClientInstance: filter.NewClientInstance(info), Name: info.Name, Type: TypeOf(filter)}
	if c, ok := in.ClientInstance.(closer); ok {
		// Close may take its time, and other cleanups of the process wait.
		runtime.AddCleanup(in, func(c closer) { go c.Close() }, c)
	}
	return in
}

// Chain is the filters that an RPC goes through. The RPC refers to it as long as it runs, so that their instances stay.
type Chain struct {
	// Err is the error of RPCs if a filter cannot run.
	Err error

	interceptors []httpfilter.Interceptor
	instances    []*Instance // of the interceptors
}

// Add adds the interceptor of an instance, unless it is nil.
func (c *Chain) Add(in *Instance, i httpfilter.Interceptor) {
	if i != nil {
		c.interceptors, c.instances = append(c.interceptors, i), append(c.instances, in)
	}
}

// Passes reports whether RPCs meet no filter.
func (c *Chain) Passes() bool { return len(c.interceptors) == 0 && c.Err == nil }

// Interceptors returns the interceptors for an RPC with a trace, or nil. They report to the trace if it sees filters.
func (c *Chain) Interceptors(t *rpctrace.Trace) []httpfilter.Interceptor {
	if t == nil || !rpctrace.SeesFilters(t) {
		return c.interceptors
	}
	traced := make([]httpfilter.Interceptor, len(c.interceptors))
	for i, next := range c.interceptors {
		traced[i] = tracedFilter{Interceptor: next, name: c.instances[i].Name, trace: t}
	}
	return traced
}
