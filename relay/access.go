package relay

import (
	"context"
	"crypto/subtle"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdsname"
)

// Access decides which client may subscribe to which names. The zero value lets every client subscribe to
// everything. A client without permission for a name gets an error PERMISSION_DENIED in its place
// (xRFC TP3), and the control plane is not asked.
type Access struct{ rules []accessRule }

// accessRule is one entry of an Access.
type accessRule struct {
	// san is a DNS name or URI of the client's certificate; one that ends in "*" is a prefix.
	san string
	// token is a bearer token (call credentials, the metadata "authorization").
	token string
	// names are the prefixes of the names.
	names []string
}

// ParseAccess reads an Access from JSON: a list of rules, each with a subject, which is "san" or
// "token", and the prefixes "names" of the resources that it may subscribe to. A client has the names
// of all rules whose subject it is; one that is none may subscribe to nothing.
//
//	[{"san": "spiffe://mesh/ns/shop/*", "names": ["shop.", "xdstp://shop/"]},
//	 {"token": "s3cr3t", "names": [""]}]
func ParseAccess(data []byte) (Access, error) {
	var a Access
	found := &faults.Faults{Source: "access"}
	if list, err := document.ParseJSON(data, found); err != nil {
		found.Addf(nil, "%v", err)
	} else {
		rules := list.Elements("a list of rules")
		for _, rule := range rules {
			a.rules = append(a.rules, parseRule(rule))
		}
		if list.IsList() && len(rules) == 0 {
			list.Fault("", "there is no rule, so no client may subscribe to anything")
		}
	}
	if err := found.Err(); err != nil {
		return Access{}, err
	}
	return a, nil
}

func parseRule(v document.Value) (r accessRule) {
	o := v.Object()
	if !o.IsObject() {
		return r
	}
	for _, name := range o.Names() {
		if name != "san" && name != "token" && name != "names" {
			v.Fault("the fields are san, token and names", "unknown field %s", faults.Quote(name))
		}
	}
	r.san, r.token = o.Field("san").Text(), o.Field("token").Text()
	if o.Field("san").Absent() == o.Field("token").Absent() || r.san == "" && o.Field("san").IsText() || r.token == "" && o.Field("token").IsText() {
		v.Fault("", "needs either san or token")
	}
	if r.san == "*" {
		o.Field("san").Fault("name what they have in common", `"*" is every certificate`)
	}
	for _, item := range o.Field("names").Items() {
		if prefix, ok := item.RequiredText(`a prefix ("" stands for all names)`); ok {
			checkPrefix(item, prefix)
			r.names = append(r.names, prefix)
		}
	}
	if names := o.Field("names"); names.Absent() || names.IsList() && len(names.Items()) == 0 {
		names.Fault(`a prefix "" stands for all names`, "empty")
	}
	return r
}

// authorize is the controlplane's Options.Authorize.
func (a Access) authorize(ctx context.Context, _ *corepb.Node, _, name string) error {
	names, token := identities(ctx)
	for _, r := range a.rules {
		if r.isOf(names, token) && r.covers(name) {
			return nil
		}
	}
	return status.Errorf(codes.PermissionDenied, "the xDS relay does not let this client subscribe to %q: see its access rules (--access)", name)
}

func (r *accessRule) covers(name string) bool {
	return slices.ContainsFunc(r.names, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// checkPrefix reports a prefix that covers other names than its author can mean.
func checkPrefix(v document.Value, prefix string) {
	authority, newStyle := strings.CutPrefix(prefix, xdsname.Prefix+"//")
	switch {
	case newStyle && authority != "" && !strings.Contains(authority, "/"):
		v.Fault("", `%q needs "/" behind the authority, without which it is also the prefix of other authorities`, prefix)
	case strings.HasSuffix(prefix, "*"):
		v.Fault(`leave it out; a prefix "" stands for all names`, `%q ends with "*", but names are prefixes`, prefix)
	}
}

func (r *accessRule) isOf(names []string, token string) bool {
	if r.token != "" {
		return subtle.ConstantTimeCompare([]byte(r.token), []byte(token)) == 1
	}
	prefix, isPrefix := strings.CutSuffix(r.san, "*")
	for _, name := range names {
		if name == r.san || isPrefix && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// identities returns the names in the verified certificate of a client, and its token. A client has
// none of what it did not present.
func identities(ctx context.Context) (names []string, token string) {
	if p, ok := peer.FromContext(ctx); ok {
		if tls, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(tls.State.VerifiedChains) > 0 {
			cert := tls.State.VerifiedChains[0][0]
			names = append(names, cert.DNSNames...)
			for _, uri := range cert.URIs {
				names = append(names, uri.String())
			}
		}
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
