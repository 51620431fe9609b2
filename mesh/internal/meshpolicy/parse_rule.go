package meshpolicy

import (
	"fmt"
	"math"
	"slices"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/internal/document"
)

// maxProblem bounds what the errors of RPCs say of a rule that is not supported, in bytes.
const maxProblem = 300

// readRules reads rules whose matches differ: of several of a route with the same ones the first one applies. A rule that has an error
// fails the requests that it is for, as far as its matches can be read: "the filter MUST NOT be skipped" (HTTPRouteFilter.type). It is left
// out if nobody can say which requests these are.
func (r *reader) readRules(items []document.Value) (rules []Rule) {
	first := make(map[string]int)
	for i, item := range items {
		var rule Rule
		ok := false
		if problem := item.Try(func() { ok = r.readRule(item, i, &rule) }); problem != "" {
			rule = Rule{
				Line: rule.Line, Matches: rule.Matches, Filters: []Filter{}, Problem: faults.Shorten(problem, maxProblem), BackendRefs: rule.BackendRefs, NoBackends: true,
			}
		}
		if !ok {
			continue
		}
		key := Key(rule.Matches)
		switch at, twice := first[key]; {
		case !twice:
			first[key], rules = i, append(rules, rule)
		case r.isRoute:
			r.note(item, "an earlier rule has the same matches, so this one has no effect")
		default:
			item.Fault("join the two", "the matches are those of rules[%d]", at)
		}
	}
	return rules
}

// ruleFields are the fields of rules by the kind of the document.
var ruleFields = map[string][]string{
	DocumentKind:  {"matches", "filters", "backendRefs", "default"},
	GRPCRouteKind: {"name", "matches", "filters", "backendRefs", "sessionPersistence"},
	HTTPRouteKind: {"name", "matches", "filters", "backendRefs", "sessionPersistence", "timeouts", "retry"},
}

// readRule reads a rule. Filters and backendRefs may be in default, as in Kuma; lists of routes that are empty count
// as absent. ok is false if none of the matches can be read.
func (r *reader) readRule(v document.Value, index int, rule *Rule) (ok bool) {
	outer := v.Object(ruleFields[r.kind]...)
	outer.Field("name").Text()
	rule.Line = v.Position().Line
	rule.Matches, ok = r.readMatches(outer.Field("matches"))
	o := outer
	if inner := outer.Field("default"); inner.Present() {
		o = inner.Object("filters", "backendRefs")
		for _, field := range []string{"filters", "backendRefs"} {
			outer.Field(field).Fault("write it in default", "the rule has the field \"default\"")
		}
	}
	for f, read := range [NumFields]func(document.Value){
		FieldFilters:     func(v document.Value) { rule.Filters = r.readFilters(v) },
		FieldBackendRefs: func(v document.Value) { rule.BackendRefs = r.readBackendRefs(v) },
		FieldTimeouts:    func(v document.Value) { rule.Timeouts = readTimeouts(v) },
		FieldRetry:       func(v document.Value) { rule.Retry = r.readRetry(v) },
		FieldSession:     func(v document.Value) { rule.Session = r.readSession(v, fmt.Sprintf("session-%s-%d", r.name, index)) },
	} {
		isList := f <= int(FieldBackendRefs)
		if field := o.Field(FieldNames[f]); field.Present() && !(r.isRoute && isList && len(field.Items()) == 0) {
			read(field)
			rule.Lines[f] = field.Position().Line
		}
	}
	rule.NoBackends = r.isRoute && len(rule.BackendRefs) == 0 && !rule.Redirects()
	checkRule(o, rule)
	return ok
}

// checkRule looks for contradictions between the fields of a rule.
func checkRule(o document.Object, r *Rule) {
	rewrites, replacesPrefix := false, false
	for _, f := range r.Filters {
		var path *PathModifier
		if f.Redirect != nil {
			path = f.Redirect.Path
		}
		if f.Rewrite != nil {
			rewrites, path = true, f.Rewrite.Path
		}
		replacesPrefix = replacesPrefix || path != nil && !path.Full
	}
	if r.Redirects() && rewrites {
		o.Field("filters").Fault("", "a request that is redirected (RequestRedirect) is not sent on, so URLRewrite has nothing to do")
	}
	if r.Redirects() && len(r.BackendRefs) > 0 {
		o.Field("backendRefs").Fault("leave one of the two out", "a request that is redirected (RequestRedirect) goes to no backend")
	}
	if replacesPrefix && slices.ContainsFunc(r.Matches, func(m Match) bool { return m.Path.Type != Prefix && !m.Path.IsAny() }) {
		o.Field("filters").Fault("use replaceFullPath, or path matches of type Prefix", "replacePrefixMatch needs matches by Prefix, as only these have a prefix to replace")
	}
}

// readBackendRefs reads destinations. The result is not nil.
func (r *reader) readBackendRefs(v document.Value) []BackendRef {
	refs := []BackendRef{}
	var total uint64
	for _, item := range v.Items() {
		ref := r.readBackendRef(item, "weight")
		total += uint64(ref.Weight)
		refs = append(refs, ref)
	}
	if total > math.MaxUint32 {
		v.Fault("", "the weights add up to %d, more than %d", total, uint32(math.MaxUint32))
	}
	return refs
}
