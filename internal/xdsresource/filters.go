package xdsresource

import (
	"fmt"

	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
)

// side is the end of an RPC that filters run at. Clients and servers support different
// filters (gRFC A39).
type side int

const (
	onClient side = iota
	onServer
	onEither // a RouteConfiguration may be for both
)

func (s side) String() string {
	if s == onServer {
		return "server"
	}
	return "client"
}

// filter returns the filter for a configuration type, or nil if this side does not support
// one.
func (s side) filter(typeURL string) httpfilter.Filter {
	f := httpfilter.Get(typeURL)
	if f == nil {
		return nil
	}
	_, supported := f.(httpfilter.ClientFilter)
	switch s {
	case onServer:
		_, supported = f.(httpfilter.ServerFilter)
	case onEither:
		supported = true
	}
	if !supported && !f.IsTerminal() { // The router ends the chains of both sides.
		return nil
	}
	return f
}

// httpFilters validates HttpConnectionManager.http_filters by the rules of
// gRFC A39, "Top-Level Filter Configs". at is the path of the manager.
func (d listenerDecoder) httpFilters(at *faults.Path, s side, pbs []*hcmpb.HttpFilter) []httpfilter.Instance {
	if len(pbs) == 0 {
		d.fault(at.Field("http_filters"), "must have at least one filter")
		return nil
	}
	if !d.atMost(at.Field("http_filters"), len(pbs), bounds.HTTPFilters) {
		return nil
	}
	chain := filterChain{validator: d.validator, side: s, byName: make(map[string]int, len(pbs))}
	for i, pb := range pbs {
		chain.add(at.Item("http_filters", i), i, pb)
	}
	chain.checkLast(at)
	return append(chain.leftOut, chain.filters...)
}

// filterChain collects the filters of one chain.
type filterChain struct {
	*validator
	side    side
	filters []httpfilter.Instance
	// leftOut are the disabled filters that this side does not have.
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
	filter := c.side.filter(typeURL)
	if ok && filter == nil {
		why := ""
		switch {
		case pb.GetIsOptional():
			why = "is_optional is set"
		case pb.GetDisabled() && config != nil:
			why = "disabled is set"
			c.leftOut = append(c.leftOut, httpfilter.Instance{Name: pb.GetName(), Filter: absentFilter{c.side, typeURL}, Disabled: true})
		}
		if why != "" {
			c.ignore(at, "filter %s: this %s has no filter for type %s; %s", faults.Quote(pb.GetName()), c.side, faults.Quote(typeURL), why)
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
	parsed, err := c.nested(at.Field("typed_config"), c.side).parser(filter).ParseConfig(config)
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

// absentFilter stands for a disabled filter that a side does not have. An override of its type is
// rejected, as that type is unknown, too. RPCs of a route that enables it as it is configured fail.
type absentFilter struct {
	side    side
	typeURL string
}

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
	return fmt.Errorf("the route enables it, and this %s has no filter for type %s", f.side, faults.Quote(f.typeURL))
}

func (c *filterChain) unknown(at *faults.Path, pb *hcmpb.HttpFilter, typeURL string) {
	if pb.GetTypedConfig() == nil {
		c.fault(at, "filter %s: config_type must be typed_config, is %s", faults.Quote(pb.GetName()), whichOneof(pb, "config_type"))
		return
	}
	c.fault(at.Field("typed_config"), "filter %s: this %s has no filter for type %s, and is_optional is not set",
		faults.Quote(pb.GetName()), c.side, faults.Quote(typeURL))
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
