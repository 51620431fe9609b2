// Package unifiedmatcher is the unified matcher of xDS (gRFC A106): a tree of conditions on an RPC, whose leaves are actions.
//
// It does not know what the actions are, nor CEL, whose expressions are compiled by a package that programs import for that.
package unifiedmatcher

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	xdscorepb "github.com/cncf/xds/go/xds/core/v3"
	matcherpb "github.com/cncf/xds/go/xds/type/matcher/v3"
	xdstypepb "github.com/cncf/xds/go/xds/type/v3"
	inputpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
)

const (
	// maxDepth is how deep trees may be in one another (gRFC A106, "Unified Matcher: Matcher").
	maxDepth = 16
	// maxHeaderName is the length of names of headers that are too long (gRFC A106, "Unified Matcher: HttpRequestHeaderMatchInput").
	maxHeaderName = 16384
)

// Tree is a valid Matcher. It is immutable.
type Tree[A any] struct{ find finder[A] }

// Match returns the action for an RPC with the outgoing context ctx. ok is false if the tree has none for it.
func (t *Tree[A]) Match(ctx context.Context, rpc *httpfilter.RPC) (action A, ok bool) {
	s := subjects.Get().(*subject)
	defer s.put()
	*s = subject{ctx, rpc, (&matching.RPC{Method: rpc.Method, Authority: rpc.Authority, Context: ctx}).Headers()}
	return t.find(s)
}

// subject is an RPC, whose headers are as routes see them (gRFC A28): its metadata is copied for the first condition that needs it.
type subject struct {
	ctx     context.Context
	rpc     *httpfilter.RPC
	headers matching.Headers
}

// subjects are the subjects that no RPC uses: without a pool, each RPC would allocate one for the finders and conditions.
var subjects = sync.Pool{New: func() any { return new(subject) }}

func (s *subject) put() {
	*s = subject{}
	subjects.Put(s)
}

// finder looks for an action. A tree below that has none is as if it had not been reached.
type finder[A any] func(*subject) (action A, ok bool)

// condition is what a predicate asks for.
type condition func(*subject) bool

// Predicate is a condition on an RPC with the outgoing context ctx. It is called concurrently.
type Predicate func(ctx context.Context, rpc *httpfilter.RPC) bool

// CELPackage is what a program imports so that CEL expressions are compiled.
const CELPackage = "github.com/dynxds/dynxds/httpfilter/composite/cel"

// CompileCEL compiles a CEL expression. The package CELPackage sets it in an init function. nil: no expression is accepted.
var CompileCEL func(*xdstypepb.CelExpression) (Predicate, error)

// Parse reads a Matcher at a path, and its actions by a function. What is wrong is added to a list, with the paths of fields; then the
// result is of no use.
func Parse[A any](
	at *faults.Path, pb *matcherpb.Matcher, action func(*faults.Path, *xdscorepb.TypedExtensionConfig) A, wrong *faults.Faults,
) *Tree[A] {
	p := parser[A]{Faults: wrong, action: action}
	return &Tree[A]{p.tree(at, pb, 1)}
}

type parser[A any] struct {
	*faults.Faults
	action     func(*faults.Path, *xdscorepb.TypedExtensionConfig) A
	predicates int // so far
}

func (p *parser[A]) tree(at *faults.Path, pb *matcherpb.Matcher, depth int) finder[A] {
	if depth > maxDepth {
		p.Addf(at, "matchers are nested more than %d deep", maxDepth)
		return nil
	}
	var finders []finder[A]
	switch kind := pb.GetMatcherType().(type) {
	case *matcherpb.Matcher_MatcherList_:
		at := at.Field("matcher_list")
		if len(kind.MatcherList.GetMatchers()) == 0 {
			p.Addf(at.Field("matchers"), "must not be empty")
		}
		for i, m := range kind.MatcherList.GetMatchers() {
			at := at.Item("matchers", i)
			holds, then := p.predicate(at.Field("predicate"), m.GetPredicate()), p.onMatch(at.Field("on_match"), m.GetOnMatch(), depth)
			finders = append(finders, func(s *subject) (action A, ok bool) {
				if holds(s) {
					return then(s)
				}
				return action, false
			})
		}
	case *matcherpb.Matcher_MatcherTree_:
		finders = append(finders, p.maps(at.Field("matcher_tree"), kind.MatcherTree, depth))
	default:
		p.Addf(at, "matcher_list or matcher_tree must be set")
	}
	if pb.GetOnNoMatch() != nil {
		finders = append(finders, p.onMatch(at.Field("on_no_match"), pb.GetOnNoMatch(), depth))
	}
	return func(s *subject) (action A, ok bool) {
		for _, find := range finders {
			if action, ok = find(s); ok {
				break
			}
		}
		return action, ok
	}
}

func (p *parser[A]) onMatch(at *faults.Path, pb *matcherpb.Matcher_OnMatch, depth int) finder[A] {
	if pb.GetKeepMatching() {
		p.Addf(at.Field("keep_matching"), "is not supported here")
	}
	switch kind := pb.GetOnMatch().(type) {
	case *matcherpb.Matcher_OnMatch_Matcher:
		return p.tree(at.Field("matcher"), kind.Matcher, depth+1)
	case *matcherpb.Matcher_OnMatch_Action:
		action := p.action(at.Field("action"), kind.Action)
		return func(*subject) (A, bool) { return action, true }
	default:
		p.Addf(at, "matcher or action must be set")
		return nil
	}
}

func (p *parser[A]) maps(at *faults.Path, pb *matcherpb.Matcher_MatcherTree, depth int) finder[A] {
	header, ok := p.input(at.Field("input"), pb.GetInput())
	if ok && header == "" {
		p.Addf(at.Field("input"), "a matcher_tree needs an input that is a string")
	}
	switch kind := pb.GetTreeType().(type) {
	case *matcherpb.Matcher_MatcherTree_ExactMatchMap:
		entries := p.entries(at.Field("exact_match_map"), kind.ExactMatchMap, depth)
		return func(s *subject) (action A, ok bool) {
			value, present := s.headers.Get(header)
			if then := entries[value]; present && then != nil {
				return then(s)
			}
			return action, false
		}
	case *matcherpb.Matcher_MatcherTree_PrefixMatchMap:
		entries := p.entries(at.Field("prefix_match_map"), kind.PrefixMatchMap, depth)
		prefixes := slices.SortedFunc(maps.Keys(entries), func(a, b string) int { return cmp.Compare(len(b), len(a)) })
		lengths := slices.CompactFunc(prefixes, func(a, b string) bool { return len(a) == len(b) })
		return func(s *subject) (action A, ok bool) {
			value, present := s.headers.Get(header)
			for _, longest := range lengths {
				if !present || len(longest) > len(value) {
					continue
				}
				if then := entries[value[:len(longest)]]; then != nil {
					if action, ok = then(s); ok {
						break
					}
				}
			}
			return action, ok
		}
	default:
		p.Addf(at, "exact_match_map or prefix_match_map must be set; custom_match is not supported")
		return nil
	}
}

func (p *parser[A]) entries(at *faults.Path, pb *matcherpb.Matcher_MatcherTree_MatchMap, depth int) map[string]finder[A] {
	at = at.Field("map")
	if len(pb.GetMap()) == 0 {
		p.Addf(at, "must not be empty")
	}
	entries := make(map[string]finder[A], len(pb.GetMap()))
	for _, key := range slices.Sorted(maps.Keys(pb.GetMap())) {
		entries[key] = p.onMatch(at.Key(key), pb.GetMap()[key], depth)
	}
	return entries
}

func (p *parser[A]) predicate(at *faults.Path, pb *matcherpb.Matcher_MatcherList_Predicate) condition {
	if p.predicates++; p.predicates == bounds.Predicates+1 {
		p.Addf(at, "the tree has more than the %d predicates that this client takes, as an RPC may go through all of them", bounds.Predicates)
	}
	if p.predicates > bounds.Predicates {
		return nil
	}
	switch kind := pb.GetMatchType().(type) {
	case *matcherpb.Matcher_MatcherList_Predicate_SinglePredicate_:
		return p.single(at.Field("single_predicate"), kind.SinglePredicate)
	case *matcherpb.Matcher_MatcherList_Predicate_OrMatcher:
		return anyOf(p.operands(at.Field("or_matcher"), kind.OrMatcher), true)
	case *matcherpb.Matcher_MatcherList_Predicate_AndMatcher:
		return not(anyOf(p.operands(at.Field("and_matcher"), kind.AndMatcher), false))
	case *matcherpb.Matcher_MatcherList_Predicate_NotMatcher:
		return not(p.predicate(at.Field("not_matcher"), kind.NotMatcher))
	default:
		p.Addf(at, "single_predicate, or_matcher, and_matcher or not_matcher must be set")
		return nil
	}
}

// anyOf holds if any of the operands holds, or does not.
func anyOf(operands []condition, hold bool) condition {
	return func(s *subject) bool {
		return slices.ContainsFunc(operands, func(holds condition) bool { return holds(s) == hold })
	}
}

func not(holds condition) condition { return func(s *subject) bool { return !holds(s) } }

func (p *parser[A]) operands(at *faults.Path, pb *matcherpb.Matcher_MatcherList_Predicate_PredicateList) []condition {
	if n := len(pb.GetPredicate()); n < 2 {
		p.Addf(at.Field("predicate"), "must have at least 2 entries, has %d", n)
	}
	operands := make([]condition, len(pb.GetPredicate()))
	for i, operand := range pb.GetPredicate() {
		operands[i] = p.predicate(at.Item("predicate", i), operand)
	}
	return operands
}

func (p *parser[A]) single(at *faults.Path, pb *matcherpb.Matcher_MatcherList_Predicate_SinglePredicate) condition {
	header, ok := p.input(at.Field("input"), pb.GetInput())
	switch kind := pb.GetMatcher().(type) {
	case *matcherpb.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch:
		if ok && header == "" {
			p.Addf(at, "value_match needs an input that is a string")
		}
		want := p.value(at.Field("value_match"), kind.ValueMatch)
		return func(s *subject) bool {
			value, present := s.headers.Get(header)
			return present && want.Matches(value)
		}
	case *matcherpb.Matcher_MatcherList_Predicate_SinglePredicate_CustomMatch:
		if header != "" {
			p.Addf(at, "custom_match needs the input xds.type.matcher.v3.HttpAttributesCelMatchInput")
		}
		holds := p.custom(at.Field("custom_match").Field("typed_config"), kind.CustomMatch)
		return func(s *subject) bool { return holds(s.ctx, s.rpc) }
	default:
		p.Addf(at, "value_match or custom_match must be set")
		return nil
	}
}

// input returns the header that a tree or a predicate depends on, "" for the attributes of CEL. ok is false after an error.
func (p *parser[A]) input(at *faults.Path, pb *xdscorepb.TypedExtensionConfig) (header string, ok bool) {
	at = at.Field("typed_config")
	config := pb.GetTypedConfig()
	switch config.MessageName() {
	case "xds.type.matcher.v3.HttpAttributesCelMatchInput":
		return "", true
	case "envoy.type.matcher.v3.HttpRequestHeaderMatchInput":
	default:
		p.Addf(at, "must be HttpRequestHeaderMatchInput or HttpAttributesCelMatchInput, is %s", faults.Quote(string(config.MessageName())))
		return "", false
	}
	input := new(inputpb.HttpRequestHeaderMatchInput)
	if err := config.UnmarshalTo(input); err != nil {
		p.Addf(at, "%v", err)
		return "", false
	}
	header = input.GetHeaderName()
	if why := wrongName(header); why != "" {
		p.Addf(at.Field("header_name"), "%s %s", faults.Quote(header), why)
		return "", false
	}
	return header, true
}

func wrongName(header string) string {
	switch {
	case header == "":
		return "must not be empty"
	case len(header) >= maxHeaderName:
		return "is too long"
	case header == ":path" || header == ":method" || header == ":authority":
		return ""
	case header[0] == ':':
		return "is no pseudo header that this client knows"
	case strings.ContainsFunc(header, notInNames):
		return "must be the name of an HTTP/2 header, which is in lower case"
	}
	return ""
}

// notInNames follows RFC 9110, 5.6.2 and RFC 9113, 8.2.1.
func notInNames(r rune) bool {
	return !('a' <= r && r <= 'z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
}

func (p *parser[A]) value(at *faults.Path, pb *matcherpb.StringMatcher) matching.String {
	part := func(field string, kind matching.StringKind, value string) matching.String {
		if value == "" && kind != matching.StringExact {
			p.Addf(at.Field(field), "must not be empty")
		}
		return matching.NewString(kind, value, pb.GetIgnoreCase())
	}
	switch pattern := pb.GetMatchPattern().(type) {
	case *matcherpb.StringMatcher_Exact:
		return part("exact", matching.StringExact, pattern.Exact)
	case *matcherpb.StringMatcher_Prefix:
		return part("prefix", matching.StringPrefix, pattern.Prefix)
	case *matcherpb.StringMatcher_Suffix:
		return part("suffix", matching.StringSuffix, pattern.Suffix)
	case *matcherpb.StringMatcher_Contains:
		return part("contains", matching.StringContains, pattern.Contains)
	case *matcherpb.StringMatcher_SafeRegex:
		return p.regexp(at.Field("safe_regex").Field("regex"), pattern.SafeRegex.GetRegex())
	default:
		p.Addf(at, "exact, prefix, suffix, contains or safe_regex must be set; custom is not supported")
		return matching.String{}
	}
}

func (p *parser[A]) regexp(at *faults.Path, pattern string) matching.String {
	re, err := matching.CompileRegex(pattern, true, p.RegexCost)
	if err != nil {
		p.Addf(at, "%s %v", faults.Quote(pattern), err)
	}
	return matching.String{Kind: matching.StringRegex, Regex: re.Regexp}
}

func (p *parser[A]) custom(at *faults.Path, pb *xdscorepb.TypedExtensionConfig) Predicate {
	m := new(matcherpb.CelMatcher)
	if err := pb.GetTypedConfig().UnmarshalTo(m); err != nil {
		p.Addf(at, "must be xds.type.matcher.v3.CelMatcher: %v", err)
		return nil
	}
	compiled, err := compile(m.GetExprMatch())
	if err != nil {
		p.Addf(at.Field("expr_match"), "%v", err)
	}
	return compiled
}

func compile(pb *xdstypepb.CelExpression) (Predicate, error) {
	switch {
	case CompileCEL == nil:
		return nil, errors.New("this program does not take CEL expressions: import " + CELPackage)
	case pb == nil:
		return nil, errors.New("must be set")
	case proto.Size(pb) > bounds.CELBytes:
		return nil, errors.New("is too large an expression")
	}
	return CompileCEL(pb)
}
