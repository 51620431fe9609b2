package meshroute

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// A RouteConfiguration has variants for the kinds of clients that the policies tell apart. A policy is for clients with some tags,
// and a kind is the tags of one policy, or of several together:
//
//	policies for clients with       kinds of clients
//	version=v1                      {}, {version=v1}
//	and service=frontend            and {service=frontend}, {service=frontend,version=v1}
//	and service=backend             and {service=backend}, {service=backend,version=v1}
//
// A client is of the kind with the most tags that it has. The kinds with fewer of these tags seem to fit, too: {service=frontend},
// {version=v1} and {} all fit frontend v1. So each variant has the parameter specificity: a number with a bit for each tag, higher for
// tags that come first. A kind with all tags of another one, and more, has the larger number.
//
// Kinds with the smaller numbers are looked at first. If clients of a kind get the same from the variant that they would choose without
// one of their own, they have none. So only tags that make a difference are in the parameters.

const (
	// maxVariants bounds the variants of one RouteConfiguration, and so its time and memory.
	maxVariants = 4096
	// maxRules bounds the rules in all variants of one RouteConfiguration.
	maxRules = 1 << 18
	// maxTags bounds the tags of one RouteConfiguration, as specificity has a bit for each;
	// maxAllTags those of all.
	maxTags, maxAllTags = 60, 120
)

// outcome is what clients get: routes or an error.
type outcome struct {
	routes *routepb.RouteConfiguration
	// rules are the rules of the routes, in their order. A route has several if it is made of one
	// for some clients, and of another one for others.
	rules [][]ruleRef
	err   *status.Status
}

// variants are the variants of one RouteConfiguration.
type variants struct {
	// keys are the tags in the parameters, in the order of their bits.
	keys []string
	// all are from the least to the most specific one, and list has their resources.
	all  []*variant
	list []*Resource
}

// variant is what clients of some kinds get.
type variant struct {
	*kind
	outcome  *outcome
	resource *Resource
	// kinds are the tags of the kinds that get the variant: its own, and those without a variant.
	kinds []map[string]string
}

// kind is the clients with some tags.
type kind struct {
	tags   map[string]string
	number uint64
}

func newKind(tags map[string]string, keys []string) *kind {
	k := &kind{tags: tags}
	for i, key := range keys {
		if _, ok := tags[key]; ok {
			k.number |= 1 << (len(keys) - 1 - i)
		}
	}
	return k
}

// single is a variant for all clients.
func single(name, service string, o *outcome) *variants {
	v := &variants{all: []*variant{{kind: new(kind), outcome: o, kinds: []map[string]string{nil}}}}
	v.name(name, service) // cannot fail without parameters
	return v
}

// of returns the resource for a client.
func (v *variants) of(c Client) *Resource {
	for _, one := range slices.Backward(v.all) {
		if one.fits(c) {
			return one.resource
		}
	}
	return nil // not reached: the first one fits all
}

func (k *kind) fits(c Client) bool {
	for key, value := range k.tags {
		if c.Tag(key) != value {
			return false
		}
	}
	return true
}

// name makes the resources.
func (v *variants) name(name, service string) error {
	used := make(map[string]bool)
	for _, one := range v.all {
		for key := range one.tags {
			used[key] = true
		}
	}
	v.keys = slices.SortedFunc(maps.Keys(used), compareKeys)
	for _, one := range v.all {
		r := &Resource{TypeURL: RouteConfigurationType, Name: name, Service: service, Err: one.outcome.err}
		if one.outcome.routes != nil {
			r.Message = one.outcome.routes
		}
		if len(v.all) > 1 {
			parameters := map[string]string{}
			maps.Copy(parameters, one.tags)
			parameters[meshpolicy.SpecificityKey] = strconv.FormatUint(newKind(one.tags, v.keys).number, 10)
			var err error
			if r.Parameters, err = dynparam.NewParameters(parameters); err != nil {
				return err
			}
		}
		one.resource = r
		v.list = append(v.list, r)
	}
	return nil
}

// conditionOf returns the tags that a policy requires of clients.
func conditionOf(r TargetRef) map[string]string {
	tags := maps.Clone(r.Tags)
	if r.Name != "" {
		if tags == nil {
			tags = make(map[string]string, 1)
		}
		tags[meshpolicy.ServiceKey] = r.Name
	}
	return tags
}

// keysOf returns the tags of conditions, in the order of their bits.
func keysOf(conditions []map[string]string) []string {
	keys := make(map[string]bool)
	for _, c := range conditions {
		for key := range c {
			keys[key] = true
		}
	}
	return slices.SortedFunc(maps.Keys(keys), compareKeys)
}

// compareKeys puts the namespace first, and then the service.
func compareKeys(a, b string) int {
	rank := func(key string) int {
		switch key {
		case meshpolicy.NamespaceTag:
			return 0
		case meshpolicy.ServiceKey:
			return 1
		}
		return 2
	}
	return cmp.Or(rank(a)-rank(b), strings.Compare(a, b))
}

// kindsOf returns the kinds of clients that conditions tell apart, those with smaller numbers first, or false if there are more
// than most.
func kindsOf(conditions []map[string]string, keys []string, most int) ([]*kind, bool) {
	all, index := []*kind{new(kind)}, newTagIndex[*kind](keys)
	index.add(nil, all[0])
	known := map[string]bool{"": true}
	for _, c := range conditions {
		if known["only "+meshpolicy.FormatTags(c)] {
			continue
		}
		known["only "+meshpolicy.FormatTags(c)] = true
		for _, k := range index.beside(c) {
			both := maps.Clone(c)
			if both == nil {
				break // a condition of all clients
			}
			maps.Copy(both, k.tags)
			name := meshpolicy.FormatTags(both)
			if known[name] {
				continue
			}
			if len(all) == most {
				return nil, false
			}
			known[name] = true
			joined := newKind(both, keys)
			all = append(all, joined)
			index.add(both, joined)
		}
	}
	slices.SortFunc(all, func(a, b *kind) int {
		return cmp.Or(cmp.Compare(a.number, b.number), strings.Compare(meshpolicy.FormatTags(a.tags), meshpolicy.FormatTags(b.tags)))
	})
	return all, true
}

// variants returns the variants of the routes, or false if there are too many.
func (c *compiler) variants(name string, maxKinds, maxRules int) (*variants, bool) {
	conditions := c.conditions()
	keys := keysOf(conditions)
	if len(keys) > maxTags {
		return nil, false
	}
	kinds, ok := kindsOf(conditions, keys, maxKinds)
	if !ok {
		return nil, false
	}
	holding := newTagIndex[int](keys)
	for i, condition := range conditions {
		holding.add(condition, i)
	}
	v, made, outcomes := new(variants), newTagIndex[*variant](keys), make(map[string]*outcome)
	for _, k := range kinds {
		o, key, rules := c.outcome(holding.within(k.tags))
		if maxRules -= rules; maxRules < 0 {
			return nil, false
		}
		if same := outcomes[key]; same != nil {
			same.addRules(o.rules)
			o = same
		}
		outcomes[key] = o
		var other *variant // what clients of the kind get without a variant of their own
		for _, below := range made.within(k.tags) {
			if other == nil || below.number > other.number {
				other = below
			}
		}
		if other != nil && other.outcome == o {
			other.kinds = append(other.kinds, k.tags)
			continue
		}
		one := &variant{kind: k, outcome: o, kinds: []map[string]string{k.tags}}
		made.add(k.tags, one)
		v.all = append(v.all, one)
	}
	return v, v.name(name, c.service) == nil
}

// addRules adds the rules of which equal routes are made for other clients.
func (o *outcome) addRules(rules [][]ruleRef) {
	for i, refs := range rules {
		for _, ref := range refs {
			if !slices.Contains(o.rules[i], ref) {
				o.rules[i] = append(o.rules[i], ref)
			}
		}
	}
}

// tooMany is the outcome for a service with more than maxVariants variants. It is transient: clients
// keep the routes that they have.
func tooMany() *outcome {
	return &outcome{err: status.Newf(codes.ResourceExhausted,
		"the policies for this service tell apart more than %d kinds of clients", maxVariants)}
}
