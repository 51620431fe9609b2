package meshroute

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// destination is the routes to a service, or the errors in place of a service that only policies name.
type destination struct {
	service string
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
	// mesh has the services, and what policies say of them.
	mesh *Mesh
	// own is what the service has for itself, nil for a missing one.
	own *serviceResources
	// leadsNowhere says that a route leads to the Cluster without endpoints.
	leadsNowhere bool
}

// compile makes the routes out of the parts of policies for the service, from the least to the most specific one.
func (c *compiler) compile(parts []*meshpolicy.To) {
	name := c.mesh.naming.resource(RouteConfigurationType, c.service)
	var leftOut []*meshpolicy.To
	if c.parts = parts; c.mesh.in.Separate {
		c.parts, leftOut = admit(parts, perService)
		slices.SortFunc(c.parts, (*meshpolicy.To).Compare)
	}
	if c.own == nil {
		if len(parts) > 0 {
			c.absent(name)
		}
		c.missingBackends()
		return
	}
	var ok bool
	if c.variants, ok = c.makeVariants(name); !ok {
		c.variants = single(name, c.service, tooMany())
	}
	c.report(leftOut, !ok)
	if c.leadsNowhere {
		c.others = c.mesh.naming.emptyCluster(deadID(c.service), c.service)
	}
}

func (c *compiler) anyRule(has func(meshpolicy.Rule) bool) bool {
	return slices.ContainsFunc(c.parts, func(p *meshpolicy.To) bool { return slices.ContainsFunc(p.Rules, has) })
}

// beyondGRPC reports whether clients that know only the routes of gRFC A28 would reject or misread a
// rule.
func beyondGRPC(r meshpolicy.Rule) bool {
	return r.Nowhere() || r.Redirects() || slices.ContainsFunc(r.Matches, func(m meshpolicy.Match) bool { return len(m.Methods)+len(m.Query) > 0 })
}

// misses reports whether a rule sends requests to a service that does not exist.
func (c *compiler) misses(r meshpolicy.Rule) bool {
	return slices.ContainsFunc(r.BackendRefs, func(ref meshpolicy.BackendRef) bool { return c.mesh.service(ref.Name) == nil })
}

// absent makes the errors in place of a missing service that policies are for.
func (c *compiler) absent(name string) {
	var names []string
	for _, p := range c.parts {
		if p.TargetRef.Name != "" { // other parts are for all services
			names = append(names, p.Policy.Name)
			c.add(onPart(p).says(Error, "the mesh has no service %q", c.service))
		}
	}
	err := status.Newf(codes.NotFound, "the mesh has no service %q, which is named by %s", c.service, namesOf(names))
	c.others = []*Resource{{TypeURL: ListenerType, Name: c.mesh.naming.resource(ListenerType, c.service), Service: c.service, Err: err}}
	c.variants = single(name, c.service, err)
}
