package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// This file gives the policies of routes the names that Services have in the mesh: one for each port.

// grantee is the routes of a kind, as kinds of all groups differ, in a namespace.
type grantee struct{ kind, namespace string }

// readGrants returns the Services that ReferenceGrants allow; one without a name is all of its namespace.
func (r *routes) readGrants() map[grantee]map[named]bool {
	all := make(map[grantee]map[named]bool)
	for _, object := range r.grants.all() {
		from, _, _ := unstructured.NestedSlice(object.Object, "spec", "from")
		to, _, _ := unstructured.NestedSlice(object.Object, "spec", "to")
		for _, f := range from {
			f, _ := f.(map[string]any)
			who := grantee{text(f["kind"]), text(f["namespace"])}
			if f["group"] != resources[who.kind].Group {
				continue
			}
			for _, t := range to {
				if t, _ := t.(map[string]any); t["group"] == "" && t["kind"] == "Service" {
					if all[who] == nil {
						all[who] = make(map[named]bool)
					}
					all[who][named{object.GetNamespace(), text(t["name"])}] = true
				}
			}
		}
	}
	return all
}

// grantee is whom grants for a route are for.
func (r *Route) grantee() grantee { return grantee{r.Object.GetKind(), r.Object.GetNamespace()} }

// resolve makes the policy of a route.
func (r *routes) resolve(of *Route) {
	of.uses, of.policy, of.Unresolved = nil, nil, map[string][]string{}
	of.Parents = r.parents(of)
	if of.written != nil {
		of.policy = r.policy(of, of.written)
	}
	switch {
	case !of.isPolicy():
	case of.policy == nil:
		of.Parents = []Parent{{Missing: strings.Join(of.Unresolved[BackendNotFound], "; ")}}
	default:
		of.Parents = []Parent{{}}
		for i := range of.policy.To {
			of.Parents[0].bound = append(of.Parents[0].bound, binding{service: of.policy.To[i].TargetRef.Name})
		}
	}
}

// permitted reports whether a route may send the requests for a parent to a Service. The parent is one: requests go there without
// the route.
func (r *routes) permitted(of *Route, service, parent named) bool {
	granted := r.granted[of.grantee()]
	return service.namespace == of.Object.GetNamespace() || service == parent || granted[service] || granted[named{namespace: service.namespace}]
}

// services returns the services of a Service, or that of one port, by meshpolicy.JoinPort. missing says why there are none.
func (r *routes) services(of *Route, service named, port string) (list []*meshroute.Service, missing string) {
	of.uses = append(of.uses, service)
	e := r.source.entries[service]
	if in := r.source.opts.Namespaces; e == nil && in[0] != "" && !slices.Contains(in, service.namespace) {
		return nil, fmt.Sprintf("--namespace of this control plane leaves out the namespace of the Service %s", service)
	}
	if e == nil {
		return nil, fmt.Sprintf("there is no Service %s", service)
	}
	if port == "" {
		if len(e.services) == 0 {
			return nil, fmt.Sprintf("the Service %s has no TCP port", service)
		}
		return e.services, ""
	}
	parts := strings.Split(port, ":")
	for _, s := range e.services {
		isOther := func(part string) bool {
			name := service.host() + ":" + part
			return s.Name != name && !slices.ContainsFunc(s.Aliases, func(a meshroute.Alias) bool { return a.Name == name })
		}
		if !slices.ContainsFunc(parts, isOther) {
			return []*meshroute.Service{s}, ""
		}
	}
	return nil, fmt.Sprintf("the Service %s has no TCP port %s", service, strings.Join(parts, " with the name "))
}

// parents returns the parents that are Services.
func (r *routes) parents(of *Route) (list []Parent) {
	from := of.Object.GetNamespace()
	parents, _, _ := unstructured.NestedSlice(of.Object.Object, "spec", "parentRefs")
	for _, p := range parents {
		if !isService(p) {
			continue
		}
		ref := p.(map[string]any)
		service := named{cmp.Or(text(ref["namespace"]), from), text(ref["name"])}
		number := ""
		if n, ok := ref["port"].(int64); ok {
			number = strconv.FormatInt(n, 10)
		}
		services, missing := r.services(of, service, meshpolicy.JoinPort(number, text(ref["sectionName"])))
		parent := Parent{Ref: ref, Missing: missing}
		for _, s := range services {
			b := binding{s.Name, meshpolicy.Group{Kind: of.Object.GetKind()}}
			if from != service.namespace {
				b.group.Namespace = from
			}
			parent.bound = append(parent.bound, b)
		}
		list = append(list, parent)
	}
	return list
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// policy returns a policy for the services of the mesh, nil if it has none.
func (r *routes) policy(of *Route, written *meshroute.Policy) *meshroute.Policy {
	p := *written
	p.Name = of.Object.GetKind() + "/" + of.Name()
	p.Author = of.Object.GetNamespace()
	p.Complete = !of.isPolicy()
	p.Created = of.Object.GetCreationTimestamp().Unix()
	p.To = nil
	seen := make(map[string]bool)
	for _, to := range written.To {
		if to.TargetRef.Name == "" {
			p.To = append(p.To, meshpolicy.To{Clients: to.Clients, Rules: r.rules(of, to.Rules, named{}), Index: to.Index}) // all Services
			continue
		}
		service, port := splitName(to.TargetRef.Name)
		services, missing := r.services(of, service, port)
		if missing != "" && of.isPolicy() {
			of.unresolved(BackendNotFound, missing)
		}
		for _, s := range services {
			if seen[s.Name] && !of.isPolicy() {
				continue // a parent with a port, and one of all ports, with the same rules
			}
			seen[s.Name] = true
			p.To = append(p.To, meshpolicy.To{
				Clients: to.Clients, TargetRef: meshpolicy.TargetRef{Name: s.Name}, Rules: r.rules(of, to.Rules, service), Index: to.Index, OnePort: min(len(port), 1),
			})
		}
	}
	if len(p.To) == 0 {
		return nil
	}
	return meshpolicy.New(p)
}

// rules returns the rules for a parent with other names of backends.
func (r *routes) rules(of *Route, written []meshpolicy.Rule, parent named) []meshpolicy.Rule {
	list := slices.Clone(written)
	for i := range list {
		rule := &list[i]
		// New writes to the matches, and others may read those of an earlier policy.
		rule.Matches, rule.BackendRefs, rule.Filters = slices.Clone(rule.Matches), slices.Clone(rule.BackendRefs), slices.Clone(rule.Filters)
		for j, f := range rule.Filters {
			if f.Mirror != nil {
				mirror := *f.Mirror
				rule.Filters[j].Mirror = &mirror
			}
		}
		for ref := range rule.References() {
			ref.Name = r.backend(of, ref.Name, parent)
		}
		if rule.NoBackends {
			rule.BackendRefs = nil // those of a rule with an error are for the status alone
		}
	}
	return list
}

// backend returns the name of a backend in the mesh, one that no service has if it may not be used.
func (r *routes) backend(of *Route, name string, parent named) string {
	if what, isNone := strings.CutSuffix(name, meshpolicy.UnknownKind); isNone {
		of.unresolved(InvalidKind, what+" is no Service, and backends of other kinds are not supported")
		return name
	}
	service, port := splitName(name)
	if !r.permitted(of, service, parent) {
		of.unresolved(RefNotPermitted, "no ReferenceGrant lets the route use "+service.String())
		return name + meshpolicy.NoGrant
	}
	services, missing := r.services(of, service, port)
	if len(services) == 0 {
		of.unresolved(BackendNotFound, missing)
		return name
	}
	return services[0].Name // without a port, the default one
}

// unresolved notes why a backend cannot be used.
func (r *Route) unresolved(reason, text string) {
	if !slices.Contains(r.Unresolved[reason], text) {
		r.Unresolved[reason] = append(r.Unresolved[reason], text)
	}
}
