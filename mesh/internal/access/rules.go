// Package access tells who a client is, by its certificate, and what it may have: which names it may subscribe to, and
// which node it may say that it is.
//
// Everything else that a client says of itself is a claim.
package access

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/peercert"
)

// Rules decide which client may subscribe to which names, and which node it may be. The zero value lets every client
// have everything, as any node. A client without permission for a name gets an error PERMISSION_DENIED in its place
// (xRFC TP3); the stream of one whose node is another's ends with PERMISSION_DENIED. Rules are immutable.
type Rules struct{ rules []rule }

// rule is one entry of Rules.
type rule struct {
	// who is the SPIFFE ID of the clients that the rule is for.
	who template
	// node is what the rule requires of the client's node.
	node []requirement
	// names are the prefixes of the names.
	names []string
}

// IsZero reports whether there are no rules.
func (r Rules) IsZero() bool { return r.rules == nil }

// Grant is what one client may have.
type Grant struct {
	everything bool
	rules      []*rule
}

// Grant returns what a client may have, by its stream's context and the node of its first request, which may be nil;
// or PERMISSION_DENIED if the node is none that its rules let it be. It returns the node to use in place of the client's:
// with the fields that the client left out and the rules know (see [Parse]).
//
// Rules apply in their order, each to the node with what those before it filled in, so that all rules of the grant allow
// the node that is returned.
func (r Rules) Grant(ctx context.Context, node *corepb.Node) (Grant, *corepb.Node, error) {
	if r.IsZero() {
		return Grant{everything: true}, node, nil
	}
	from, _ := peer.FromContext(ctx)
	id, ok := SPIFFEID(from)
	if !ok {
		return Grant{}, node, nil
	}
	var g Grant
	var refused error
	is := node
	for i := range r.rules {
		rule := &r.rules[i]
		values, ok := rule.who.match(id)
		if !ok {
			continue
		}
		admitted, err := rule.admit(is, values)
		if err != nil {
			refused = cmp.Or(refused, err)
			continue
		}
		is = admitted
		g.rules = append(g.rules, rule)
	}
	if len(g.rules) == 0 && refused != nil {
		return Grant{}, nil, refused
	}
	return g, is, nil
}

// admit returns the node with what it lacks, or PERMISSION_DENIED if the rule does not allow it.
func (r *rule) admit(node *corepb.Node, values map[string]string) (*corepb.Node, error) {
	if len(r.node) == 0 {
		return node, nil
	}
	is := &corepb.Node{}
	proto.Merge(is, node)
	for i := range r.node {
		if err := r.node[i].complete(is, values); err != nil {
			return nil, err
		}
	}
	return is, nil
}

// Everything reports whether the client may have all names.
func (g Grant) Everything() bool { return g.everything }

// Check returns PERMISSION_DENIED if the client may not have a name, in canonical form.
func (g Grant) Check(name string) error {
	covers := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	if g.everything || slices.ContainsFunc(g.rules, func(r *rule) bool { return slices.ContainsFunc(r.names, covers) }) {
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "the xDS server does not let this client subscribe to %q: see its access rules (--access)", name)
}

// SPIFFEID returns the SPIFFE ID of a client's verified certificate. As SPIFFE has it, a certificate with several URIs, or with rights of
// a CA, has none.
func SPIFFEID(p *peer.Peer) (id spiffeid.ID, ok bool) {
	cert := verified(p)
	if cert == nil {
		return id, false
	}
	id, err := peercert.SPIFFEID(cert)
	return id, err == nil
}
