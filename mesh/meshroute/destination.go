package meshroute

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strings"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// destination is a service with its policies.
type destination struct {
	*compiled
	// placed has the routes with the places of their parts, nil if places are not written.
	placed *placedRoutes
	// parts are the policies' parts for it that count, from least to most specific; given are all of them.
	parts, given []meshpolicy.Part
}

// compiled depends only on the digest, and is shared by builds.
type compiled struct {
	digest   [sha256.Size]byte
	variants *variants
	// missing is the error in place of the Listener of a service that does not exist.
	missing *Resource
	// dead are the Cluster without endpoints for unsupported rules, and its assignment, if routes
	// lead there.
	dead     []*Resource
	findings []finding
}

func (d *destination) sameAs(o *destination) bool {
	return d != nil && o != nil && d.compiled == o.compiled && d.placed == o.placed
}

// routes are the variants of the RouteConfiguration, or the error in its place.
func (d *destination) routes() []*Resource {
	if d.placed != nil {
		return d.placed.list
	}
	return d.variants.list
}

// compiler compiles the routes to one service.
type compiler struct {
	naming  naming
	service string
	exists  bool
	parts   []meshpolicy.Part
	// leftOut are further parts, which do not count.
	leftOut []meshpolicy.Part
	// unbounded says that the parts are bounded already.
	unbounded bool
	// settings are those of the service, or nil, and sessions is the name of its filter for sessions.
	settings *routepb.RouteAction
	sessions string
	// known reports whether there is a service of that name.
	known func(service string) bool
}

// digest is equal for inputs with equal results of compile.
func (c *compiler) digest() [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q %t\n", c.service, c.exists)
	for _, p := range c.parts {
		to := &p.Policy.To[p.To]
		// Findings contain positions.
		fmt.Fprintf(h, "%q %q %d %s %t\n%s\n", p.Policy.Kind, p.Policy.Name, p.To, p.Policy.TargetKey(), p.Policy.Complete, to.Digest())
		for _, name := range to.Services() {
			fmt.Fprintf(h, "%t", c.known(name))
		}
	}
	for _, p := range c.leftOut {
		fmt.Fprintf(h, "left out %q %d\n", p.Policy.Name, p.To)
	}
	fmt.Fprintf(h, "\n%q", c.sessions)
	if c.settings != nil {
		// Text and names of a valid message are UTF-8; a service with others is a fault.
		packed, _ := proto.MarshalOptions{Deterministic: true}.Marshal(c.settings)
		fmt.Fprintf(h, "\nsettings %x", packed)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func (c *compiler) compile() *compiled {
	name := c.naming.resource(RouteConfigurationType, c.service)
	if !c.exists {
		return c.absent(name)
	}
	r := &compiled{}
	kinds, rules := maxVariants, maxRules
	if c.unbounded {
		kinds, rules = math.MaxInt, math.MaxInt
	}
	variants, ok := c.variants(name, kinds, rules)
	if !ok {
		variants = single(name, c.service, tooMany())
	}
	r.variants = variants
	r.findings = c.findings(!ok)
	if c.anyRule(func(rule meshpolicy.Rule) bool { return redirects(&rule) }) {
		r.dead = c.naming.deadCluster(c.service)
	}
	return r
}

func (c *compiler) anyRule(has func(meshpolicy.Rule) bool) bool {
	return slices.ContainsFunc(c.parts, func(p meshpolicy.Part) bool { return slices.ContainsFunc(p.Rules(), has) })
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

// absent is the result for a missing service.
func (c *compiler) absent(name string) *compiled {
	err := status.Newf(codes.NotFound, "the mesh has no service %q, which is named by %s", c.service, c.policyNames())
	r := &compiled{missing: &Resource{TypeURL: ListenerType, Name: c.naming.resource(ListenerType, c.service), Service: c.service, Err: err}}
	r.variants = single(name, c.service, &outcome{err: err})
	for _, p := range c.named() {
		r.findings = append(r.findings, finding{severity: Error, policy: p.Policy.Name, to: p.To, rule: -1,
			message: fmt.Sprintf("the mesh has no service %q", c.service)})
	}
	return r
}

// named returns the parts that name this service.
func (c *compiler) named() []meshpolicy.Part {
	return slices.DeleteFunc(slices.Clone(c.parts), func(p meshpolicy.Part) bool {
		return p.Policy.To[p.To].TargetRef.Name == ""
	})
}

func (c *compiler) policyNames() string {
	var names []string
	for _, p := range c.named() {
		names = append(names, "policy "+p.Policy.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// conditions are the tags of the clients of the parts. If routes have what clients of gRFC A28 cannot use, theirs follow.
func (c *compiler) conditions() []map[string]string {
	list := conditionsOf(c.parts)
	if c.anyRule(beyondGRPC) || c.anyRule(c.misses) {
		list = append(list, map[string]string{meshpolicy.RoutesKey: meshpolicy.GRPCRoutes})
	}
	return list
}

func conditionsOf(parts []meshpolicy.Part) []map[string]string {
	list := make([]map[string]string, len(parts))
	for i, p := range parts {
		list[i] = conditionOf(p.Policy.TargetRef)
	}
	return list
}

// outcome returns what clients with these of the conditions get, a key that is equal for equal outcomes, and the number of
// rules.
func (c *compiler) outcome(holding []int) (o *outcome, key string, size int) {
	table := routeTable{naming: c.naming, service: c.service, known: c.known, settings: c.settings, sessions: c.sessions}
	slices.Sort(holding)
	if last := len(holding) - 1; last >= 0 && holding[last] == len(c.parts) {
		table.grpc, holding = true, holding[:last]
	}
	parts := make([]meshpolicy.Part, len(holding))
	for i, part := range holding {
		parts[i] = c.parts[part]
	}
	merged := meshpolicy.MergeParts(parts)
	// Rules may differ in what makes no difference to routes.
	routes, rules := table.configuration(merged)
	packed, err := proto.MarshalOptions{Deterministic: true}.Marshal(routes)
	if err != nil {
		// Only text that is not UTF-8 could fail, and Parse accepts none.
		internal := status.Newf(codes.Internal, "the routes to %q cannot be serialized: %v", c.service, err)
		return &outcome{err: internal}, "internal " + internal.Message(), len(merged.Rules)
	}
	return &outcome{routes: routes, rules: rules}, "routes " + string(packed), len(merged.Rules)
}

// redirects reports whether requests go to no backend.
func redirects(r *meshpolicy.Rule) bool {
	return r.Nowhere() || r.Redirects()
}
