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
	return v.list[v.last(func(of condition) bool { return of.holds(c) })]
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
	if c.separate { // the parts are bounded already
		most = bound{math.MaxInt, math.MaxInt}
	}
	kinds := noKinds()
	for _, p := range c.parts {
		if !kinds.add(p, most) {
			return nil, false
		}
	}
	if c.anyRule(beyondGRPC) || c.anyRule(c.misses) {
		kinds.split(grpcRoutes)
	}
	keys := keysOf(kinds.conditions())
	if len(kinds.list) > most.kinds || len(keys) > maxTags {
		return nil, false
	}
	kinds.sort(keys)
	v, outcomes := new(variants), make(map[string]*outcome)
	var got []*outcome                 // what clients of each variant get
	var decided [][][]meshpolicy.Route // what their routes are made of, for each kind of them
	for _, k := range kinds.list {
		o, routes := c.outcome(k)
		if same := outcomes[o.key]; same != nil {
			o = same
		}
		outcomes[o.key] = o
		at := v.last(k.implies)
		if at >= 0 && got[at] == o {
			decided[at] = append(decided[at], routes)
			continue
		}
		v.conditions, got = append(v.conditions, k.condition), append(got, o)
		decided = append(decided, [][]meshpolicy.Route{routes})
	}
	writer := placeWriter{places: c.places, made: make(map[string]*corepb.Metadata)}
	for i, o := range got {
		r := &Resource{TypeURL: RouteConfigurationType, Name: name, Service: c.service, Err: o.err}
		switch {
		case o.err != nil:
		case c.places.dir == "" || len(c.parts) == 0:
			r.Message = o.routes
		default:
			r.Message = writer.configuration(o.routes, decided[i])
		}
		v.list = append(v.list, r)
	}
	return v, v.setParameters() == nil
}

// outcome is what clients get: routes or an error.
type outcome struct {
	// key is equal for equal outcomes.
	key    string
	routes *routepb.RouteConfiguration
	err    *status.Status
}

// outcome returns what clients of a kind get, and what each route is made of.
func (c *compiler) outcome(k *kind) (*outcome, []meshpolicy.Route) {
	routes, made := routeTable{c, k.implies(grpcRoutes)}.configuration(meshpolicy.MergeParts(k.parts))
	packed, err := proto.MarshalOptions{Deterministic: true}.Marshal(routes)
	if err != nil {
		// Only text that is not UTF-8 could fail, and Parse accepts none.
		internal := status.Newf(codes.Internal, "the routes to %q cannot be serialized: %v", c.service, err)
		return &outcome{key: "internal " + internal.Message(), err: internal}, nil
	}
	// Rules may differ in what makes no difference to routes.
	return &outcome{key: "routes " + string(packed), routes: routes}, made
}

// tooMany is the error for a service with more than maxVariants variants. It is transient: clients
// keep the routes that they have.
func tooMany() *status.Status {
	return status.Newf(codes.ResourceExhausted,
		"the policies for this service tell apart more than %d kinds of clients", maxVariants)
}
