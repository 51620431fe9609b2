package meshroute

import (
	"fmt"
	"slices"
	"strings"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// destination is the routes to a service, or the errors in place of a service that only policies name.
type destination struct {
	service string
	exists  bool
	// settings are those of the service, or nil, and sessions is the name of its filter for sessions.
	settings *routepb.RouteAction
	sessions string
	// parts are those that count, from least to most specific.
	parts []*meshpolicy.To
	// variants are those of the routes, none if there is no service and no policy for it.
	variants *variants
	// others are the Cluster without endpoints for unsupported rules, and its assignment, if routes lead there, or the errors in place of the
	// Listener and the Clusters of a service that does not exist.
	others  []*Resource
	reports []Report
}

// resources returns all; nil has none.
func (d *destination) resources() []*Resource {
	if d == nil {
		return nil
	}
	return slices.Concat(d.variants.list, d.others)
}

// compiler compiles the routes to one service.
type compiler struct {
	*destination
	naming naming
	places places
	// separate is Input.Separate.
	separate bool
	// given are all parts of policies for the service, from least to most specific, and from those that send requests to it.
	given, from []*meshpolicy.To
	// known reports whether there is a service of that name.
	known func(service string) bool
}

func (c *compiler) compile() {
	name := c.naming.resource(RouteConfigurationType, c.service)
	leftOut := c.admit()
	if !c.exists {
		c.absent(name)
		c.missingBackends()
		return
	}
	var ok bool
	if c.variants, ok = c.makeVariants(name); !ok {
		c.variants = single(name, c.service, tooMany())
	}
	c.report(leftOut, !ok)
	if c.anyRule(func(rule meshpolicy.Rule) bool { return redirects(&rule) }) {
		c.others = c.naming.emptyCluster(deadID(c.service), c.service)
	}
}

// admit sets the parts that count, and returns the others.
func (c *compiler) admit() (leftOut []*meshpolicy.To) {
	if c.parts = c.given; c.separate {
		c.parts, leftOut = admit(c.given, perService)
		slices.SortFunc(c.parts, (*meshpolicy.To).Compare)
	}
	return leftOut
}

func (c *compiler) anyRule(has func(meshpolicy.Rule) bool) bool {
	return slices.ContainsFunc(c.parts, func(p *meshpolicy.To) bool { return slices.ContainsFunc(p.Rules, has) })
}

// beyondGRPC reports whether clients that know only the routes of gRFC A28 would reject or misread a
// rule.
func beyondGRPC(r meshpolicy.Rule) bool {
	return redirects(&r) || slices.ContainsFunc(r.Matches, func(m meshpolicy.Match) bool { return len(m.Methods)+len(m.Query) > 0 })
}

// misses reports whether a rule sends requests to a service that does not exist.
func (c *compiler) misses(r meshpolicy.Rule) bool {
	return slices.ContainsFunc(r.BackendRefs, func(ref meshpolicy.BackendRef) bool { return !c.known(ref.Name) })
}

// absent makes the errors in place of a missing service that policies are for.
func (c *compiler) absent(name string) {
	if len(c.given) == 0 {
		return
	}
	var names []string
	for _, p := range c.parts {
		if p.TargetRef.Name != "" { // other parts are for all services
			names = append(names, "policy "+p.Policy.Name)
			c.add(reportOn(p, Error, fmt.Sprintf("the mesh has no service %q", c.service)))
		}
	}
	slices.Sort(names)
	err := status.Newf(codes.NotFound, "the mesh has no service %q, which is named by %s", c.service, strings.Join(names, ", "))
	c.others = []*Resource{{TypeURL: ListenerType, Name: c.naming.resource(ListenerType, c.service), Service: c.service, Err: err}}
	c.variants = single(name, c.service, err)
}

// redirects reports whether requests go to no backend.
func redirects(r *meshpolicy.Rule) bool {
	return r.Nowhere() || r.Redirects()
}
