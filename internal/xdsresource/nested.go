package xdsresource

import (
	"fmt"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
)

// maxFilterDepth is how many configurations of filters may be in one another (gRFC A103, "xDS Resource Validation").
const maxFilterDepth = 8

// nestedConfigs parses the configuration of a filter and, if that has others in it, these.
type nestedConfigs struct {
	*validator
	at    *faults.Path // of the outermost one
	side  side
	depth int
	// count is how many are inside the outermost one so far.
	count *int
}

func (v *validator) nested(at *faults.Path, s side) nestedConfigs {
	return nestedConfigs{validator: v, at: at.Clone(), side: s, count: new(int)}
}

// parser returns the filter as it parses one configuration or override of this client.
func (n nestedConfigs) parser(filter httpfilter.Filter) httpfilter.Filter {
	n.depth++
	switch f := filter.(type) {
	case httpfilter.NestingFilter:
		return f.Nesting(n.parse)
	case httpfilter.ServiceFilter:
		if from := n.bootstrap; from != nil {
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
	filter := n.side.filter(typeURL)
	switch {
	case filter == nil:
		return in, fmt.Errorf("filter %s: this %s has no filter for type %s", faults.Quote(name), n.side, faults.Quote(typeURL))
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
