package soak

import (
	"encoding/json"
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

// object is an object of a policy.
type object = map[string]any

// byPolicies are the routes of a lane as two MeshHTTPRoute policies make them. The owner of the service routes all
// methods, every other one to a cluster that nobody has; the policy of the clients overrides it there, and adds the headers.
func (c *config) byPolicies(l lane) []*routepb.Route {
	headers := []object{{"name": versionHeader, "value": fmt.Sprint(c.version)}}
	if l != unlaned {
		headers = append(headers, object{"name": laneHeader, "value": string(l)})
	}
	filters := []object{{"type": "ResponseHeaderModifier", "responseHeaderModifier": object{"set": headers}}}
	methods := slices.Sorted(maps.Keys(c.routes[l]))
	var owner, client []object
	for i, method := range methods {
		byOwner, byClient := ruleFor("Exact", method), ruleFor("Exact", method)
		byClient["filters"] = filters
		clusters := backendRefs(c.routes[l][method])
		if i%2 == 0 {
			byOwner["backendRefs"] = clusters
		} else {
			byOwner["backendRefs"] = backendRefs([]string{"nobody"})
			byClient["backendRefs"] = clusters
		}
		owner, client = append(owner, byOwner), append(client, byClient)
	}
	rest := ruleFor("Prefix", "/")
	rest["backendRefs"] = backendRefs(c.routes[l][methods[0]])
	return c.build(l, policy("owner", object{"kind": "Mesh"}, append(owner, rest))+
		policy("client", object{"kind": "MeshService", "name": consumer}, client))
}

// ruleFor is a rule for a path.
func ruleFor(match, path string) object {
	return object{"matches": []object{{"path": object{"type": match, "value": path}}}}
}

// backendRefs are the clusters of a rule, with equal weights.
func backendRefs(clusters []string) (all []object) {
	for _, name := range clusters {
		all = append(all, object{"kind": "MeshService", "name": name, "weight": 1})
	}
	return all
}

// policy is the document of a policy for the service, of the clients that it selects.
func policy(name string, selects object, rules []object) string {
	to := object{"targetRef": object{"kind": "MeshService", "name": service}, "rules": rules}
	text, err := json.Marshal(object{"name": name, "spec": object{"targetRef": selects, "to": []object{to}}})
	if err != nil {
		panic(err) // it has no text but the model's own
	}
	return string(text) + "\n---\n"
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
