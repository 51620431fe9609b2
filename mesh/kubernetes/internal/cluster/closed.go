package cluster

import (
	"context"
	"net/url"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// ClosedLabel is the label of a namespace whose services are for its own clients alone; the value is "true".
const ClosedLabel = "dynxds.io/closed"

func isClosed(namespace *metav1.PartialObjectMetadata) bool {
	return labelOf(namespace, ClosedLabel) == "true"
}

// Authorize is controlplane.Options.Authorize: it refuses what belongs to a closed namespace to clients of others, and wildcards and globs
// if there is any such namespace. It is safe for concurrent use.
func (s *Source) Authorize(_ context.Context, node *corepb.Node, _, name string) error {
	own := node.GetMetadata().GetFields()[meshpolicy.NamespaceTag].GetStringValue()
	if strings.HasSuffix(name, "*") || strings.Contains(name, "/*?") {
		if slices.ContainsFunc(s.namespaces.all(), func(n *metav1.PartialObjectMetadata) bool { return n.Name != own && isClosed(n) }) {
			return status.Error(codes.PermissionDenied, "some namespaces are closed to this client, so that it cannot subscribe to everything: subscribe by names")
		}
		return nil
	}
	if namespace := namespaceOf(name); namespace != own && isClosed(s.namespaces.get(namespace)) {
		return status.Errorf(codes.PermissionDenied, "the namespace %s is closed to clients of other namespaces, and this one is of %q", namespace, own)
	}
	return nil
}

// ServiceIn returns the name of a resource without what makes it a name of xRFC TP1.
func ServiceIn(name string) string {
	if !strings.HasPrefix(name, xdsname.Prefix) {
		return name
	}
	id, _, _ := strings.Cut(name[strings.LastIndexByte(name, '/')+1:], "?")
	if plain, err := url.PathUnescape(id); err == nil {
		return plain
	}
	return id
}

// namespaceOf returns the namespace in the name of a resource: NAME.NAMESPACE, with what may follow, is its last part. Other names
// are short ones, of which a client only has those of its own namespace.
func namespaceOf(name string) string {
	name, _, _ = strings.Cut(ServiceIn(name), ";")
	name, _, _ = strings.Cut(name, ":")
	_, rest, _ := strings.Cut(name, ".")
	namespace, _, _ := strings.Cut(rest, ".")
	return namespace
}
