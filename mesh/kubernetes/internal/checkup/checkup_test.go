package checkup

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/doctor"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
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
