package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// The resources of the Gateway API.
var (
	GRPCRoutes      = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "grpcroutes"}
	HTTPRoutes      = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}
	ReferenceGrants = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1beta1", Resource: "referencegrants"}
)

// routes makes policies out of the routes that are attached to Services.
type routes struct {
	source *Source
	// objects are by the kind of the routes; grants are ReferenceGrants, and granted is what they allow.
	objects map[string]objects[*unstructured.Unstructured]
	grants  objects[*unstructured.Unstructured]
	granted map[grantee]map[named]bool
	// read are the routes as they were read last, by the UIDs of their objects.
	read map[types.UID]*Route
	// shown is what Source.Routes returns, and changed is closed when there is a newer one. Guarded by Source.mu.
	shown   []*Route
	changed chan struct{}
	// policies are those of all routes, in order of their names.
	policies []*meshroute.Policy
}

// Route is a MeshHTTPRoute or a route of the Gateway API as it was read last, and what it amounts to. It does not change.
type Route struct {
	Object *unstructured.Unstructured
	// Faults are what is wrong with the route, or nil. InForce says that at least one of its rules has no error: requests for those
	// that have one fail.
	Faults  error
	InForce bool
	// LeftOut says what of the route is not served, though it has no error by itself. Readers of routes set it.
	LeftOut string
	// Ignored are fields that have no effect, as this program does not know them.
	Ignored []string
	// Parents are those that are Services, in the order of the route. A MeshHTTPRoute has one, without a Ref.
	Parents []Parent
	// Unresolved are why backends cannot be used, by the reason that the condition of the route has.
	Unresolved map[string][]string
	// written is the policy as the object says it: with names of Services, with or without ports. Rules with an error fail their
	// requests, and it is nil if nobody can say for which requests they are.
	written *meshroute.Policy
	// policy is that with names of services of the mesh, nil if it is for none, and uses has the Services that it depends on.
	policy *meshroute.Policy
	uses   []named
	// attached has one of all routes for each binding.
	attached map[binding]string
}

// The reasons for which backends cannot be used: they are no Services, no ReferenceGrant allows them, or there are none.
const (
	InvalidKind     = "InvalidKind"
	RefNotPermitted = "RefNotPermitted"
	BackendNotFound = "BackendNotFound"
)

// UnresolvedReasons are these reasons, the worst first.
var UnresolvedReasons = []string{InvalidKind, RefNotPermitted, BackendNotFound}

// Parent is one entry of parentRefs.
type Parent struct {
	Ref map[string]any
	// Missing says why there is no such parent, and Conflict which route is in force in place of this one; each may be empty.
	Missing, Conflict string
	// bound are the services that the route is for.
	bound []binding
}

// IsFor reports whether the route is for a service by this parent.
func (p Parent) IsFor(service string) bool {
	return slices.ContainsFunc(p.bound, func(b binding) bool { return b.service == service || b.service == "" })
}

// binding is a service of the mesh, empty for all, and a group of routes for it.
type binding struct {
	service string
	group   meshpolicy.Group
}

// Name is NAMESPACE/NAME of the object.
func (r *Route) Name() string { return named{r.Object.GetNamespace(), r.Object.GetName()}.String() }

// Resource is that of the object.
func (r *Route) Resource() schema.GroupVersionResource { return resources[r.Object.GetKind()] }

// isPolicy reports whether the object is a MeshHTTPRoute.
func (r *Route) isPolicy() bool { return r.Object.GetKind() == meshpolicy.DocumentKind }

// Status is what the object has in the field of its status that this controller writes, and shares its memory.
func (r *Route) Status() (field string, list []any) {
	field = "parents"
	if r.isPolicy() {
		field = "conditions"
	}
	of, _, _ := unstructured.NestedFieldNoCopy(r.Object.Object, "status", field)
	list, _ = of.([]any)
	return field, list
}

// Conditions are those in a Status, of parents those of this controller.
func Conditions(status []any) (list []map[string]any) {
	for _, item := range status {
		of, _ := item.(map[string]any)
		if of["type"] != nil {
			list = append(list, of)
		} else if nested, _ := of["conditions"].([]any); of["controllerName"] == Controller {
			list = append(list, Conditions(nested)...)
		}
	}
	return list
}

// Concerns reports whether the route has rules for the requests of a client to a service.
func (r *Route) Concerns(c meshroute.Client, service string) bool {
	own := c.Tag(meshpolicy.NamespaceTag)
	displacing := []meshpolicy.Group{{Kind: meshpolicy.GRPCRouteKind}, {Kind: meshpolicy.GRPCRouteKind, Namespace: own}, {Kind: meshpolicy.HTTPRouteKind, Namespace: own}}
	return r.policy != nil && slices.ContainsFunc(r.policy.To, func(t meshpolicy.To) bool {
		return t.Clients.Selects(c) && (t.TargetRef.Name == service || t.TargetRef.Name == "") && !slices.ContainsFunc(displacing, func(g meshpolicy.Group) bool {
			return r.attached[binding{service, g}] != "" && g.Displaces(t.Group())
		})
	})
}

// newRoutes adds the informers.
func newRoutes(s *Source) *routes {
	r := &routes{source: s, objects: map[string]objects[*unstructured.Unstructured]{}, read: map[types.UID]*Route{}, changed: make(chan struct{})}
	add := func(resource schema.GroupVersionResource) objects[*unstructured.Unstructured] {
		return follow(s, resource, apierrors.IsNotFound, &unstructured.Unstructured{}, func(*unstructured.Unstructured) {
			s.mu.Lock()
			s.routesMarked = true
			s.mu.Unlock()
			Signal(s.wake)
		})
	}
	for kind, resource := range resources {
		r.objects[kind] = add(resource)
	}
	r.grants = add(ReferenceGrants)
	return r
}

// update reads what has changed, and reports whether the policies differ. renamed are the Services whose names are others than before.
func (r *routes) update(renamed map[named]bool) (changed bool) {
	read := make(map[types.UID]*Route, len(r.read))
	before := r.granted
	r.granted = r.readGrants()
	var policies []*meshroute.Policy
	for kind, objects := range r.objects {
		for _, object := range objects.all() {
			now, last := &Route{}, r.read[object.GetUID()]
			if isNew := last == nil || last.Object.GetGeneration() != object.GetGeneration(); isNew {
				now = readRoute(kind, object)
				r.resolve(now)
			} else {
				*now = *last
				now.Object = object // which may have another status
				if slices.ContainsFunc(now.uses, func(of named) bool { return renamed[of] }) || !maps.Equal(r.granted[now.grantee()], before[now.grantee()]) {
					r.resolve(now)
				}
			}
			read[object.GetUID()] = now
			if now.policy != nil {
				policies = append(policies, now.policy)
			}
		}
	}
	r.read = read
	r.show()
	slices.SortFunc(policies, func(a, b *meshroute.Policy) int { return strings.Compare(a.Name, b.Name) })
	changed = !slices.Equal(policies, r.policies)
	r.policies = policies
	return changed
}

// resources are those of routes by their kinds.
var resources = map[string]schema.GroupVersionResource{
	meshpolicy.GRPCRouteKind: GRPCRoutes, meshpolicy.HTTPRouteKind: HTTPRoutes, meshpolicy.DocumentKind: MeshHTTPRoutes,
}

// Routes returns all MeshHTTPRoutes, and all routes with parents that are Services, or with a status of this controller from when
// they had some, as they were read last, and a channel that is closed when there are newer ones. It is safe for concurrent use.
func (s *Source) Routes() ([]*Route, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.routes.shown, s.routes.changed
}

// show completes the routes with what they say of one another, and shows them.
func (r *routes) show() {
	attached := make(map[binding]string)
	for _, of := range r.read {
		if of.policy == nil {
			continue
		}
		for _, p := range of.Parents {
			for _, b := range p.bound {
				attached[b] = max(attached[b], of.Name()) // always the same one
			}
		}
	}
	var list []*Route
	for _, of := range r.read {
		of.attached = attached
		if of.Object.GetKind() == meshpolicy.HTTPRouteKind {
			of.Parents = conflicts(of.Parents, attached)
		}
		if _, status := of.Status(); len(of.Parents) > 0 || len(Conditions(status)) > 0 {
			list = append(list, of)
		}
	}
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	r.shown = list
	close(r.changed)
	r.changed = make(chan struct{})
}

// conflicts notes in the parents of an HTTPRoute where a GRPCRoute is in force on all ports (GEP-1294, "Route types").
func conflicts(parents []Parent, attached map[binding]string) []Parent {
	grpc := func(b binding) string {
		b.group.Kind = meshpolicy.GRPCRouteKind
		return attached[b]
	}
	parents = slices.Clone(parents)
	for i := range parents {
		p := &parents[i]
		p.Conflict = ""
		if len(p.bound) > 0 && !slices.ContainsFunc(p.bound, func(b binding) bool { return grpc(b) == "" }) {
			p.Conflict = fmt.Sprintf("the GRPCRoute %s is for the same Service and port, and counts before HTTPRoutes", grpc(p.bound[0]))
		}
	}
	return parents
}

// Controller is the name under which the status of routes is written.
const Controller = "dynxds.io/dynxds-kubernetes"

// isService reports whether a parent is a Service. Without a group it is one of the Gateway API.
func isService(parent any) bool {
	of, _ := parent.(map[string]any)
	return of["kind"] == "Service" && of["group"] == ""
}

// readRoute reads an object.
func readRoute(kind string, object *unstructured.Unstructured) *Route {
	r := &Route{Object: object}
	if parents, _, _ := unstructured.NestedSlice(object.Object, "spec", "parentRefs"); !r.isPolicy() && !slices.ContainsFunc(parents, isService) {
		return r // it is for gateways
	}
	text, _ := json.Marshal(object.Object) // it was JSON
	var faults, unknown document.Faults
	switch doc, ok := document.ParseObject(r.Name(), text, &faults, &unknown); {
	case !ok:
	case r.isPolicy():
		r.written = readPolicy(doc, object.GetNamespace())
	default:
		r.written = meshpolicy.Read(doc, kind, hostName)
	}
	r.Faults, r.InForce = faults.Err(), r.written != nil && slices.ContainsFunc(r.written.To, func(t meshpolicy.To) bool {
		return slices.ContainsFunc(t.Rules, func(r meshpolicy.Rule) bool { return r.Problem == "" })
	})
	for _, f := range unknown.List {
		// Without the file, and what else the field may be called.
		r.Ignored = append(r.Ignored, document.Fault{Path: f.Path, Problem: f.Problem}.String())
	}
	return r
}

// hostName is the ServiceNaming of routes: that by which clients dial, with a port if one is named.
func hostName(name, namespace, port string) string {
	if port != "" {
		port = ":" + port
	}
	return named{namespace, name}.host() + port
}

// splitName is the inverse of hostName. Names of service accounts may have dots in them, and those of namespaces have none.
func splitName(text string) (of named, port string) {
	host, port, _ := strings.Cut(text, ":")
	if dot := strings.LastIndexByte(host, '.'); dot >= 0 {
		return named{host[dot+1:], host[:dot]}, port
	}
	return named{name: host}, port
}
