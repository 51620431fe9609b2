package xdsresource

import (
	"fmt"
	"maps"
	"slices"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/filterchain"
)

// clientFilter returns the filter for a configuration type, or nil if clients have none.
func clientFilter(typeURL string) httpfilter.Filter {
	f := httpfilter.Get(typeURL)
	if _, runs := f.(httpfilter.ClientFilter); !runs && (f == nil || !f.IsTerminal()) { // The router ends the chains of servers, too.
		return nil
	}
	return f
}

// httpFilters validates HttpConnectionManager.http_filters by the rules of
// gRFC A39, "Top-Level Filter Configs". at is the path of the manager. The disabled filters that clients do not have come first.
func (d *validator) httpFilters(at *faults.Path, pbs []*hcmpb.HttpFilter) []httpfilter.Instance {
	if len(pbs) == 0 {
		d.fault(at.Field("http_filters"), "must have at least one filter")
		return nil
	}
	if !d.atMost(at.Field("http_filters"), len(pbs), bounds.HTTPFilters) {
		return nil
	}
	var absent, filters []httpfilter.Instance
	var places []*faults.Path // of filters
	byName := make(map[string]int, len(pbs))
	for i, pb := range pbs {
		at, name := at.Item("http_filters", i), pb.GetName()
		first, taken := byName[name]
		switch {
		case name == "":
			d.fault(at.Field("name"), "must not be empty")
		case taken:
			d.fault(at.Field("name"), "%s is already the name of http_filters[%d]", faults.Quote(name), first)
		default:
			byName[name] = i
		}
		in, counts := d.httpFilter(at, pb)
		if _, is := in.Filter.(absentFilter); is {
			absent = append(absent, in)
		} else if counts {
			filters, places = append(filters, in), append(places, at)
		}
	}
	for i, in := range filters {
		switch last := i == len(filters)-1; {
		case in.Filter == nil: // an error
		case !last && in.Filter.IsTerminal():
			d.fault(places[i], "filter %s is terminal and must be the last of the chain", faults.Quote(in.Name))
		case last && !in.Filter.IsTerminal():
			d.fault(places[i], "filter %s is not terminal; the last filter must be a terminal one, such as the router", faults.Quote(in.Name))
		}
	}
	if len(filters) == 0 {
		d.fault(at.Field("http_filters"), "has only optional and disabled filters that this client does not know; the last filter must be a terminal one, such as the router")
	}
	return append(absent, filters...)
}

// httpFilter decodes one filter, which has no Filter after an error. It reports false if the filter is left out.
func (d *validator) httpFilter(at *faults.Path, pb *hcmpb.HttpFilter) (in httpfilter.Instance, counts bool) {
	in.Name, in.Disabled = pb.GetName(), pb.GetDisabled()
	config, configAt, name := pb.GetTypedConfig(), at.Field("typed_config"), faults.Quote(in.Name)
	typeURL, ok := d.configType(configAt, in.Name, config)
	if !ok {
		return in, true
	}
	filter := clientFilter(typeURL)
	if filter == nil {
		unknown := fmt.Sprintf("filter %s: this client has no filter for type %s", name, faults.Quote(typeURL))
		switch {
		case pb.GetIsOptional():
			d.ignore(at, "%s; is_optional is set", unknown)
			return in, false
		case config == nil:
			d.fault(at, "filter %s: config_type must be typed_config, is %s", name, whichOneof(pb, "config_type"))
		case in.Disabled:
			d.ignore(at, "%s; disabled is set", unknown)
			in.Filter = absentFilter{typeURL}
		default:
			d.fault(configAt, "%s, and is_optional is not set", unknown)
		}
		return in, true
	}
	d.noteInert(configAt, filter)
	d.noteConfig(configAt, typeURL, config)
	var err error
	in.Filter = filter
	if in.Config, err = d.nested(configAt, clientFilter).parser(filter).ParseConfig(config); err != nil {
		d.fault(configAt, "filter %s: %v", name, err)
	}
	if in.Disabled && filter.IsTerminal() {
		d.ignore(at.Field("disabled"), "filter %s: a terminal filter cannot be disabled", name)
		in.Disabled = false
	}
	return in, true
}

// absentFilter stands for a disabled filter that clients do not have. An override of its type is
// rejected, as that type is unknown, too. RPCs of a route that enables it as it is configured fail.
type absentFilter struct{ typeURL string }

func (f absentFilter) TypeURLs() []string { return []string{f.typeURL} }

func (absentFilter) IsTerminal() bool { return false }

func (f absentFilter) ParseConfig(*anypb.Any) (httpfilter.Config, error) {
	return nil, f.err() // Not reached: it is not registered.
}

func (f absentFilter) NewClientInstance(httpfilter.ClientInstanceInfo) httpfilter.ClientInstance {
	return f
}

func (f absentFilter) ClientInterceptor(_, _ httpfilter.Config) (httpfilter.Interceptor, error) {
	return nil, f.err()
}

func (f absentFilter) err() error {
	return fmt.Errorf("the route enables it, and this client has no filter for type %s", faults.Quote(f.typeURL))
}

// configType returns the type that identifies the filter of a configuration: the type
// named in a TypedStruct, or else that of the configuration itself (gRFC A39, "Top-Level
// Filter Configs"). It reports false after an error.
func (v *validator) configType(at *faults.Path, name string, config *anypb.Any) (typeURL string, ok bool) {
	typeURL, _, err := httpfilter.TypedStruct(config)
	if err != nil {
		v.fault(at, "filter %s: %v", faults.Quote(name), err)
	}
	return typeURL, err == nil
}

// maxFilterDepth is how many configurations of filters may be in one another (gRFC A103, "xDS Resource Validation").
const maxFilterDepth = 8

// nestedConfigs parses the configuration of a filter and, if that has others in it, these.
type nestedConfigs struct {
	*validator
	at    *faults.Path // of the outermost one
	get   func(typeURL string) httpfilter.Filter
	depth int
	// count is how many are inside the outermost one so far.
	count *int
}

func (v *validator) nested(at *faults.Path, get func(typeURL string) httpfilter.Filter) nestedConfigs {
	return nestedConfigs{validator: v, at: at.Clone(), get: get, count: new(int)}
}

// parser returns the filter as it parses one configuration or override of this client.
func (n nestedConfigs) parser(filter httpfilter.Filter) httpfilter.Filter {
	n.depth++
	switch f := filter.(type) {
	case httpfilter.NestingFilter:
		filter = f.Nesting(n.parse)
	case httpfilter.ServiceFilter:
		if from := n.Bootstrap; from != nil {
			filter = f.WithServices(func(pb *corepb.GrpcService_GoogleGrpc) (httpfilter.Service, error) {
				return from.Service(pb, n.trusted)
			})
		}
	}
	if f, ok := filter.(interface {
		Counting(*int) httpfilter.OverrideParser
	}); ok {
		return f.Counting(&n.regexCost)
	}
	return filter
}

// parse is a httpfilter.NestedParser.
func (n nestedConfigs) parse(name string, config *anypb.Any) (in httpfilter.Instance, err error) {
	if n.depth == maxFilterDepth {
		return in, fmt.Errorf("filters are nested more than %d deep", maxFilterDepth)
	}
	if *n.count++; *n.count > bounds.NestedFilters {
		return in, fmt.Errorf("there are more than the %d filters inside one that this client takes", bounds.NestedFilters)
	}
	typeURL, _, err := httpfilter.TypedStruct(config)
	if err != nil {
		return in, fmt.Errorf("filter %s: %w", faults.Quote(name), err)
	}
	filter := n.get(typeURL)
	switch {
	case filter == nil:
		return in, fmt.Errorf("filter %s: this client has no filter for type %s", faults.Quote(name), faults.Quote(typeURL))
	case filter.IsTerminal():
		return in, fmt.Errorf("filter %s is terminal, and the chain goes on behind those inside another filter", faults.Quote(name))
	}
	parsed, err := n.parser(filter).ParseConfig(config)
	if err != nil {
		return in, fmt.Errorf("filter %s: %w", faults.Quote(name), err)
	}
	if inert, ok := filter.(interface{ Inert() string }); ok {
		n.ignore(n.at, "filter %s inside it: %s", faults.Quote(name), inert.Inert())
	}
	return httpfilter.Instance{Name: name, Filter: filter, Config: parsed}, nil
}

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
	filter := httpfilter.Get(typeURL) // A RouteConfiguration may be for servers, too.
	if filter == nil {
		unknown := fmt.Sprintf("filter %s: there is no filter for type %s", faults.Quote(name), faults.Quote(typeURL))
		if optional {
			d.ignore(at, "%s; is_optional is set", unknown)
		} else {
			d.fault(at, "%s, and is_optional is not set", unknown)
		}
		return FilterOverride{}, false
	}
	parser, ok := d.nested(at, httpfilter.Get).parser(filter).(httpfilter.OverrideParser)
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
