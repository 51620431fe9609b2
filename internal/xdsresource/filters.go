package xdsresource

import (
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
)

// side is the end of an RPC that filters run at. What filters there are
// depends on it (gRFC A39).
type side int

const (
	onClient side = iota
	onServer
)

func (s side) String() string {
	if s == onServer {
		return "server"
	}
	return "client"
}

// filter returns the filter for a type of configuration, or nil if this side
// has none.
func (s side) filter(typeURL string) httpfilter.Filter {
	f := httpfilter.Get(typeURL)
	if f == nil {
		return nil
	}
	_, supported := f.(httpfilter.ClientFilter)
	if s == onServer {
		_, supported = f.(httpfilter.ServerFilter)
	}
	if !supported && !f.IsTerminal() { // The router ends the chains of both sides.
		return nil
	}
	return f
}

// httpFilters validates HttpConnectionManager.http_filters by the rules of
// gRFC A39, "Top-Level Filter Configs". at is the path of the manager.
func (v *validator) httpFilters(at *path, s side, pbs []*hcmpb.HttpFilter) []httpfilter.Instance {
	if len(pbs) == 0 {
		v.fault(at.field("http_filters"), "must have at least one filter")
		return nil
	}
	chain := filterChain{v: v, side: s, byName: make(map[string]int, len(pbs))}
	for i, pb := range pbs {
		chain.add(at.item("http_filters", i), i, pb)
	}
	chain.checkLast(at)
	return chain.filters
}

// filterChain collects the filters of one chain.
type filterChain struct {
	v       *validator
	side    side
	filters []httpfilter.Instance
	byName  map[string]int
	// last is the path of the last filter that was not ignored.
	last *path
	// lastUnknown says that this filter was at fault, so that there is no
	// telling whether it would have been terminal.
	lastUnknown bool
}

func (c *filterChain) add(at *path, i int, pb *hcmpb.HttpFilter) {
	c.checkName(at, i, pb.GetName())
	config := pb.GetTypedConfig()
	typeURL, ok := c.v.configType(at.field("typed_config"), pb.GetName(), config)
	filter := c.side.filter(typeURL)
	if ok && filter == nil && pb.GetIsOptional() {
		c.v.ignore(at, "filter %s: this %s has no filter for type %s; is_optional is set", quote(pb.GetName()), c.side, quote(typeURL))
		return
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
	parsed, err := filter.ParseConfig(config)
	if err != nil {
		c.v.fault(at.field("typed_config"), "filter %s: %v", quote(pb.GetName()), err)
	}
	disabled := pb.GetDisabled()
	if disabled && filter.IsTerminal() {
		c.v.ignore(at.field("disabled"), "filter %s: a terminal filter cannot be disabled", quote(pb.GetName()))
		disabled = false
	}
	c.filters = append(c.filters, httpfilter.Instance{Name: pb.GetName(), Filter: filter, Config: parsed, Disabled: disabled})
}

func (c *filterChain) unknown(at *path, pb *hcmpb.HttpFilter, typeURL string) {
	if pb.GetTypedConfig() == nil {
		c.v.fault(at, "filter %s: config_type must be typed_config, is %s", quote(pb.GetName()), whichOneof(pb, "config_type"))
		return
	}
	c.v.fault(at.field("typed_config"), "filter %s: this %s has no filter for type %s, and is_optional is not set",
		quote(pb.GetName()), c.side, quote(typeURL))
}

func (c *filterChain) checkName(at *path, i int, name string) {
	if name == "" {
		c.v.fault(at.field("name"), "must not be empty")
		return
	}
	if first, taken := c.byName[name]; taken {
		c.v.fault(at.field("name"), "%s is already the name of http_filters[%d]", quote(name), first)
		return
	}
	c.byName[name] = i
}

// checkNotTerminal is called when one more filter follows the last one.
func (c *filterChain) checkNotTerminal() {
	if c.last == nil || c.lastUnknown {
		return
	}
	if last := c.filters[len(c.filters)-1]; last.Filter.IsTerminal() {
		c.v.fault(c.last, "filter %s is terminal and must be the last of the chain", quote(last.Name))
	}
}

func (c *filterChain) checkLast(at *path) {
	switch {
	case c.last == nil:
		c.v.fault(at.field("http_filters"), "has only optional filters that this client does not know; the last filter must be a terminal one, such as the router")
	case c.lastUnknown:
	default:
		if last := c.filters[len(c.filters)-1]; !last.Filter.IsTerminal() {
			c.v.fault(c.last, "filter %s is not terminal; the last filter must be a terminal one, such as the router", quote(last.Name))
		}
	}
}

// configType returns the type that decides which filter a configuration is
// for: that which a TypedStruct stands for, or else its own (gRFC A39, "Top-Level
// Filter Configs"). It reports false if there is a fault that leaves the type unknown.
func (v *validator) configType(at *path, name string, config *anypb.Any) (typeURL string, ok bool) {
	typeURL, fields, err := httpfilter.TypedStruct(config)
	switch {
	case err != nil:
		v.fault(at, "filter %s: %v", quote(name), err)
		return "", false
	case fields == nil:
		return config.GetTypeUrl(), true
	}
	return typeURL, true
}
