package relay

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsname"
)

// Access decides which client may subscribe to which names. The zero value lets every client subscribe to
// everything. A client without permission for a name gets an error PERMISSION_DENIED in its place
// (xRFC TP3), and the control plane is not asked.
type Access struct{ rules []accessRule }

// accessRule is one entry of an Access.
type accessRule struct {
	// SAN is a DNS name or URI of the client's certificate; one that ends in "*" is a prefix.
	SAN string `json:"san"`
	// Token is a bearer token (call credentials, the metadata "authorization").
	Token string `json:"token"`
	// Names are the prefixes of the names. None is nil, which JSON has as null.
	Names []*string `json:"names"`
}

// ParseAccess reads an Access from JSON: a list of rules, each with a subject, which is "san" or
// "token", and the prefixes "names" of the resources that it may subscribe to. A client has the names
// of all rules whose subject it is; one that is none may subscribe to nothing.
//
//	[{"san": "spiffe://mesh/ns/shop/*", "names": ["shop.", "xdstp://shop/"]},
//	 {"token": "s3cr3t", "names": [""]}]
func ParseAccess(data []byte) (Access, error) {
	var a Access
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&a.rules); err != nil {
		return Access{}, fmt.Errorf("access: %w", err)
	}
	var faults []error
	if decoder.More() {
		faults = append(faults, errors.New("there is something behind the list"))
	}
	for i, r := range a.rules {
		if (r.SAN == "") == (r.Token == "") {
			faults = append(faults, fmt.Errorf("[%d]: needs either san or token", i))
		}
		if r.SAN == "*" {
			faults = append(faults, fmt.Errorf(`[%d].san: "*" is every certificate; name what they have in common`, i))
		}
		if len(r.Names) == 0 {
			faults = append(faults, fmt.Errorf(`[%d].names: empty; a prefix "" stands for all names`, i))
		}
		for j, prefix := range r.Names {
			if err := checkPrefix(prefix); err != nil {
				faults = append(faults, fmt.Errorf("[%d].names[%d]: %w", i, j, err))
			}
		}
	}
	if len(a.rules) == 0 {
		faults = append(faults, errors.New("there is no rule, so no client may subscribe to anything"))
	}
	if err := errors.Join(faults...); err != nil {
		return Access{}, fmt.Errorf("access: %w", err)
	}
	return a, nil
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
	for _, prefix := range r.Names {
		if strings.HasPrefix(name, *prefix) {
			return true
		}
	}
	return false
}

// checkPrefix returns an error for a prefix that covers more names than its author can mean.
func checkPrefix(prefix *string) error {
	if prefix == nil {
		return errors.New(`null; a prefix "" stands for all names`)
	}
	authority, ok := strings.CutPrefix(*prefix, xdsname.Prefix+"//")
	if ok && authority != "" && !strings.Contains(authority, "/") {
		return fmt.Errorf(`%q needs "/" behind the authority, without which it is also the prefix of other authorities`, *prefix)
	}
	return nil
}

func (r *accessRule) isOf(names []string, token string) bool {
	if r.Token != "" {
		return subtle.ConstantTimeCompare([]byte(r.Token), []byte(token)) == 1
	}
	prefix, isPrefix := strings.CutSuffix(r.SAN, "*")
	for _, name := range names {
		if name == r.SAN || isPrefix && strings.HasPrefix(name, prefix) {
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
