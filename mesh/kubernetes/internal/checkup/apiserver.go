// Package checkup follows the way from the API server to what clients of "dynxds-kubernetes serve" get, and says at which step it
// ends, and what to do about that. The report is that of package doctor.
package checkup

import (
	"context"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/dynxds/dynxds/mesh/internal/doctor"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/cluster"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/identity"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/routestatus"
)

// Options are those of APIServer.
type Options struct {
	Clients *cluster.Clients
	// Host is the address of the API server.
	Host string
	// Namespaces are those whose objects are read; none are all. LeaseNamespace is that of the Lease.
	Namespaces     []string
	LeaseNamespace string
	// Token is that of a client, for Audience; it may be empty.
	Token, Audience string
}

// APIServer examines whether a control plane can work: the API server, permissions, CRDs, and the token of a client. It reports
// whether a control plane would start, so that Services can be read.
func APIServer(ctx context.Context, r *doctor.Report, opts Options) (starts bool) {
	version, err := opts.Clients.Version(ctx)
	switch {
	case apierrors.IsUnauthorized(err):
		r.Add(doctor.Failed, "renew the token or certificate of the kubeconfig", "API server", opts.Host, "it does not know who asks: %v", err)
		return false
	case apierrors.IsForbidden(err):
		r.Add(doctor.OK, "", "API server", opts.Host, "it answers")
	case err != nil:
		r.Add(doctor.Failed, "correct the address in the kubeconfig, or see whether the API server runs", "API server", opts.Host, "%v", err)
		return false
	default:
		r.Add(doctor.OK, "", "API server", opts.Host, "%s", version)
	}
	starts = permissions(ctx, r, opts)
	crds(ctx, r, opts.Clients)
	if opts.Token != "" {
		token(ctx, r, opts)
	}
	return starts
}

// purpose is what permissions are for, and what becomes of the control plane without them.
type purpose struct {
	name    string
	without doctor.Result
	effect  string
	// in says for which namespaces it is: those that are read, that of the Lease, or all.
	in string
	// verbs are for each of the resources, NAME.GROUP, with a slash before a subresource.
	verbs, resources string
}

// noStart is the effect that ends an examination.
const noStart = "the control plane does not start"

var purposes = []purpose{
	{"read Services and endpoints", doctor.Failed, noStart, "read", "list watch", "services endpointslices.discovery.k8s.io"},
	{"read namespaces", doctor.Failed, noStart, "all", "list watch", "namespaces"},
	{"read routes", doctor.Failed, noStart, "read", "list watch", "grpcroutes.gateway.networking.k8s.io httproutes.gateway.networking.k8s.io " +
		"referencegrants.gateway.networking.k8s.io meshhttproutes.dynxds.io"},
	{"read nodes", doctor.Warning, "the zones of clients are not known", "all", "list watch", "nodes"},
	{"review tokens", doctor.Failed, "clients with a token get UNAVAILABLE", "all", "create", "tokenreviews.authentication.k8s.io"},
	{"write status", doctor.Warning, "routes have no status", "read", "patch", "grpcroutes.gateway.networking.k8s.io/status " +
		"httproutes.gateway.networking.k8s.io/status meshhttproutes.dynxds.io/status"},
	{"write events", doctor.Warning, "there are no events", "read", "create patch", "events"},
	{"hold the Lease", doctor.Warning, "routes have no status", "Lease", "create get update", "leases.coordination.k8s.io"},
}

// permissions asks for all that deploy/kubernetes/rbac.yaml grants.
func permissions(ctx context.Context, r *doctor.Report, opts Options) (starts bool) {
	const step = "permission"
	starts = true
	namespaces := map[string][]string{"read": opts.Namespaces, "Lease": {opts.LeaseNamespace}, "all": {""}}
	if len(opts.Namespaces) == 0 {
		namespaces["read"] = namespaces["all"]
	}
	for _, p := range purposes {
		missing, err := p.missing(ctx, opts.Clients, namespaces[p.in])
		switch {
		case err != nil:
			r.Add(doctor.Warning, "", step, p.name, "the API server does not say: %v", err)
		case len(missing) > 0:
			starts = starts && p.effect != noStart
			r.Add(p.without, "kubectl apply -f deploy/kubernetes/rbac.yaml", step, p.name, "not permitted: %s; without it, %s", strings.Join(missing, ", "), p.effect)
		default:
			r.Add(doctor.OK, "", step, p.name, "permitted")
		}
	}
	return starts
}

// missing returns what is not permitted in any of some namespaces.
func (p *purpose) missing(ctx context.Context, clients *cluster.Clients, namespaces []string) (list []string, err error) {
	reviews := clients.Typed.AuthorizationV1().SelfSubjectAccessReviews()
	for resource := range strings.FieldsSeq(p.resources) {
		name, subresource, _ := strings.Cut(resource, "/")
		of := schema.ParseGroupResource(name)
		for verb := range strings.FieldsSeq(p.verbs) {
			for _, namespace := range namespaces {
				attributes := &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: of.Group, Resource: of.Resource, Subresource: subresource}
				// "create" cannot be limited to a name.
				if p.in == "Lease" && verb != "create" {
					attributes.Name = routestatus.LeaseName
				}
				review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}
				if review, err = reviews.Create(ctx, review, metav1.CreateOptions{}); err != nil {
					return nil, err
				}
				if !review.Status.Allowed {
					list = append(list, strings.TrimSuffix(verb+" "+resource+" in "+namespace, " in "))
				}
			}
		}
	}
	return list, nil
}

// crds looks for the resources that need not be there.
func crds(ctx context.Context, r *doctor.Report, clients *cluster.Clients) {
	const gateway, own = "install the CRDs of https://gateway-api.sigs.k8s.io, if there are to be routes", "kubectl apply -f deploy/kubernetes/crd.yaml, if there are to be policies"
	for _, crd := range []struct {
		resource     schema.GroupVersionResource
		without, fix string
	}{
		{cluster.GRPCRoutes, "there are no GRPCRoutes", gateway},
		{cluster.HTTPRoutes, "there are no HTTPRoutes", gateway},
		{cluster.ReferenceGrants, "routes cannot have backends of other namespaces", gateway},
		{cluster.MeshHTTPRoutes, "there are no policies", own},
	} {
		name := crd.resource.GroupResource().String()
		switch has, err := clients.Has(ctx, crd.resource); {
		case err != nil:
			r.Add(doctor.Warning, "", "CRD", name, "the API server does not say: %v", err)
		case !has:
			r.Add(doctor.Warning, crd.fix, "CRD", name, "version %s is not installed: %s", crd.resource.Version, crd.without)
		default:
			r.Add(doctor.OK, "", "CRD", name, "version %s", crd.resource.Version)
		}
	}
}

// token reviews the token of a client as the control plane does.
func token(ctx context.Context, r *doctor.Report, opts Options) {
	const step = "token"
	tokens := identity.NewTokens(opts.Clients.Typed.AuthenticationV1().TokenReviews(), opts.Audience, 0)
	id, err := tokens.Review(ctx, &peer.Peer{Addr: &net.TCPAddr{}}, opts.Token)
	if status.Code(err) == codes.Unavailable {
		r.Add(doctor.Failed, "kubectl apply -f deploy/kubernetes/rbac.yaml, or wait for the API server", step, "", "%s", status.Convert(err).Message())
		return
	}
	if err != nil {
		r.Add(doctor.Failed, "mount a projected token for the audience "+opts.Audience+", as deploy/kubernetes/example/client.yaml does", step, "", "%s", status.Convert(err).Message())
		return
	}
	who := []string{"service account " + id.Account, "namespace " + id.Namespace}
	if id.Pod != "" {
		who = append(who, "pod "+id.Pod)
	}
	if id.Node != "" {
		who = append(who, "node "+id.Node)
	}
	r.Add(doctor.OK, "", step, "", "%s; it ends in %s", strings.Join(who, ", "), time.Until(id.Until).Round(time.Second))
}
