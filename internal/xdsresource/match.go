//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"math/bits"
	"strings"

	"github.com/cespare/xxhash/v2"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
)

func (d *validator) routeMatch(at *faults.Path, pb *routepb.RouteMatch) matching.Route {
	var c matching.Conditions
	m := matching.Route{CaseInsensitive: pb.GetCaseSensitive() != nil && !pb.GetCaseSensitive().GetValue()}
	switch specifier := pb.GetPathSpecifier().(type) {
	case *routepb.RouteMatch_Prefix:
		m.Path = specifier.Prefix
	case *routepb.RouteMatch_Path:
		m.PathKind, m.Path = matching.PathExact, specifier.Path
	case *routepb.RouteMatch_SafeRegex:
		m.PathKind, c.Regex = matching.PathRegex, d.regex(at.Field("safe_regex"), specifier.SafeRegex, true)
	case *routepb.RouteMatch_PathSeparatedPrefix:
		m.PathKind, m.Path = matching.PathSeparatedPrefix, specifier.PathSeparatedPrefix
		if m.Path == "" || strings.HasSuffix(m.Path, "/") || strings.ContainsAny(m.Path, "?#") {
			d.fault(at.Field("path_separated_prefix"), "%s must not be empty, end in / or have ? or # in it", faults.Quote(m.Path))
		}
	default:
		d.fault(at, "path_specifier must be prefix, path, path_separated_prefix or safe_regex, is %s", whichOneof(pb, "path_specifier"))
	}
	if params := pb.GetQueryParameters(); len(params) > 0 && d.atMost(at.Field("query_parameters"), len(params), bounds.Conditions) {
		c.Query = make([]matching.Query, len(params))
		for i, q := range params {
			c.Query[i] = d.queryMatcher(at.Item("query_parameters", i), q)
		}
	}
	c.Headers = d.headerMatchers(at, "headers", pb.GetHeaders())
	if fraction := pb.GetRuntimeFraction(); fraction != nil {
		c.FractionPerMillion = d.runtimeFraction(at.Field("runtime_fraction"), fraction)
	}
	if c.Regex.Regexp != nil || c.Headers != nil || c.Query != nil || c.FractionPerMillion != nil {
		further := c // so that c is not on the heap
		m.Further = &further
	}
	return m
}

func (d *validator) headerMatchers(at *faults.Path, field string, pbs []*routepb.HeaderMatcher) []matching.Header {
	if len(pbs) == 0 || !d.atMost(at.Field(field), len(pbs), bounds.Conditions) {
		return nil
	}
	matchers := make([]matching.Header, len(pbs))
	for i, pb := range pbs {
		matchers[i] = d.headerMatcher(at.Item(field, i), pb)
	}
	return matchers
}

func (d *validator) headerMatcher(at *faults.Path, pb *routepb.HeaderMatcher) matching.Header {
	m := matching.Header{
		Name:           d.headerName(at.Field("name"), pb.GetName()),
		Invert:         pb.GetInvertMatch(),
		MissingAsEmpty: pb.GetTreatMissingHeaderAsEmpty(),
	}
	switch specifier := pb.GetHeaderMatchSpecifier().(type) {
	case *routepb.HeaderMatcher_StringMatch:
		m.String = d.stringMatcher(at.Field("string_match"), specifier.StringMatch)
	case *routepb.HeaderMatcher_ExactMatch:
		m.String = matching.String{Kind: matching.StringExact, Value: specifier.ExactMatch}
	case *routepb.HeaderMatcher_PrefixMatch:
		m.String = d.stringPart(at.Field("prefix_match"), matching.StringPrefix, specifier.PrefixMatch, false)
	case *routepb.HeaderMatcher_SuffixMatch:
		m.String = d.stringPart(at.Field("suffix_match"), matching.StringSuffix, specifier.SuffixMatch, false)
	case *routepb.HeaderMatcher_ContainsMatch:
		m.String = d.stringPart(at.Field("contains_match"), matching.StringContains, specifier.ContainsMatch, false)
	case *routepb.HeaderMatcher_SafeRegexMatch:
		m.String = d.stringRegex(at.Field("safe_regex_match"), specifier.SafeRegexMatch)
	case *routepb.HeaderMatcher_RangeMatch:
		m.Kind, m.Start, m.End = matching.HeaderRange, specifier.RangeMatch.GetStart(), specifier.RangeMatch.GetEnd()
		if m.End < m.Start {
			d.fault(at.Field("range_match"), "end %d is below start %d", m.End, m.Start)
		}
	case *routepb.HeaderMatcher_PresentMatch:
		m.Kind, m.Invert = matching.HeaderPresent, m.Invert == specifier.PresentMatch
	default:
		d.fault(at, "header_match_specifier must be set to a kind of match that this client knows")
	}
	return m
}

func (d *validator) queryMatcher(at *faults.Path, pb *routepb.QueryParameterMatcher) matching.Query {
	m := matching.Query{Name: d.notEmpty(at.Field("name"), pb.GetName()), Present: true}
	switch specifier := pb.GetQueryParameterMatchSpecifier().(type) {
	case *routepb.QueryParameterMatcher_StringMatch:
		s := d.stringMatcher(at.Field("string_match"), specifier.StringMatch)
		m.String = &s
	case *routepb.QueryParameterMatcher_PresentMatch:
		m.Present = specifier.PresentMatch
	}
	return m
}

func (d *validator) stringMatcher(at *faults.Path, pb *matcherpb.StringMatcher) matching.String {
	ignoreCase := pb.GetIgnoreCase()
	switch pattern := pb.GetMatchPattern().(type) {
	case *matcherpb.StringMatcher_Exact:
		return matching.NewString(matching.StringExact, pattern.Exact, ignoreCase)
	case *matcherpb.StringMatcher_Prefix:
		return d.stringPart(at.Field("prefix"), matching.StringPrefix, pattern.Prefix, ignoreCase)
	case *matcherpb.StringMatcher_Suffix:
		return d.stringPart(at.Field("suffix"), matching.StringSuffix, pattern.Suffix, ignoreCase)
	case *matcherpb.StringMatcher_Contains:
		return d.stringPart(at.Field("contains"), matching.StringContains, pattern.Contains, ignoreCase)
	case *matcherpb.StringMatcher_SafeRegex:
		return d.stringRegex(at.Field("safe_regex"), pattern.SafeRegex)
	default:
		d.fault(at, "match_pattern must be exact, prefix, suffix, contains or safe_regex, is %s", whichOneof(pb, "match_pattern"))
		return matching.String{}
	}
}

// stringPart decodes a pattern for a part of a string. An empty one is an error: it would
// match everything, which cannot be intended.
func (d *validator) stringPart(at *faults.Path, kind matching.StringKind, value string, ignoreCase bool) matching.String {
	return matching.NewString(kind, d.notEmpty(at, value), ignoreCase)
}

func (d *validator) stringRegex(at *faults.Path, pb *matcherpb.RegexMatcher) matching.String {
	return matching.String{Kind: matching.StringRegex, Regex: d.regex(at, pb, true).Regexp}
}

type regexKey struct {
	pattern string
	whole   bool
}

// regex compiles a pattern, each distinct one once; whole says that the pattern has to match a whole string, and not a part. The fields
// max_program_size and engine are ignored (gRFC A28). After an error, the result has no Regexp.
func (d *validator) regex(at *faults.Path, pb *matcherpb.RegexMatcher, whole bool) matching.Regex {
	d.tied = true
	key := regexKey{pb.GetRegex(), whole}
	if re, ok := d.regexes[key]; ok {
		return re
	}
	if d.faults.Full() {
		return matching.Regex{} // Parsing takes time, and an error would not be listed.
	}
	re, known := d.lastRegexes[key]
	if known && d.regexCost <= matching.MaxRegexTotal {
		d.regexCost += re.Cost
	} else {
		var err error
		if re, err = matching.CompileRegex(key.pattern, whole, &d.regexCost); err != nil {
			d.fault(at.Field("regex"), "%s %s", faults.Quote(key.pattern), faults.Shorten(err.Error(), faults.MaxQuoted))
			return matching.Regex{}
		}
	}
	if d.regexes == nil {
		d.regexes = make(map[regexKey]matching.Regex)
	}
	d.regexes[key] = re
	return re
}

// HashPolicy is one entry of RouteAction.hash_policy (gRFC A42).
type HashPolicy struct {
	// Header is the name of the header that is hashed, in lower case. Empty: the channel itself is (filter_state with the key
	// "io.grpc.channel_id").
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
	if p.Header == "" {
		return channelID, true
	}
	value, present := h.Get(p.Header)
	if !present {
		return 0, false
	}
	if p.Rewrite != nil {
		value = p.Rewrite.Replace(value)
	}
	return xxhash.Sum64String(value), true
}

// channelIDKey is the one filter state that gRPC knows.
const channelIDKey = "io.grpc.channel_id"

// hashPolicies decodes RouteAction.hash_policy. Policies that gRPC does not support are left out. If one of them is terminal, the policy before
// it becomes terminal, which has the same effect.
func (d *routeDecoder) hashPolicies(at *faults.Path, pbs []*routepb.RouteAction_HashPolicy) []HashPolicy {
	if !d.atMost(at.Field("hash_policy"), len(pbs), bounds.Conditions) {
		return nil
	}
	var policies []HashPolicy
	for i, pb := range pbs {
		at := at.Item("hash_policy", i)
		header := pb.GetHeader()
		switch {
		case header != nil:
			at = at.Field("header")
			policies = append(policies, HashPolicy{
				Header:  d.headerName(at.Field("header_name"), header.GetHeaderName()),
				Rewrite: d.substitution(at.Field("regex_rewrite"), header.GetRegexRewrite()),
			})
		case pb.GetFilterState().GetKey() == channelIDKey:
			policies = append(policies, HashPolicy{})
		default:
			d.warn(at.Field(whichOneof(pb, "policy_specifier")), "gives no hash: a gRPC client knows header, and filter_state with the key %q", channelIDKey)
		}
		if n := len(policies); n > 0 {
			policies[n-1].Terminal = policies[n-1].Terminal || pb.GetTerminal()
		}
	}
	return policies
}
