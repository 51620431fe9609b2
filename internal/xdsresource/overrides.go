package xdsresource

import (
	"fmt"
	"maps"
	"slices"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/filterchain"
)

const filterConfigTypeURL = "type.googleapis.com/envoy.config.route.v3.FilterConfig"

// FilterOverrides is the typed_per_filter_config of one level (VirtualHost, Route or
// ClusterWeight), by the name of the filter instance. It may have names that are in no
// chain, and filters of another type than the instance (gRFC A39, "Filter Config
// Overrides"). For each instance only the most specific level that has its name counts.
type FilterOverrides map[string]FilterOverride

// FilterOverride is one entry of FilterOverrides.
type FilterOverride struct {
	// Filter is the type of filter that the configuration is for. nil if the
	// entry only disables the instance, or enables it as it is configured (FilterConfig with
	// an empty config).
	Filter httpfilter.Filter
	// Config is the override configuration as parsed by Filter. Entries of one
	// resource with the same configuration share it.
	Config httpfilter.Config
	// Disabled takes the instance out of the chain (FilterConfig.disabled);
	// then Filter and Config are nil.
	Disabled bool
}

// OverrideOf returns the entry that applies to a filter instance, and its index in levels, which
// begin with the most specific one. The index is -1 if there is none. Entries for another type
// of filter than that of the instance are passed over; other is the first of these types, or
// nil. By gRFC A39 they are no error, as a RouteConfiguration may serve several Listeners, which
// use a name differently.
func OverrideOf(in *httpfilter.Instance, levels []FilterOverrides) (level int, o FilterOverride, other httpfilter.Filter) {
	for level, overrides := range levels {
		o, ok := overrides[in.Name]
		switch {
		case !ok:
		case o.Disabled, o.Filter == nil, o.Config == nil, filterchain.TypeOf(o.Filter) == filterchain.TypeOf(in.Filter):
			return level, o, other
		case other == nil:
			other = o.Filter
		}
	}
	return -1, FilterOverride{}, other
}

// knownOverride is an override with what is ignored of it.
type knownOverride struct {
	FilterOverride
	noted []int
}

// filterOverrides validates a typed_per_filter_config by the rules of gRFC
// A39, "Filter Config Overrides".
func (d *routeDecoder) filterOverrides(at *faults.Path, configs map[string]*anypb.Any) FilterOverrides {
	if len(configs) == 0 {
		return nil
	}
	d.tied = true
	overrides := make(FilterOverrides, len(configs))
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		at := at.Field("typed_per_filter_config[" + faults.Quote(name) + "]")
		if o, ok := d.filterOverride(at, name, configs[name]); ok {
			overrides[d.intern(name)] = o
		}
	}
	return overrides
}

// filterOverride decodes one entry. It reports false after an error, and for an entry that
// is ignored.
func (d *routeDecoder) filterOverride(at *faults.Path, name string, config *anypb.Any) (FilterOverride, bool) {
	key := config.GetTypeUrl() + "\x00" + string(config.GetValue())
	if known, ok := d.overrides[key]; ok {
		d.ignored.addAgain(known.noted)
		d.ignored.noted = append(d.ignored.noted, known.noted...)
		return known.FilterOverride, true
	}
	before := len(d.ignored.noted)
	o, ok := d.newFilterOverride(at, name, config)
	if !ok {
		return o, false
	}
	d.noteInert(at, o.Filter)
	d.overrides[key] = knownOverride{o, slices.Clone(d.ignored.noted[before:])}
	return o, true
}

func (d *routeDecoder) newFilterOverride(at *faults.Path, name string, config *anypb.Any) (FilterOverride, bool) {
	optional := false
	if config.GetTypeUrl() == filterConfigTypeURL {
		wrapper := new(routepb.FilterConfig)
		if !d.unmarshal(at, config, filterConfigTypeURL, wrapper) {
			return FilterOverride{}, false
		}
		if wrapper.GetDisabled() {
			return FilterOverride{Disabled: true}, true
		}
		at, optional, config = at.Field("config"), wrapper.GetIsOptional(), wrapper.GetConfig()
		if config != nil && config.GetTypeUrl() == "" {
			return FilterOverride{}, true // As in Envoy, it enables the instance.
		}
	}
	typeURL, ok := d.configType(at, name, config)
	if !ok {
		return FilterOverride{}, false
	}
	filter := onEither.filter(typeURL)
	if filter == nil {
		d.unknownOverride(at, name, typeURL, optional)
		return FilterOverride{}, false
	}
	parser, ok := d.nested(at, onEither).parser(filter).(httpfilter.OverrideParser)
	if !ok {
		d.fault(at, "filter %s: the filter for type %q takes no override configuration", faults.Quote(name), config.GetTypeUrl())
		return FilterOverride{}, false
	}
	d.noteConfig(at, typeURL, config)
	parsed, err := parser.ParseOverride(config)
	if err != nil {
		d.fault(at, "filter %s: %v", faults.Quote(name), err)
		return FilterOverride{}, false
	}
	return FilterOverride{Filter: filter, Config: parsed}, true
}

func (d *routeDecoder) unknownOverride(at *faults.Path, name, typeURL string, optional bool) {
	what := fmt.Sprintf("filter %s: there is no filter for type %s", faults.Quote(name), faults.Quote(typeURL))
	if optional {
		d.ignore(at, "%s; is_optional is set", what)
		return
	}
	d.fault(at, "%s, and is_optional is not set", what)
}
