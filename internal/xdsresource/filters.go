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
// gRFC A39, "Top-Level Filter Configs". at is the path of the manager.
func (d *validator) httpFilters(at *faults.Path, pbs []*hcmpb.HttpFilter) []httpfilter.Instance {
	if len(pbs) == 0 {
		d.fault(at.Field("http_filters"), "must have at least one filter")
		return nil
	}
	if !d.atMost(at.Field("http_filters"), len(pbs), bounds.HTTPFilters) {
		return nil
	}
	chain := filterChain{validator: d, byName: make(map[string]int, len(pbs))}
	for i, pb := range pbs {
		chain.add(at.Item("http_filters", i), i, pb)
	}
	chain.checkLast(at)
	return append(chain.leftOut, chain.filters...)
}

// filterChain collects the filters of one chain.
type filterChain struct {
	*validator
	filters []httpfilter.Instance
	// leftOut are the disabled filters that clients do not have.
	leftOut []httpfilter.Instance
	byName  map[string]int
	// last is the path of the last filter that was not ignored.
	last *faults.Path
	// lastUnknown says that this filter was at fault, so that it is not known whether
	// it is terminal.
	lastUnknown bool
}

func (c *filterChain) add(at *faults.Path, i int, pb *hcmpb.HttpFilter) {
	c.checkName(at, i, pb.GetName())
	config := pb.GetTypedConfig()
	typeURL, ok := c.configType(at.Field("typed_config"), pb.GetName(), config)
	filter := clientFilter(typeURL)
	if ok && filter == nil {
		why := ""
		switch {
		case pb.GetIsOptional():
			why = "is_optional is set"
		case pb.GetDisabled() && config != nil:
			why = "disabled is set"
			c.leftOut = append(c.leftOut, httpfilter.Instance{Name: pb.GetName(), Filter: absentFilter{typeURL}, Disabled: true})
		}
		if why != "" {
			c.ignore(at, "filter %s: this client has no filter for type %s; %s", faults.Quote(pb.GetName()), faults.Quote(typeURL), why)
			return
		}
	}
	c.checkNotTerminal()
	c.last, c.lastUnknown = at, true
	if !ok {
		return
	}
	if filter == nil {
		c.unknown(at, pb, typeURL)
		return
	}
	c.lastUnknown = false
	c.noteInert(at.Field("typed_config"), filter)
	c.noteConfig(at.Field("typed_config"), typeURL, config)
	parsed, err := c.nested(at.Field("typed_config"), clientFilter).parser(filter).ParseConfig(config)
	if err != nil {
		c.fault(at.Field("typed_config"), "filter %s: %v", faults.Quote(pb.GetName()), err)
	}
	disabled := pb.GetDisabled()
	if disabled && filter.IsTerminal() {
		c.ignore(at.Field("disabled"), "filter %s: a terminal filter cannot be disabled", faults.Quote(pb.GetName()))
		disabled = false
	}
	c.filters = append(c.filters, httpfilter.Instance{Name: pb.GetName(), Filter: filter, Config: parsed, Disabled: disabled})
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

func (c *filterChain) unknown(at *faults.Path, pb *hcmpb.HttpFilter, typeURL string) {
	if pb.GetTypedConfig() == nil {
		c.fault(at, "filter %s: config_type must be typed_config, is %s", faults.Quote(pb.GetName()), whichOneof(pb, "config_type"))
		return
	}
	c.fault(at.Field("typed_config"), "filter %s: this client has no filter for type %s, and is_optional is not set",
		faults.Quote(pb.GetName()), faults.Quote(typeURL))
}

func (c *filterChain) checkName(at *faults.Path, i int, name string) {
	if name == "" {
		c.fault(at.Field("name"), "must not be empty")
		return
	}
	if first, taken := c.byName[name]; taken {
		c.fault(at.Field("name"), "%s is already the name of http_filters[%d]", faults.Quote(name), first)
		return
	}
	c.byName[name] = i
}

// checkNotTerminal is called when another filter follows the last one.
func (c *filterChain) checkNotTerminal() {
	if c.last == nil || c.lastUnknown {
		return
	}
	if last := c.filters[len(c.filters)-1]; last.Filter.IsTerminal() {
		c.fault(c.last, "filter %s is terminal and must be the last of the chain", faults.Quote(last.Name))
	}
}

func (c *filterChain) checkLast(at *faults.Path) {
	switch {
	case c.last == nil:
		c.fault(at.Field("http_filters"), "has only optional and disabled filters that this client does not know; the last filter must be a terminal one, such as the router")
	case c.lastUnknown:
	default:
		if last := c.filters[len(c.filters)-1]; !last.Filter.IsTerminal() {
			c.fault(c.last, "filter %s is not terminal; the last filter must be a terminal one, such as the router", faults.Quote(last.Name))
		}
	}
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
		return f.Nesting(n.parse)
	case httpfilter.ServiceFilter:
		if from := n.Bootstrap; from != nil {
			return f.WithServices(func(pb *corepb.GrpcService_GoogleGrpc) (httpfilter.Service, error) {
				return from.Service(pb, n.trusted)
			})
		}
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
		d.unknownOverride(at, name, typeURL, optional)
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

func (d *routeDecoder) unknownOverride(at *faults.Path, name, typeURL string, optional bool) {
	what := fmt.Sprintf("filter %s: there is no filter for type %s", faults.Quote(name), faults.Quote(typeURL))
	if optional {
		d.ignore(at, "%s; is_optional is set", what)
		return
	}
	d.fault(at, "%s, and is_optional is not set", what)
}
