package identity

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/internal/access"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// The tags of a client, beside meshpolicy.NamespaceTag, ZoneTag, NodeTag and ServiceKey. ServiceKey is the name of the service
// account, with the namespace behind a dot, as policies name services.
const (
	AccountTag = "service_account"
	PodTag     = "pod"
)

// Identity is who a client is. Pod and Node are empty if its token is not bound to a pod, or if it has a certificate.
type Identity struct {
	Namespace, Account, Pod, Node string
	// Until is when its token expires, zero for a certificate.
	Until time.Time
}

// reviewAgain is the interval at which the token of an open stream is reviewed again. The stream of a pod or account that was deleted
// ends within it and goodFor, for which a verdict may have been known before.
const reviewAgain = 5 * time.Minute

// Verifier tells who clients are. It is safe for concurrent use.
type Verifier struct {
	Tokens *Tokens
	// Anonymous admits clients without a token and a certificate: they are who they say.
	Anonymous bool
	// TrustDomain is that of certificates, empty for any.
	TrustDomain string
	// ZoneOf returns the zone of a node, empty if it is not known, as that of "" is.
	ZoneOf func(node string) string
}

// Identify is for controlplane.Options.Identify.
func (v Verifier) Identify(ctx context.Context, node *corepb.Node) (*corepb.Node, time.Time, error) {
	id, err := v.identity(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	if id == nil {
		if !v.Anonymous {
			return nil, time.Time{}, status.Error(codes.Unauthenticated, "the client presents neither a token nor a certificate with a SPIFFE ID: "+
				"add call_creds of type jwt_token_file to its bootstrap, with a projected service account token")
		}
		return v.located(node), time.Time{}, nil
	}
	is, err := v.is(id, node)
	until := id.Until
	if again := time.Now().Add(reviewAgain); again.Before(until) {
		until = again
	}
	return is, until, err
}

// identity returns who a client is by its credentials, nil if it has none.
func (v Verifier) identity(ctx context.Context) (*Identity, error) {
	from, _ := peer.FromContext(ctx)
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		switch values := md.Get("authorization"); len(values) {
		case 0:
		case 1:
			scheme, token, _ := strings.Cut(values[0], " ")
			if !strings.EqualFold(scheme, "Bearer") {
				return nil, status.Error(codes.Unauthenticated, "the client's authorization is no bearer token")
			}
			return v.Tokens.Review(ctx, from, token)
		default:
			return nil, status.Error(codes.Unauthenticated, "the client presents several tokens")
		}
	}
	return v.ofCertificate(from)
}

// ofCertificate returns who a client is by the SPIFFE ID of its verified certificate, as Istio and SPIRE write them:
// spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT. nil: it has none.
func (v Verifier) ofCertificate(p *peer.Peer) (*Identity, error) {
	id, ok := access.SPIFFEID(p)
	if !ok {
		return nil, nil
	}
	if domain := id.TrustDomain().Name(); v.TrustDomain != "" && domain != v.TrustDomain {
		return nil, status.Errorf(codes.Unauthenticated, "the client's certificate is of trust domain %s, want %s (--trust-domain)", bounds.Quote(domain), bounds.Quote(v.TrustDomain))
	}
	if parts := strings.Split(id.Path(), "/"); len(parts) == 5 && parts[1] == "ns" && parts[3] == "sa" { // no part of a path is empty
		return &Identity{Namespace: parts[2], Account: parts[4]}, nil
	}
	return nil, nil
}

// is returns the node of an identity, or PERMISSION_DENIED if the client says that it is another.
func (v Verifier) is(id *Identity, node *corepb.Node) (*corepb.Node, error) {
	tags := map[string]string{
		meshpolicy.NamespaceTag: id.Namespace, AccountTag: id.Account, meshpolicy.ServiceKey: id.Account + "." + id.Namespace,
		PodTag: id.Pod, meshpolicy.NodeTag: id.Node, meshpolicy.ZoneTag: v.ZoneOf(id.Node),
	}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		claim, claimed := node.GetMetadata().GetFields()[key]
		_, isText := claim.GetKind().(*structpb.Value_StringValue)
		known := fmt.Sprintf("%q", tags[key])
		if tags[key] == "" {
			if key == meshpolicy.ZoneTag || key == meshpolicy.NodeTag {
				continue // Where a client is, is no secret to tell it, but it decides nothing unless it is verified.
			}
			known = "not known"
		}
		if text := claim.GetStringValue(); claimed && (tags[key] == "" || !isText || text != tags[key]) {
			return nil, status.Errorf(codes.PermissionDenied, "node.metadata.%s is %q, and %s by its token or certificate: correct the node in the client's bootstrap",
				key, bounds.Text(text, bounds.ErrorText), known)
		}
	}
	return withTags(node, tags), nil
}

// located adds to a node that nobody verified the zone that follows from its claims.
func (v Verifier) located(node *corepb.Node) *corepb.Node {
	fields := node.GetMetadata().GetFields()
	if fields[meshpolicy.ZoneTag].GetStringValue() != "" {
		return node
	}
	zone := cmp.Or(v.ZoneOf(fields[meshpolicy.NodeTag].GetStringValue()), node.GetLocality().GetZone())
	if zone == "" {
		return node
	}
	return withTags(node, map[string]string{meshpolicy.ZoneTag: zone})
}

// withTags returns a copy of a node that has these tags, and not those that are empty.
func withTags(node *corepb.Node, tags map[string]string) *corepb.Node {
	is := &corepb.Node{}
	proto.Merge(is, node)
	fields := map[string]*structpb.Value{}
	maps.Copy(fields, is.GetMetadata().GetFields())
	for key, value := range tags {
		if delete(fields, key); value != "" {
			fields[key] = structpb.NewStringValue(value)
		}
	}
	is.Metadata = &structpb.Struct{Fields: fields}
	return is
}
