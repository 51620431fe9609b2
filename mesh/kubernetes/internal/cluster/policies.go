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
// and about those of their own namespace's clients to others: these are a policy of their own, as with routes.
func readPolicy(doc document.Value, namespace string) []*meshpolicy.Policy {
	naming := func(name, in, port string) string { return hostName(name, cmp.Or(in, namespace), port) }
	policies := meshpolicy.Read(doc, meshpolicy.DocumentKind, naming)
	if len(policies) == 0 {
		return nil
	}
	p := policies[0]
	for _, tag := range slices.Sorted(maps.Keys(p.TargetRef.Tags)) {
		if !slices.Contains(clientTags, tag) {
			doc.Fault("use "+strings.Join(clientTags, ", "), "clients in Kubernetes have no tag %q", tag)
			return nil
		}
	}
	producer, consumer := *p, *p
	producer.To, consumer.To = nil, nil
	for _, to := range p.To {
		if of, _ := splitName(to.TargetRef.Name); of.namespace == namespace {
			producer.To = append(producer.To, to)
		} else {
			consumer.To = append(consumer.To, to)
		}
	}
	var list []*meshpolicy.Policy
	if len(producer.To) > 0 {
		list = append(list, &producer)
	}
	if len(consumer.To) == 0 {
		return list
	}
	account, _ := splitName(p.TargetRef.Name)
	for _, in := range []string{account.namespace, p.TargetRef.Tags[meshpolicy.NamespaceTag]} {
		if in != "" && in != namespace {
			doc.Fault("put it into the namespace of the destination", "a policy is for clients of another namespace, %s, only if all its destinations are Services of its own", in)
			return nil
		}
	}
	consumer.TargetRef.Tags = make(map[string]string)
	maps.Copy(consumer.TargetRef.Tags, p.TargetRef.Tags)
	consumer.TargetRef.Tags[meshpolicy.NamespaceTag] = namespace
	if len(list) > 0 {
		consumer.Name += "/consumer"
	}
	return append(list, &consumer)
}
