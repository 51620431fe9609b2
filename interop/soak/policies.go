package soak

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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
	var owner, client strings.Builder
	header := func(b *strings.Builder, source, selects string) {
		fmt.Fprintf(b, "name: %s\nspec:\n  targetRef: %s\n  to:\n  - targetRef: {kind: MeshService, name: %s}\n    rules:\n", source, selects, service)
	}
	rule := func(b *strings.Builder, match, method string) {
		fmt.Fprintf(b, "    - matches: [{path: {type: %s, value: %s}}]\n", match, method)
	}
	backends := func(b *strings.Builder, clusters ...string) {
		b.WriteString("      backendRefs:\n")
		for _, name := range clusters {
			fmt.Fprintf(b, "      - {kind: MeshService, name: %s, weight: 1}\n", name)
		}
	}
	filter := fmt.Sprintf("      filters:\n      - {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: %s, value: %q}%s]}}\n",
		versionHeader, fmt.Sprint(c.version), l.header())
	header(&owner, "owner", "{kind: Mesh}")
	header(&client, "client", "{kind: MeshService, name: "+consumer+"}")
	methods := slices.Sorted(maps.Keys(c.routes[l]))
	for i, method := range methods {
		clusters := c.routes[l][method]
		rule(&owner, "Exact", method)
		rule(&client, "Exact", method)
		client.WriteString(filter)
		if i%2 == 0 {
			backends(&owner, clusters...)
			continue
		}
		backends(&owner, "nobody")
		backends(&client, clusters...)
	}
	rule(&owner, "Prefix", "/")
	backends(&owner, c.routes[l][methods[0]]...)
	return c.build(l, owner.String()+"---\n"+client.String())
}

// header is that of the lane, in a list of headers.
func (l lane) header() string {
	if l == unlaned {
		return ""
	}
	return fmt.Sprintf(", {name: %s, value: %q}", laneHeader, string(l))
}

// build builds the routes of clients of a lane by policies, whose text is the model's own.
func (c *config) build(l lane, text string) []*routepb.Route {
	policies, err := meshroute.Parse("policies.yaml", []byte(text))
	if err != nil {
		panic(fmt.Sprintf("%v in\n%s", err, text))
	}
	own := &meshroute.Service{Name: service, Route: new(routepb.RouteAction)}
	if c.retry {
		own.Route.RetryPolicy = retries()
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
