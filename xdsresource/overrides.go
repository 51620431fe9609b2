package xdsresource

import (
	"github.com/dynxds/dynxds/httpfilter"
)

// FilterOverrides is a typed_per_filter_config: what one level (VirtualHost,
// Route or ClusterWeight) says of filters, by the name of the filter instance.
// It may have names that no chain has, and filters of another type than the
// instance (gRFC A39, "Filter Config Overrides"). The most specific level that
// has an instance's name decides for that instance; levels are not mixed.
type FilterOverrides map[string]FilterOverride

// FilterOverride is one entry of FilterOverrides.
type FilterOverride struct {
	// Filter is the type of filter that the configuration is for. nil if the
	// entry only disables the instance.
	Filter httpfilter.Filter
	// Config is what the filter made of the override configuration.
	Config httpfilter.Config
	// Disabled takes the instance out of the chain (FilterConfig.disabled);
	// then Filter and Config are nil.
	Disabled bool
}
