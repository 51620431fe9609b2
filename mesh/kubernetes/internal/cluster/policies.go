package cluster

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/kubernetes/internal/identity"
)

// MeshHTTPRoutes are policies as resources of Kubernetes. They are routes as those of the Gateway API are, without parents.
var MeshHTTPRoutes = schema.GroupVersionResource{Group: "dynxds.io", Version: "v1alpha1", Resource: "meshhttproutes"}

// clientTags are the tags of clients, beside their service, which is the service account.
var clientTags = []string{meshpolicy.NamespaceTag, identity.AccountTag, identity.PodTag, meshpolicy.NodeTag, meshpolicy.ZoneTag}

// readPolicy reads a MeshHTTPRoute of a namespace. Its authors decide about the requests to the Services of their own namespace,
// and about those of their own namespace's clients to others.
func readPolicy(doc document.Value, namespace string) *meshpolicy.Policy {
	naming := func(name, in, port string) string { return hostName(name, cmp.Or(in, namespace), port) }
	p := meshpolicy.Read(doc, meshpolicy.DocumentKind, naming)
	if p == nil {
		return nil
	}
	to := p.To
	clients := to[0].Clients
	for _, tag := range slices.Sorted(maps.Keys(clients.Tags)) {
		if !slices.Contains(clientTags, tag) {
			doc.Fault("use "+strings.Join(clientTags, ", "), "clients in Kubernetes have no tag %q", tag)
			return nil
		}
	}
	account, _ := splitName(clients.Name)
	own := map[string]string{meshpolicy.NamespaceTag: namespace}
	maps.Copy(own, clients.Tags)
	for i := range to {
		if of, _ := splitName(to[i].TargetRef.Name); of.namespace == namespace {
			continue
		}
		for _, in := range []string{account.namespace, clients.Tags[meshpolicy.NamespaceTag]} {
			if in != "" && in != namespace {
				doc.Fault("put it into the namespace of the destination", "a policy is for clients of another namespace, %s, only if all its destinations are Services of its own", in)
				return nil
			}
		}
		to[i].Clients.Tags = own
	}
	return p
}
