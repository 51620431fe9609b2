package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

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
	granted map[grant]bool
	// read are the routes as they were read last, by the UIDs of their objects.
	read map[types.UID]*route
	// verdicts are those of all routes, and verdictsChanged is closed when there are newer ones. Guarded by Source.mu.
	verdicts        []RouteVerdict
	verdictsChanged chan struct{}
	// policies are those of all routes, in order of their names.
	policies []*meshroute.Policy
}

// route is one object.
type route struct {
	object *unstructured.Unstructured
	kind   string
	// written are the policies as the object says them: with names of Services, with or without ports. Rules with an error fail their
	// requests, and there is no policy if nobody can say for which requests it is.
	written []*meshroute.Policy
	// resolved are the policies with names of services of the mesh, and lookups what they were made of.
	resolved []*meshroute.Policy
	lookups  map[named]lookup
	// verdict is what its status is to say. What says nothing of Services is set when the object is read.
	verdict Verdict
}

// isPolicy reports whether the object is a MeshHTTPRoute.
func (r *route) isPolicy() bool { return r.kind == meshpolicy.DocumentKind }

// newRoutes adds the informers.
func newRoutes(s *Source) *routes {
	r := &routes{source: s, objects: map[string]objects[*unstructured.Unstructured]{}, read: map[types.UID]*route{}, verdictsChanged: make(chan struct{})}
	add := func(resource schema.GroupVersionResource) objects[*unstructured.Unstructured] {
		of := func(namespace string) *cache.ListWatch { return s.opts.Clients.objects(resource, namespace) }
		return follow(s, resource.GroupResource().String(), optional, s.opts.Namespaces, of, &unstructured.Unstructured{}, func(*unstructured.Unstructured) {
			s.mu.Lock()
			s.routesMarked = true
			s.mu.Unlock()
			s.signal()
		})
	}
	for kind, resource := range resources {
		r.objects[kind] = add(resource)
	}
	r.grants = add(ReferenceGrants)
	return r
}

// update reads what has changed, and reports whether the policies differ.
func (r *routes) update() (changed bool) {
	now := make(map[types.UID]*route, len(r.read))
	r.granted = r.readGrants()
	var policies []*meshroute.Policy
	for kind, objects := range r.objects {
		for _, object := range objects.all() {
			last := r.read[object.GetUID()]
			if last == nil || last.object.GetGeneration() != object.GetGeneration() {
				last = readRoute(kind, object)
			}
			last.object = object // which may have another status
			now[object.GetUID()] = last
			r.resolve(last)
			policies = append(policies, last.resolved...)
		}
	}
	r.read = now
	r.judge()
	slices.SortFunc(policies, func(a, b *meshroute.Policy) int { return strings.Compare(a.Name, b.Name) })
	changed = !slices.Equal(policies, r.policies)
	r.policies = policies
	return changed
}

// resources are those of routes by their kinds.
var resources = map[string]schema.GroupVersionResource{
	meshpolicy.GRPCRouteKind: GRPCRoutes, meshpolicy.HTTPRouteKind: HTTPRoutes, meshpolicy.DocumentKind: MeshHTTPRoutes,
}

// RouteVerdict is the verdict on a route.
type RouteVerdict struct {
	Resource schema.GroupVersionResource
	Object   *unstructured.Unstructured
	Verdict
	policies []*meshroute.Policy
	// consumers are all bindings of consumer routes.
	consumers map[binding]bool
}

// Services are those that the route has rules for.
func (v RouteVerdict) Services() (names []string) {
	for _, p := range v.policies {
		for i := range p.To {
			names = append(names, p.To[i].TargetRef.Name)
		}
	}
	return names
}

// Concerns reports whether the route has rules for the requests of a client to a service.
func (v RouteVerdict) Concerns(c meshroute.Client, service string) bool {
	consumes := v.consumers[binding{service, c.Tag(meshpolicy.NamespaceTag)}]
	return slices.ContainsFunc(v.policies, func(p *meshroute.Policy) bool {
		if consumes && p.Kind != "" && len(p.TargetRef.Tags) == 0 {
			return false
		}
		return p.TargetRef.Selects(c) && slices.ContainsFunc(p.To, func(t meshpolicy.To) bool { return t.TargetRef.Name == service || t.TargetRef.Name == "" })
	})
}

// Verdicts returns those of all MeshHTTPRoutes, and of all routes with parents that are Services, or with a status of this controller
// from when they had some, as they were read last, and a channel that is closed when there are newer ones. It is safe for concurrent
// use.
func (s *Source) Verdicts() ([]RouteVerdict, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.routes.verdicts, s.routes.verdictsChanged
}

// judge notes the verdicts.
func (r *routes) judge() {
	grpc, consumers := make(map[binding]string), make(map[binding]bool)
	for _, of := range r.read {
		for _, p := range of.verdict.Parents {
			for _, b := range p.bound {
				if b.consumer != "" && len(of.resolved) > 0 {
					consumers[b] = true
				}
				if of.kind == meshpolicy.GRPCRouteKind && len(of.resolved) > 0 {
					grpc[b] = max(grpc[b], nameOf(of.object).String()) // always the same one
				}
			}
		}
	}
	var list []RouteVerdict
	for _, of := range r.read {
		if len(of.verdict.Parents) == 0 && !of.isPolicy() && !hasStatus(of.object) {
			continue
		}
		v := of.verdict
		if of.kind == meshpolicy.HTTPRouteKind {
			v.Parents = conflicts(v.Parents, grpc)
		}
		list = append(list, RouteVerdict{resources[of.kind], of.object, v, of.resolved, consumers})
	}
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	r.verdicts = list
	close(r.verdictsChanged)
	r.verdictsChanged = make(chan struct{})
}

// conflicts notes in the parents of an HTTPRoute where a GRPCRoute is in force on all ports (GEP-1294, "Route types").
func conflicts(parents []ParentVerdict, grpc map[binding]string) []ParentVerdict {
	parents = slices.Clone(parents)
	for i := range parents {
		p := &parents[i]
		if len(p.bound) > 0 && !slices.ContainsFunc(p.bound, func(b binding) bool { return grpc[b] == "" }) {
			p.Conflict = fmt.Sprintf("the GRPCRoute %s is for the same Service and port, and counts before HTTPRoutes", grpc[p.bound[0]])
		}
	}
	return parents
}

// Controller is the name under which the status of routes is written.
const Controller = "dynxds.io/dynxds-kubernetes"

// hasStatus reports whether a route has a status of this controller.
func hasStatus(object *unstructured.Unstructured) bool {
	parents, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "parents")
	list, _ := parents.([]any)
	return slices.ContainsFunc(list, func(p any) bool {
		of, _ := p.(map[string]any)
		return of["controllerName"] == Controller
	})
}

func nameOf(object *unstructured.Unstructured) named {
	return named{object.GetNamespace(), object.GetName()}
}

// mayBeRoute reports whether a route has a Service among its parents. Others are those of gateways.
func mayBeRoute(object *unstructured.Unstructured) bool {
	parents, _, _ := unstructured.NestedSlice(object.Object, "spec", "parentRefs")
	return slices.ContainsFunc(parents, isService)
}

// isService reports whether a parent is a Service. Without a group it is one of the Gateway API.
func isService(parent any) bool {
	of, _ := parent.(map[string]any)
	return of["kind"] == "Service" && of["group"] == ""
}

// readRoute reads an object, whose lines nobody knows.
func readRoute(kind string, object *unstructured.Unstructured) *route {
	r := &route{object: object, kind: kind}
	if !r.isPolicy() && !mayBeRoute(object) {
		return r
	}
	text, err := json.Marshal(object.Object)
	if err != nil {
		r.verdict.Faults = err
		return r
	}
	var faults, unknown document.Faults
	for _, doc := range document.ParseOpen(nameOf(object).String(), text, &faults, &unknown) {
		if r.isPolicy() {
			r.written = append(r.written, readPolicy(doc, object.GetNamespace())...)
		} else {
			r.written = append(r.written, meshpolicy.ParseRouteObject(doc, kind, hostName)...)
		}
	}
	for i := range faults.List {
		faults.List[i].Line = 0
	}
	r.verdict.Faults, r.verdict.InForce = faults.Err(), inForce(r.written)
	for _, f := range unknown.List {
		// Without the file and line, and what else the field may be called.
		r.verdict.Ignored = append(r.verdict.Ignored, document.Fault{Path: f.Path, Problem: f.Problem}.String())
	}
	return r
}

// inForce reports whether a rule is used that has no fault.
func inForce(written []*meshroute.Policy) bool {
	return slices.ContainsFunc(written, func(p *meshroute.Policy) bool {
		return slices.ContainsFunc(p.To, func(t meshpolicy.To) bool {
			return slices.ContainsFunc(t.Rules, func(r meshpolicy.Rule) bool { return r.Unsupported() == "" })
		})
	})
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
