package configselector

import (
	"cmp"
	"reflect"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/filterchain"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

var logger = boundlog.Component("dynxds")

// chains builds the filter chains of a Selector, with overrides applied (gRFC A39,
// "Filter Config Overrides"). Routes with equal overrides share the interceptors.
type chains struct {
	*Selector
	built map[builtOf]interceptor
}

// builtOf is what an interceptor is built of: an entry of the Listener, and an override, nil without one.
type builtOf struct {
	entry    int
	override any
}

// interceptor is the interceptor that a filter of the chain made for one override.
type interceptor struct {
	impl httpfilter.Interceptor // nil: left out
	err  error
}

// build returns the chain under overrides, the most specific ones first.
func (c *chains) build(levels ...xdsresource.FilterOverrides) *filterchain.Chain {
	chain := new(filterchain.Chain)
	for i, entry := range c.listener.Filters {
		if in := c.instances[entry.Name]; in != nil {
			one := c.interceptor(i, in, levels)
			chain.Err = cmp.Or(chain.Err, one.err)
			chain.Add(in, one.impl)
		}
	}
	return chain
}

// interceptor returns the interceptor of entry i under the override at the most specific level that has one. An
// override for another type of filter is skipped. The first one of each type is logged.
func (c *chains) interceptor(i int, in *filterchain.Instance, levels []xdsresource.FilterOverrides) interceptor {
	entry := &c.listener.Filters[i]
	level, override, other := xdsresource.OverrideOf(entry, levels)
	if other != nil {
		if _, warned := in.Warned.LoadOrStore(filterchain.TypeOf(other), true); !warned {
			logger.Warningf("%s: a route overrides HTTP filter %q with a configuration of the filter for %s; it is ignored, as the filter of that name is for %s",
				c.ch.Target(), in.Name, filterchain.TypeOf(other), in.Type)
		}
	}
	if override.Disabled || level < 0 && entry.Disabled {
		return interceptor{}
	}
	of := builtOf{i, override.Config}
	if !reflect.ValueOf(override.Config).Comparable() {
		of.override = new(byte) // It cannot be compared with others, so it shares no interceptor.
	}
	one, ok := c.built[of]
	if !ok {
		one.impl, one.err = in.ClientInterceptor(entry.Config, override.Config)
		if one.err != nil {
			one.err = status.Errorf(codes.Unavailable, "xds: HTTP filter %s cannot be configured: %s",
				bounds.Quote(entry.Name), bounds.Text(one.err.Error(), bounds.ErrorText))
		}
		c.built[of] = one
	}
	return one
}
