package soak

import (
	"fmt"
	"maps"
	"slices"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds/mesh/meshroute"
)

// policyOps change who makes the routes.
var policyOps = []op{
	{"routes come from MeshHTTPRoute policies, or no longer", 4, func(r *run) bool {
		return r.changeRoutes(func(c *config) { c.byPolicy = !c.byPolicy })
	}},
	{"policies change", 3, func(r *run) bool {
		return r.changeRoutes(func(c *config) {
			c.byPolicy = true
			r.reroute(c)
		})
	}},
}

// consumer is the service that clients are for policies.
const consumer = "client"

// byPolicies are the routes of a lane as two MeshHTTPRoute policies make them. The owner of the service routes all
// methods, every other one to a cluster that nobody has; the policy of the clients overrides it there, and adds the headers.
func (c *config) byPolicies(l lane) []*routepb.Route {
	headers := fmt.Sprintf("{name: %s, value: %q}", versionHeader, fmt.Sprint(c.version))
	if l != unlaned {
		headers += fmt.Sprintf(", {name: %s, value: %s}", laneHeader, l)
	}
	filters := "filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {set: [" + headers + "]}}]"
	methods := slices.Sorted(maps.Keys(c.routes[l]))
	var owner, client string
	for i, method := range methods {
		byOwner, byClient := backendRefs(c.routes[l][method]...), filters
		if i%2 == 1 {
			byOwner, byClient = backendRefs("nobody"), byOwner+", "+filters
		}
		owner += ruleFor("Exact", method, byOwner)
		client += ruleFor("Exact", method, byClient)
	}
	owner += ruleFor("Prefix", "/", backendRefs(c.routes[l][methods[0]]...))
	const policy = "name: %s\nspec: {targetRef: {%s}, to: [{targetRef: {kind: MeshService, name: %s}, rules: [%s]}]}\n---\n"
	return c.build(l, fmt.Sprintf(policy, "owner", "kind: Mesh", service, owner)+
		fmt.Sprintf(policy, "client", "kind: MeshService, name: "+consumer, service, client))
}

// ruleFor is a rule for a path.
func ruleFor(match, path, fields string) string {
	return fmt.Sprintf("{matches: [{path: {type: %s, value: %s}}], %s}, ", match, path, fields)
}

// backendRefs are the clusters of a rule, with equal weights.
func backendRefs(clusters ...string) string {
	text := ""
	for _, name := range clusters {
		text += "{kind: MeshService, name: " + name + ", weight: 1}, "
	}
	return "backendRefs: [" + text + "]"
}

// build builds the routes of clients of a lane by policies, whose text is the model's own.
func (c *config) build(l lane, text string) []*routepb.Route {
	policies, err := meshroute.Parse("policies.yaml", []byte(text))
	if err != nil {
		panic(fmt.Sprintf("%v in\n%s", err, text))
	}
	own := &meshroute.Service{Name: service, Route: new(routepb.RouteAction)}
	if c.retry {
		own.Route.RetryPolicy = retryPolicy()
	}
	services := []*meshroute.Service{own}
	for name := range c.clusters {
		services = append(services, &meshroute.Service{Name: name})
	}
	mesh, err := meshroute.Build(meshroute.Input{Services: services, Policies: policies, Authority: string(l.names())}, nil)
	if err != nil {
		panic(fmt.Sprintf("%v in\n%s", err, text))
	}
	built := mesh.Routes(meshroute.Client{Service: consumer}, service).Message.(*routepb.RouteConfiguration)
	return built.VirtualHosts[0].Routes
}
