package cluster

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/dynxds/dynxds/mesh/meshroute"
)

// ServiceState is what a Source knows of a Service.
type ServiceState struct {
	// Object is nil if there is no such Service.
	Object *corev1.Service
	Slices []*discoveryv1.EndpointSlice
	// Services are what it is in the mesh: one for each of its TCP ports, the default first. Problems are why endpoints are left out.
	Services []*meshroute.Service
	Problems []string
	// Routes are the routes that name the Service as a parent, and the policies that name it as a destination.
	Routes []*Route
}

// ServiceState returns what Read has read last of a Service.
func (s *Source) ServiceState(namespace, name string) ServiceState {
	of := named{namespace, name}
	state := ServiceState{Object: s.services.get(of.String()), Slices: s.slicesOf(of)}
	if e := s.entries[of]; e != nil {
		state.Services, state.Problems = e.services, e.problems
	}
	routes, _ := s.Routes()
	for _, r := range routes {
		if r, ok := r.naming(of); ok {
			state.Routes = append(state.Routes, r)
		}
	}
	slices.SortFunc(state.Routes, func(a, b *Route) int {
		return named{a.Object.GetKind(), a.Name()}.compare(named{b.Object.GetKind(), b.Name()})
	})
	return state
}

// naming returns the route with those of its parents that are a Service, and whether the object names it, whether or not it could be read.
func (r *Route) naming(of named) (*Route, bool) {
	is := func(ref map[string]any) bool {
		return ref != nil && named{cmp.Or(text(ref["namespace"]), r.Object.GetNamespace()), text(ref["name"])} == of
	}
	if !r.isPolicy() {
		only := *r
		only.Parents = slices.DeleteFunc(slices.Clone(r.Parents), func(p Parent) bool { return !is(p.Ref) })
		return &only, len(only.Parents) > 0
	}
	to, _, _ := unstructured.NestedSlice(r.Object.Object, "spec", "to")
	return r, slices.ContainsFunc(to, func(t any) bool {
		entry, _ := t.(map[string]any)
		ref, _ := entry["targetRef"].(map[string]any)
		return is(ref)
	})
}
