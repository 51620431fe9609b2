package xdsresource

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
)

// HashKind says what a HashPolicy looks at.
type HashKind int

// The kinds of RouteAction.HashPolicy.policy_specifier.
const (
	// HashHeader is the value of a request header.
	HashHeader HashKind = iota
	// HashChannelID is the channel itself (filter_state with the key
	// "io.grpc.channel_id").
	HashChannelID
	// HashNothing never gives a hash. It stands for policies that gRPC does not
	// support, which may still be terminal.
	HashNothing
)

// HashPolicy is one entry of RouteAction.hash_policy (gRFC A42).
type HashPolicy struct {
	Kind HashKind
	// Header is the name of the header in lower case, for HashHeader.
	Header string
	// Rewrite is applied to the header's value before it is hashed. It may be nil.
	Rewrite *Substitution
	// Terminal says that no further policy is applied if there is a hash already.
	Terminal bool
}

// Hash computes the hash of an RPC. channelID is a random number that stays
// the same for the life of the channel. It reports false if no policy gives a
// hash; then the caller uses a random number (gRFC A42).
func (r *Route) Hash(rpc *matching.RPC, channelID uint64) (hash uint64, ok bool) {
	if len(r.HashPolicies) == 0 {
		return 0, false
	}
	h := rpc.Headers()
	for i := range r.HashPolicies {
		p := &r.HashPolicies[i]
		if one, given := p.hash(&h, channelID); given {
			hash, ok = bits.RotateLeft64(hash, 1)^one, true
		}
		if p.Terminal && ok {
			break
		}
	}
	return hash, ok
}

func (p *HashPolicy) hash(h *matching.Headers, channelID uint64) (hash uint64, ok bool) {
	switch p.Kind {
	case HashChannelID:
		return channelID, true
	case HashHeader:
		value, present := h.Get(p.Header)
		if !present {
			return 0, false
		}
		if p.Rewrite != nil {
			value = p.Rewrite.Replace(value)
		}
		return xxhash.Sum64String(value), true
	default:
		return 0, false
	}
}

// channelIDKey is the one filter state that gRPC knows.
const channelIDKey = "io.grpc.channel_id"

// hashPolicies decodes RouteAction.hash_policy. Policies that can have no
// effect are left out.
func (d *routeDecoder) hashPolicies(at *faults.Path, pbs []*routepb.RouteAction_HashPolicy) []HashPolicy {
	if !d.atMost(at.Field("hash_policy"), len(pbs), bounds.Conditions) {
		return nil
	}
	var policies []HashPolicy
	for i, pb := range pbs {
		at := at.Item("hash_policy", i)
		p := HashPolicy{Kind: HashNothing, Terminal: pb.GetTerminal()}
		switch specifier := pb.GetPolicySpecifier().(type) {
		case *routepb.RouteAction_HashPolicy_Header_:
			at = at.Field("header")
			p.Kind, p.Header = HashHeader, d.headerName(at.Field("header_name"), specifier.Header.GetHeaderName())
			p.Rewrite = d.match.substitution(at.Field("regex_rewrite"), specifier.Header.GetRegexRewrite())
		case *routepb.RouteAction_HashPolicy_FilterState_:
			if specifier.FilterState.GetKey() == channelIDKey {
				p.Kind = HashChannelID
			}
		}
		if p.Kind == HashNothing {
			d.warn(at.Field(whichOneof(pb, "policy_specifier")), "gives no hash: a gRPC client knows header, and filter_state with the key %q", channelIDKey)
		}
		if p.Kind != HashNothing || p.Terminal {
			policies = append(policies, p)
		}
	}
	return policies
}
