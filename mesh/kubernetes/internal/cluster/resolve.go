package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// This file gives the policies of routes the names that Services have in the mesh: one for each port.

// Verdict is what a route amounts to.
type Verdict struct {
	// Faults are what is wrong with the route, or nil. InForce says that at least one of its rules has no fault: requests for those
	// that have one fail.
	Faults  error
	InForce bool
	// Ignored are fields that have no effect, as this program does not know them.
	Ignored []string
	// Parents are those that are Services, in the order of the route.
	Parents []ParentVerdict
	// NotFound, NotPermitted and InvalidKind are backends that there are not, that no ReferenceGrant allows, or that are no Services.
	NotFound, NotPermitted, InvalidKind []string
}

// ParentVerdict is about one entry of parentRefs.
type ParentVerdict struct {
	Ref map[string]any
	// Missing says why there is no such parent, and Conflict which route is in force in place of this one; each may be empty.
	Missing, Conflict string
	// bound are the services that the route is for.
	bound []binding
}

// Services are those that the route is for by this parent.
func (p ParentVerdict) Services() (names []string) {
	for _, b := range p.bound {
		names = append(names, b.service)
	}
	return names
}

// binding is a service of the mesh and a group of routes for it: the producer routes, or the consumer routes of a namespace.
type binding struct{ service, consumer string }

// noGrant is what follows the name of a backend that no ReferenceGrant allows. No service has such a name, so that RPCs fail.
const noGrant = ";no-reference-grant"

// grant is one entry of a ReferenceGrant: routes of a kind and namespace may use Services, or one of them.
type grant struct{ kind, from, to, name string } // kinds of all groups differ

// readGrants returns what ReferenceGrants allow.
func (r *routes) readGrants() map[grant]bool {
	all := make(map[grant]bool)
	for _, object := range r.grants.all() {
		from, _, _ := unstructured.NestedSlice(object.Object, "spec", "from")
		to, _, _ := unstructured.NestedSlice(object.Object, "spec", "to")
		for _, f := range from {
			f, _ := f.(map[string]any)
			kind := text(f["kind"])
			if f["group"] != resources[kind].Group {
				continue
			}
			for _, t := range to {
				if t, _ := t.(map[string]any); t["group"] == "" && t["kind"] == "Service" {
					all[grant{kind, text(f["namespace"]), object.GetNamespace(), text(t["name"])}] = true
				}
			}
		}
	}
	return all
}

// lookup is what the policies of a route depend on, of one Service.
type lookup struct {
	names     []string
	permitted bool
}

func (l lookup) equal(o lookup) bool {
	return l.permitted == o.permitted && slices.Equal(l.names, o.names)
}

// resolve makes the policies of a route, unless it and all that it names is as before.
func (r *routes) resolve(of *route) {
	res := resolver{routes: r, route: of}
	if of.lookups != nil && res.isCurrent() {
		return
	}
	of.lookups, of.resolved, of.verdict = map[named]lookup{}, nil, Verdict{Faults: of.verdict.Faults, InForce: of.verdict.InForce, Ignored: of.verdict.Ignored}
	of.verdict.Parents = res.parents()
	for _, p := range of.written {
		if p = res.policy(p); p != nil {
			of.resolved = append(of.resolved, p)
		}
	}
}

// resolver resolves one route.
type resolver struct {
	routes *routes
	route  *route
}

// isCurrent reports whether the route would be resolved with the same once more.
func (r *resolver) isCurrent() bool {
	for of, was := range r.route.lookups {
		if !was.equal(r.lookup(of)) {
			return false
		}
	}
	return true
}

// lookup returns the names of a Service, and whether the route may send requests there.
func (r *resolver) lookup(of named) (l lookup) {
	from := r.route.object.GetNamespace()
	granted := func(name string) bool { return r.routes.granted[grant{r.route.kind, from, of.namespace, name}] }
	l.permitted = of.namespace == from || granted("") || granted(of.name)
	if e := r.routes.source.entries[of]; e != nil {
		l.names = e.names
	}
	return l
}

// permitted reports whether the route may send the requests for a parent to a Service. The parent is one: requests go there without
// the route.
func (r *resolver) permitted(of, parent named) bool {
	l := r.lookup(of)
	r.route.lookups[of] = l
	return l.permitted || of == parent
}

// services returns the services of a Service, or that of one port, by meshpolicy.JoinPort. missing says why there are none.
func (r *resolver) services(of named, port string) (list []*meshroute.Service, missing string) {
	r.route.lookups[of] = r.lookup(of)
	e := r.routes.source.entries[of]
	if e == nil {
		return nil, fmt.Sprintf("there is no Service %s", of)
	}
	if port == "" {
		if len(e.services) == 0 {
			return nil, fmt.Sprintf("the Service %s has no TCP port", of)
		}
		return e.services, ""
	}
	parts := strings.Split(port, ":")
	for _, s := range e.services {
		isOther := func(part string) bool {
			name := of.host() + ":" + part
			return s.Name != name && !slices.ContainsFunc(s.Aliases, func(a meshroute.Alias) bool { return a.Name == name })
		}
		if !slices.ContainsFunc(parts, isOther) {
			return []*meshroute.Service{s}, ""
		}
	}
	return nil, fmt.Sprintf("the Service %s has no TCP port %s", of, strings.Join(parts, " with the name "))
}

// parents returns the verdicts on the parents that are Services.
func (r *resolver) parents() (list []ParentVerdict) {
	parents, _, _ := unstructured.NestedSlice(r.route.object.Object, "spec", "parentRefs")
	for _, p := range parents {
		if !isService(p) {
			continue
		}
		ref := p.(map[string]any)
		of := named{r.route.object.GetNamespace(), text(ref["name"])}
		if namespace := text(ref["namespace"]); namespace != "" {
			of.namespace = namespace
		}
		number := ""
		if n, ok := ref["port"].(int64); ok {
			number = strconv.FormatInt(n, 10)
		}
		services, missing := r.services(of, meshpolicy.JoinPort(number, text(ref["sectionName"])))
		v := ParentVerdict{Ref: ref, Missing: missing}
		for _, s := range services {
			b := binding{service: s.Name}
			if from := r.route.object.GetNamespace(); from != of.namespace {
				b.consumer = from
			}
			v.bound = append(v.bound, b)
		}
		list = append(list, v)
	}
	return list
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// policy returns a policy for the services of the mesh, nil if it has none.
func (r *resolver) policy(written *meshroute.Policy) *meshroute.Policy {
	p := *written
	p.Name = r.route.kind + "/" + nameOf(r.route.object).String()
	if strings.HasSuffix(written.Name, "/consumer") {
		p.Name += "/consumer"
	}
	p.Source, p.Author = meshroute.Source{File: written.Source.File}, r.route.object.GetNamespace()
	p.Complete = !r.route.isPolicy()
	p.Created = r.route.object.GetCreationTimestamp().Unix()
	p.Notes = slices.Clone(p.Notes)
	for i := range p.Notes {
		p.Notes[i].Line = 0
	}
	p.To = nil
	seen := make(map[string]bool)
	for _, to := range written.To {
		if to.TargetRef.Name == "" {
			p.To = append(p.To, meshpolicy.To{Rules: r.rules(to.Rules, named{}), Index: to.Index}) // all Services
			continue
		}
		of, port := splitName(to.TargetRef.Name)
		services, missing := r.services(of, port)
		if missing != "" && r.route.isPolicy() {
			r.route.verdict.NotFound = appendOnce(r.route.verdict.NotFound, missing)
		}
		for _, s := range services {
			if seen[s.Name] {
				continue // a parent with a port, and one of all ports
			}
			seen[s.Name] = true
			p.To = append(p.To, meshpolicy.To{TargetRef: meshpolicy.TargetRef{Name: s.Name}, Rules: r.rules(to.Rules, of), Index: to.Index})
		}
	}
	if len(p.To) == 0 {
		return nil
	}
	return meshpolicy.New(p)
}

// rules returns the rules for a parent with other names of backends, and without lines.
func (r *resolver) rules(written []meshpolicy.Rule, parent named) []meshpolicy.Rule {
	list := slices.Clone(written)
	for i := range list {
		rule := &list[i]
		rule.Line, rule.Lines = 0, [meshpolicy.NumFields]int{}
		rule.Matches = slices.Clone(rule.Matches)
		for j := range rule.Matches {
			rule.Matches[j].Line = 0
		}
		rule.BackendRefs = slices.Clone(rule.BackendRefs)
		for j := range rule.BackendRefs {
			rule.BackendRefs[j].Name = r.backend(rule.BackendRefs[j].Name, parent)
		}
		rule.Filters = slices.Clone(rule.Filters)
		for j, f := range rule.Filters {
			if f.Mirror != nil {
				mirror := *f.Mirror
				mirror.Name = r.backend(mirror.Name, parent)
				rule.Filters[j].Mirror = &mirror
			}
		}
	}
	return list
}

// backend returns the name of a backend in the mesh, one that no service has if it may not be used.
func (r *resolver) backend(name string, parent named) string {
	if what, isNone := strings.CutSuffix(name, meshpolicy.UnknownKind); isNone {
		r.route.verdict.InvalidKind = appendOnce(r.route.verdict.InvalidKind, what+" is no Service, and backends of other kinds are not supported")
		return name
	}
	of, port := splitName(name)
	if !r.permitted(of, parent) {
		r.route.verdict.NotPermitted = appendOnce(r.route.verdict.NotPermitted, of.String())
		return name + noGrant
	}
	services, missing := r.services(of, port)
	if len(services) == 0 {
		r.route.verdict.NotFound = appendOnce(r.route.verdict.NotFound, missing)
		return name
	}
	return services[0].Name // without a port, the default one
}

func appendOnce(list []string, text string) []string {
	if slices.Contains(list, text) {
		return list
	}
	return append(list, text)
}
