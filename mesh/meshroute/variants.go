package meshroute

import (
	"math"
	"slices"
	"strconv"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// A RouteConfiguration has variants for the kinds of clients that the policies for it tell apart (kinds.go).
//
// A client is of the kind with the most tags that it has. The kinds with fewer of these tags seem to fit, too: {zone=a}, {node=n}
// and {} all fit a client of zone a on node n. So each variant has the parameter specificity: a number with a bit for each tag, higher for
// tags that come first. A kind with all tags of another one, and more, has the larger number.
//
// Kinds with the smaller numbers are looked at first. If clients of a kind get the same from the variant that they would choose without
// one of their own, they have none. So only tags that make a difference are in the parameters.

const (
	// maxVariants bounds the variants of one RouteConfiguration, and so its time and memory.
	maxVariants = 4096
	// maxRules bounds the rules for all kinds of clients of one RouteConfiguration, before they are merged.
	maxRules = 1 << 19
	// maxTags bounds the tags of one RouteConfiguration, as specificity has a bit for each;
	// maxAllTags those of all.
	maxTags, maxAllTags = 60, 120
)

// variants are the variants of one RouteConfiguration.
type variants struct {
	// keys are the tags in the parameters, in the order of their bits.
	keys []string
	// conditions are the tags of the clients that get each, from the least to the most specific one, and list has the resources.
	conditions []condition
	list       []*Resource
}

// single is an error for all clients.
func single(name, service string, err *status.Status) *variants {
	return &variants{
		conditions: []condition{nil},
		list:       []*Resource{{TypeURL: RouteConfigurationType, Name: name, Service: service, Err: err}},
	}
}

// of returns the resource for a client.
func (v *variants) of(c Client) *Resource {
	lacks := func(t tag) bool { return c.Tag(t.key) != t.value }
	return v.list[v.last(func(of condition) bool { return !slices.ContainsFunc(of, lacks) })]
}

// last returns the index of the most specific variant with such a condition, -1 if there is none.
func (v *variants) last(has func(condition) bool) int {
	for i, of := range slices.Backward(v.conditions) {
		if has(of) {
			return i
		}
	}
	return -1
}

// setParameters gives the resources the parameters that select them.
func (v *variants) setParameters() (err error) {
	if len(v.list) == 1 {
		return nil
	}
	v.keys = keysOf(v.conditions)
	for i, of := range v.conditions {
		parameters := of.tags()
		parameters[meshpolicy.SpecificityKey] = strconv.FormatUint(of.specificity(v.keys), 10)
		if v.list[i].Parameters, err = dynparam.NewParameters(parameters); err != nil {
			return err
		}
	}
	return nil
}

// grpcRoutes is the condition of clients that know only the routes of gRFC A28.
var grpcRoutes = condition{{meshpolicy.RoutesKey, meshpolicy.GRPCRoutes}}

// makeVariants returns the variants of the routes, or false if there are too many.
func (c *compiler) makeVariants(name string) (*variants, bool) {
	most := bound{maxVariants, maxRules}
	if c.mesh.in.Separate { // the parts are bounded already
		most = bound{math.MaxInt, math.MaxInt}
	}
	kinds := noKinds()
	for _, p := range c.parts {
		if !kinds.add(p, most) {
			return nil, false
		}
	}
	if c.anyRule(beyondGRPC) || c.anyRule(c.misses) || slices.ContainsFunc(c.parts, func(p *meshpolicy.To) bool { return p.Policy.Complete }) {
		kinds.take(kinds.joined(grpcRoutes)) // to tell these clients apart
	}
	keys := keysOf(kinds.conditions())
	if len(kinds.list) > most.kinds || len(keys) > maxTags {
		return nil, false
	}
	kinds.sort(keys)
	v, byText := new(variants), make(map[string]proto.Message) // rules may differ in what makes no difference to routes
	var decided [][][]meshpolicy.Route                         // what the routes of each variant are made of, for each kind of its clients
	for _, k := range kinds.list {
		r := &Resource{TypeURL: RouteConfigurationType, Name: name, Service: c.service}
		routes, made := routeTable{c, k.implies(grpcRoutes)}.configuration(meshpolicy.MergeParts(k.parts))
		if text, err := (proto.MarshalOptions{Deterministic: true}).Marshal(routes); err != nil {
			// Only text that is not UTF-8 could fail, and Parse accepts none.
			r.Err = status.Newf(codes.Internal, "the routes to %q cannot be serialized: %v", c.service, err)
		} else if r.Message = byText[string(text)]; r.Message == nil {
			byText[string(text)], r.Message = routes, routes
		}
		if at := v.last(k.implies); at >= 0 && r.Err == nil && v.list[at].Message == r.Message {
			decided[at] = append(decided[at], made)
			continue
		}
		v.conditions, v.list = append(v.conditions, k.condition), append(v.list, r)
		decided = append(decided, [][]meshpolicy.Route{made})
	}
	writer := placeWriter{places: c.mesh.places, made: make(map[string]*corepb.Metadata)}
	for i, r := range v.list {
		if routes, ok := r.Message.(*routepb.RouteConfiguration); ok && c.mesh.places.dir != "" && len(c.parts) > 0 {
			r.Message = writer.configuration(routes, decided[i])
		}
	}
	return v, v.setParameters() == nil
}

// tooMany is the error for a service with more than maxVariants variants. It is transient: clients
// keep the routes that they have.
func tooMany() *status.Status {
	return status.Newf(codes.ResourceExhausted,
		"the policies for this service tell apart more than %d kinds of clients", maxVariants)
}
