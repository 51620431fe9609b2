package checkup

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/doctor"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/testutils"
)

// apiServer has a version, some CRDs, and reviews of access. It denies what denied reports.
type apiServer struct {
	version int // the status of the answer
	crds    []schema.GroupVersionResource
	denied  func(*authorizationv1.ResourceAttributes) bool
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	answer := func(code int, v any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	failure := func(code int, reason metav1.StatusReason) {
		answer(code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason})
	}
	switch {
	case q.URL.Path == "/version" && s.version == http.StatusUnauthorized:
		failure(s.version, metav1.StatusReasonUnauthorized)
	case q.URL.Path == "/version":
		answer(http.StatusOK, map[string]string{"gitVersion": "v1.36.3"})
	case strings.HasSuffix(q.URL.Path, "/selfsubjectaccessreviews"):
		review := authorizationv1.SelfSubjectAccessReview{}
		_ = json.NewDecoder(q.Body).Decode(&review)
		review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
		review.Status.Allowed = s.denied == nil || !s.denied(review.Spec.ResourceAttributes)
		answer(http.StatusCreated, review)
	default:
		list := metav1.APIResourceList{}
		for _, crd := range s.crds {
			if q.URL.Path == "/apis/"+crd.Group+"/"+crd.Version {
				list.APIResources = append(list.APIResources, metav1.APIResource{Name: crd.Resource})
			}
		}
		if len(list.APIResources) == 0 {
			failure(http.StatusNotFound, metav1.StatusReasonNotFound)
			return
		}
		answer(http.StatusOK, list)
	}
}

var allCRDs = []schema.GroupVersionResource{cluster.GRPCRoutes, cluster.HTTPRoutes, cluster.ReferenceGrants, cluster.MeshHTTPRoutes}

// Each thing that a control plane needs of an API server has a check, which ends the examination if it would not start.
func TestAPIServer(t *testing.T) {
	t.Parallel()
	deny := func(verb, resource string) func(*authorizationv1.ResourceAttributes) bool {
		return func(a *authorizationv1.ResourceAttributes) bool { return a.Verb == verb && a.Resource == resource }
	}
	for _, test := range []struct {
		name   string
		server apiServer
		starts bool
		want   string // a line
	}{
		{"healthy", apiServer{crds: allCRDs}, true, ": 13 checks, none failed"},
		{"the token of the kubeconfig has expired", apiServer{version: http.StatusUnauthorized}, false, "→ renew the token or certificate of the kubeconfig"},
		{"Services cannot be watched", apiServer{crds: allCRDs, denied: deny("watch", "services")}, false,
			"✗ permission  read Services and endpoints: not permitted: watch services in shop; without it, the control plane does not start"},
		{"nodes cannot be listed", apiServer{crds: allCRDs, denied: deny("list", "nodes")}, true,
			"! permission  read nodes: not permitted: list nodes; without it, the zones of clients are not known"},
		{"the Lease cannot be renewed", apiServer{crds: allCRDs, denied: func(a *authorizationv1.ResourceAttributes) bool {
			return a.Namespace == "system" && a.Name == "dynxds"
		}}, true, "! permission  hold the Lease: not permitted: get leases.coordination.k8s.io in system, update"},
		{"no status can be written", apiServer{crds: allCRDs, denied: deny("patch", "grpcroutes")}, true,
			"! permission  write status: not permitted: patch grpcroutes.gateway.networking.k8s.io/status in shop; without it, routes have no status"},
		{"a CRD is missing", apiServer{crds: allCRDs[1:]}, true,
			"! CRD         grpcroutes.gateway.networking.k8s.io: version v1 is not installed: there are no GRPCRoutes"},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			server := httptest.NewServer(&test.server)
			t.Cleanup(server.Close)
			r := &doctor.Report{}
			clients := clientsOf(t, server.URL)
			starts := APIServer(testutils.Context(t), r, Options{Clients: clients, Host: "host", Namespaces: []string{"shop"}, LeaseNamespace: "system"})
			if text := plain(r); starts != test.starts || !strings.Contains(text, test.want) {
				t.Errorf("starts is %t, and the report\n%swant %t and %q", starts, text, test.starts, test.want)
			}
		})
	}
}

// clientsOf has clients without protobuf, which the server of these tests does not speak.
func clientsOf(t testing.TB, url string) *cluster.Clients {
	t.Helper()
	config := &rest.Config{Host: url, QPS: -1}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	typed, err := kubernetes.NewForConfig(config)
	xdstest.NoError(t, err)
	objects, err := dynamic.NewForConfig(config)
	xdstest.NoError(t, err)
	return &cluster.Clients{Typed: typed, Dynamic: objects}
}

func plain(r *doctor.Report) string { return r.Lines().String() }

// greeter is what a Source knows of a Service with two ready endpoints, after a change.
func greeter(change func(*cluster.ServiceState)) cluster.ServiceState {
	h2c := "kubernetes.io/h2c"
	s := cluster.ServiceState{
		Object: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "greeter"},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": "greeter"},
				Ports: []corev1.ServicePort{{Name: "rpc", Port: 8080, AppProtocol: &h2c}},
			},
		},
		Slices:   []*discoveryv1.EndpointSlice{{Endpoints: make([]discoveryv1.Endpoint, 2)}},
		Services: []*meshroute.Service{{Name: "greeter.shop:8080", Endpoints: []meshroute.Endpoint{{Address: "10.0.0.1:8080"}, {Address: "10.0.0.2:8080"}}}},
	}
	change(&s)
	return s
}

// routed is a route for the Service, with a verdict and the conditions that were written.
func routed(kind string, v cluster.Verdict, written ...any) func(*cluster.ServiceState) {
	object := &unstructured.Unstructured{Object: map[string]any{"kind": kind, "metadata": map[string]any{"namespace": "shop", "name": "route", "generation": int64(1)}}}
	if written != nil {
		object.Object["status"] = map[string]any{"parents": []any{map[string]any{"controllerName": cluster.Controller, "conditions": written}}}
	}
	if v.Parents == nil {
		v.Parents = []cluster.ParentVerdict{{}}
	}
	return func(s *cluster.ServiceState) { s.Routes = []cluster.RouteVerdict{{Object: object, Verdict: v}} }
}

// The first thing that is wrong with a Service has a line, and what to do.
func TestService(t *testing.T) {
	t.Parallel()
	accepted := map[string]any{"type": "Accepted", "status": "True", "observedGeneration": int64(1)}
	refused := map[string]any{"type": "dynxds.io/RefusedByClients", "status": "True", "message": "2 clients refuse it"}
	leftOut := meshroute.Report{Severity: meshroute.Error, Source: meshroute.Source{File: "shop/greeter"}, Message: "too many endpoints", LeftOut: true}
	other := leftOut
	other.Source.File = "shop/other"
	for _, test := range []struct {
		name    string
		change  func(*cluster.ServiceState)
		reports []meshroute.Report
		failed  bool
		want    []string
	}{
		{"healthy", func(*cluster.ServiceState) {}, []meshroute.Report{other}, false,
			[]string{"greeter.shop:8080: name rpc, appProtocol kubernetes.io/h2c; the default", "2 ready, 0 terminating, 0 not ready", "resources  xds:///greeter.shop:8080", "4 checks, none failed"}},
		{"no Service", func(s *cluster.ServiceState) { *s = cluster.ServiceState{} }, nil, true, []string{"✗ Service", "kubectl get services -n shop"}},
		{"no TCP port", func(s *cluster.ServiceState) { s.Services = nil }, nil, true, []string{"it has no TCP port", "→ add a port"}},
		{"no port for gRPC", func(s *cluster.ServiceState) {
			s.Object.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "rpc", Port: 8080}}
			s.Services = append([]*meshroute.Service{{Name: "greeter.shop:80", Endpoints: s.Services[0].Endpoints}}, s.Services...)
		}, nil, false, []string{"! port       greeter.shop:80: name http, no appProtocol; it is the default as the first", "→ set appProtocol: grpc"}},
		{"no endpoints", func(s *cluster.ServiceState) { s.Slices, s.Services[0].Endpoints = nil, nil }, nil, true, []string{"0 EndpointSlices, without endpoints", "-l 'app=greeter'"}},
		{"no selector", func(s *cluster.ServiceState) { s.Slices, s.Object.Spec.Selector = nil, nil }, nil, true, []string{"kubernetes.io/service-name: greeter"}},
		{"another port", func(s *cluster.ServiceState) { s.Services[0].Endpoints = nil }, nil, true, []string{"none of the 2 endpoints has this port", "→ name a targetPort"}},
		{"none ready", func(s *cluster.ServiceState) {
			s.Services[0].Endpoints[0].Health, s.Services[0].Endpoints[1].Health = corepb.HealthStatus_UNHEALTHY, corepb.HealthStatus_DRAINING
		}, nil, true, []string{"✗ endpoints  greeter.shop:8080: 0 ready, 1 terminating, 1 not ready"}},
		{"an odd port", func(s *cluster.ServiceState) { s.Problems = []string{"its port is 0"} }, nil, true, []string{"✗ endpoints  shop/greeter: its port is 0"}},
		{"a host elsewhere", func(s *cluster.ServiceState) {
			s.Object.Spec.Type, s.Slices, s.Services[0].ExternalName = corev1.ServiceTypeExternalName, nil, "example.com:8080"
		}, nil, false, []string{"a Cluster of example.com:8080"}},
		{"a good route", routed("GRPCRoute", cluster.Verdict{InForce: true}, accepted), nil, false, []string{"✓ GRPCRoute  shop/route: Accepted and ResolvedRefs are True"}},
		{"no status", routed("GRPCRoute", cluster.Verdict{InForce: true}), nil, false, []string{"! GRPCRoute  shop/route: no control plane has written the status of generation 1"}},
		{"a missing backend", routed("HTTPRoute", cluster.Verdict{InForce: true, NotFound: []string{"there is no Service shop/gone"}}, accepted), nil, true,
			[]string{"✗ HTTPRoute  shop/route: ResolvedRefs=False, BackendNotFound: there is no Service shop/gone", "→ correct the name"}},
		{"a conflict", routed("HTTPRoute", cluster.Verdict{InForce: true, Parents: []cluster.ParentVerdict{{Conflict: "a GRPCRoute counts"}}}, accepted), nil, true, []string{"Accepted=False, Conflicted"}},
		{"a policy without grant", routed("MeshHTTPRoute", cluster.Verdict{InForce: true, NotPermitted: []string{"pay/bank"}}), nil, true, []string{"RefNotPermitted", "→ create a ReferenceGrant"}},
		{"clients refuse it", routed("GRPCRoute", cluster.Verdict{InForce: true}, accepted, refused), nil, true, []string{"clients refuse it: 2 clients refuse it"}},
		{"a route has errors for some clients", routed("GRPCRoute", cluster.Verdict{InForce: true}, accepted), []meshroute.Report{{Severity: meshroute.Warning, Clients: "gRPC clients", Policy: "GRPCRoute/shop/route", Message: "no retries"}}, false,
			[]string{"! resources  GRPCRoute/shop/route: gRPC clients: no retries"}},
		{"it is left out", func(*cluster.ServiceState) {}, []meshroute.Report{leftOut}, true, []string{"✗ resources  shop/greeter: left out: too many endpoints"}},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			r := &doctor.Report{}
			Service(r, "shop/greeter", greeter(test.change), test.reports)
			text := plain(r)
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("the report is\n%swant %q", text, want)
				}
			}
			if r.Failed() != test.failed {
				t.Errorf("failed is %t:\n%s", r.Failed(), text)
			}
		})
	}
}
