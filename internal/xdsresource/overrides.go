package xdsresource

import (
	"fmt"
	"maps"
	"slices"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
)

const filterConfigTypeURL = "type.googleapis.com/envoy.config.route.v3.FilterConfig"

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
	// Config is what Filter made of the override configuration. Entries of one
	// resource with the same configuration share it.
	Config httpfilter.Config
	// Disabled takes the instance out of the chain (FilterConfig.disabled);
	// then Filter and Config are nil.
	Disabled bool
}

// filterOverrides validates a typed_per_filter_config by the rules of gRFC
// A39, "Filter Config Overrides".
func (v *validator) filterOverrides(at *path, configs map[string]*anypb.Any) FilterOverrides {
	if len(configs) == 0 {
		return nil
	}
	overrides := make(FilterOverrides, len(configs))
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		at := at.field("typed_per_filter_config[" + quote(name) + "]")
		if o, ok := v.filterOverride(at, name, configs[name]); ok {
			overrides[v.intern(name)] = o
		}
	}
	return overrides
}

// filterOverride decodes one entry. It reports false if there is a fault, or
// if the entry is to be ignored.
func (v *validator) filterOverride(at *path, name string, config *anypb.Any) (FilterOverride, bool) {
	key := config.GetTypeUrl() + "\x00" + string(config.GetValue())
	if o, ok := v.overrides[key]; ok {
		return o, true
	}
	o, ok := v.newFilterOverride(at, name, config)
	if ok {
		if v.overrides == nil {
			v.overrides = make(map[string]FilterOverride)
		}
		v.overrides[key] = o
	}
	return o, ok
}

func (v *validator) newFilterOverride(at *path, name string, config *anypb.Any) (FilterOverride, bool) {
	optional := false
	if config.GetTypeUrl() == filterConfigTypeURL {
		wrapper := new(routepb.FilterConfig)
		if !v.unmarshal(at, config, filterConfigTypeURL, wrapper) {
			return FilterOverride{}, false
		}
		if wrapper.GetDisabled() {
			return FilterOverride{Disabled: true}, true
		}
		at, optional, config = at.field("config"), wrapper.GetIsOptional(), wrapper.GetConfig()
	}
	typeURL, ok := v.configType(at, name, config)
	if !ok {
		return FilterOverride{}, false
	}
	// Not only filters for clients: a RouteConfiguration may be for both sides.
	filter := httpfilter.Get(typeURL)
	if filter == nil {
		v.unknownOverride(at, name, typeURL, optional)
		return FilterOverride{}, false
	}
	parser, ok := filter.(httpfilter.OverrideParser)
	if !ok {
		v.fault(at, "filter %s: the filter for type %q takes no override configuration", quote(name), config.GetTypeUrl())
		return FilterOverride{}, false
	}
	parsed, err := parser.ParseOverride(config)
	if err != nil {
		v.fault(at, "filter %s: %v", quote(name), err)
		return FilterOverride{}, false
	}
	return FilterOverride{Filter: filter, Config: parsed}, true
}

func (v *validator) unknownOverride(at *path, name, typeURL string, optional bool) {
	what := fmt.Sprintf("filter %s: there is no filter for type %s", quote(name), quote(typeURL))
	if optional {
		v.ignore(at, "%s; is_optional is set", what)
		return
	}
	v.fault(at, "%s, and is_optional is not set", what)
}
