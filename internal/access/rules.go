// Package access tells who a client is, by its certificate or its token, and what it may have: which names it may
// subscribe to, and which node it may say that it is.
//
// Everything else that a client says of itself is a claim.
package access

import (
	"context"
	"crypto/subtle"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Rules decide which client may subscribe to which names, and which node it may be. The zero value lets every client
// have everything, as any node. A client without permission for a name gets an error PERMISSION_DENIED in its place
// (xRFC TP3); the stream of one whose node is another's ends with PERMISSION_DENIED. Rules are immutable.
type Rules struct{ rules []rule }

// rule is one entry of Rules.
type rule struct {
	// san is a DNS name or URI of the client's certificate; see pattern.
	san pattern
	// token is a bearer token (call credentials, the metadata "authorization").
	token string
	// node is what the rule requires of the client's node.
	node nodeRule
	// names are the prefixes of the names.
	names []string
}

// IsZero reports whether there are no rules.
func (r Rules) IsZero() bool { return r.rules == nil }

// NeedCertificates reports whether a rule is for clients with a certificate, which no client has whose
// certificate is not verified.
func (r Rules) NeedCertificates() bool {
	return slices.ContainsFunc(r.rules, func(r rule) bool { return r.token == "" })
}

// Grant is what one client may have.
type Grant struct {
	everything bool
	rules      []*rule
}

// Grant returns what a client may have, by its stream's context and the node of its first request, which may be nil;
// or PERMISSION_DENIED if the node is none that its rules let it be. It returns the node to use in place of the client's:
// with the fields that the client left out and the rules know (see [Parse]).
func (r Rules) Grant(ctx context.Context, node *corepb.Node) (Grant, *corepb.Node, error) {
	if r.IsZero() {
		return Grant{everything: true}, node, nil
	}
	names, token := identities(ctx)
	var g Grant
	var refused error
	checked := node
	for i := range r.rules {
		rule := &r.rules[i]
		found, ok := rule.matches(names, token)
		if !ok {
			continue
		}
		is, err := rule.node.check(node, found)
		if err != nil {
			if refused == nil {
				refused = err
			}
			continue
		}
		if checked == node {
			checked = is
		}
		g.rules = append(g.rules, rule)
	}
	if len(g.rules) == 0 && refused != nil {
		return Grant{}, nil, refused
	}
	return g, checked, nil
}

// Everything reports whether the client may have all names.
func (g Grant) Everything() bool { return g.everything }

// Check returns PERMISSION_DENIED if the client may not have a name, in canonical form.
func (g Grant) Check(name string) error {
	if g.everything || slices.ContainsFunc(g.rules, func(r *rule) bool { return r.covers(name) }) {
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "the xDS server does not let this client subscribe to %q: see its access rules (--access)", name)
}

func (r *rule) covers(name string) bool {
	return slices.ContainsFunc(r.names, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// matches reports whether the rule is for a client with these names or this token, and returns for each name that matches
// what the placeholders stand for.
func (r *rule) matches(names []string, token string) (found []map[string]string, ok bool) {
	if r.token != "" {
		return []map[string]string{nil}, subtle.ConstantTimeCompare([]byte(r.token), []byte(token)) == 1
	}
	for _, name := range names {
		if values, ok := r.san.match(name); ok {
			found = append(found, values)
		}
	}
	return found, len(found) > 0
}

// identities returns the names in the verified certificate of a client, and its token. A client has
// none of what it did not present.
func identities(ctx context.Context) (names []string, token string) {
	if p, ok := peer.FromContext(ctx); ok {
		names = sans(p)
	}
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		if values := md.Get("authorization"); len(values) == 1 {
			if scheme, rest, ok := strings.Cut(values[0], " "); ok && strings.EqualFold(scheme, "Bearer") {
				token = rest
			}
		}
	}
	return names, token
}
