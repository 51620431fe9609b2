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

// readRule reads a rule. One that has an error fails the requests that it is for, as far as its matches can be read: "the filter MUST
// NOT be skipped" (HTTPRouteFilter.type). ok is false if nobody can say which requests these are.
func (r *reader) readRule(v document.Value, index int) (rule Rule, ok bool) {
	if problem := v.Try(func() { ok = r.readRuleFields(v, index, &rule) }); problem != "" {
		filter := Filter{Type: Unsupported, Problem: faults.Shorten(problem, maxProblem)}
		rule = Rule{Line: rule.Line, Matches: rule.Matches, Filters: []Filter{filter}, NoBackends: true}
	}
	return rule, ok
}

// readSound reads the items of a list, and returns those without an error. ok is false if all have errors.
func readSound[T any](items []document.Value, read func(document.Value) T) (all []T, ok bool) {
	for _, item := range items {
		var one T
		if item.Try(func() { one = read(item) }) == "" {
			all = append(all, one)
		}
	}
	return all, len(all) > 0 || len(items) == 0
}

// ruleFields are the fields of rules by the kind of the document.
var ruleFields = map[string][]string{
	DocumentKind:  {"matches", "filters", "backendRefs", "default"},
	GRPCRouteKind: {"name", "matches", "filters", "backendRefs", "sessionPersistence"},
	HTTPRouteKind: {"name", "matches", "filters", "backendRefs", "sessionPersistence", "timeouts", "retry"},
}

// readRuleFields reads the fields of a rule. Filters and backendRefs may be in default, as in Kuma; lists of routes that are empty count
// as absent. ok is false if none of the matches can be read.
func (r *reader) readRuleFields(v document.Value, index int, rule *Rule) (ok bool) {
	outer := v.Object(ruleFields[r.kind]...)
	outer.Field("name").Text()
	rule.Line = v.Position().Line
	rule.Matches, ok = r.readMatches(outer.Field("matches"))
	o := outer
	if inner := outer.Field("default"); inner.Present() {
		o = inner.Object("filters", "backendRefs")
		for _, field := range []string{"filters", "backendRefs"} {
			if field := outer.Field(field); field.Present() {
				field.Fault("write it in default", "the rule has the field \"default\"")
			}
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
	has := func(t FilterType) bool {
		return slices.ContainsFunc(r.Filters, func(f Filter) bool { return f.Type == t })
	}
	if has(RequestRedirect) && has(URLRewrite) {
		o.Field("filters").Fault("", "a request that is redirected (RequestRedirect) is not sent on, so URLRewrite has nothing to do")
	}
	if has(RequestRedirect) && len(r.BackendRefs) > 0 {
		o.Field("backendRefs").Fault("leave one of the two out", "a request that is redirected (RequestRedirect) goes to no backend")
	}
	onlyPrefixes := !slices.ContainsFunc(r.Matches, func(m Match) bool { return m.Path.Type != Prefix && !m.Path.IsAny() })
	if path := r.prefixModifier(); path != nil && !onlyPrefixes {
		o.Field("filters").Fault("use replaceFullPath, or path matches of type Prefix", "replacePrefixMatch needs matches by Prefix, as only these have a prefix to replace")
	}
}

// prefixModifier returns the replacement of the rule's prefix, if there is one.
func (r *Rule) prefixModifier() *PathModifier {
	for i := range r.Filters {
		if p := r.Filters[i].path(); p != nil && !p.Full {
			return p
		}
	}
	return nil
}

// path returns the change of the path, or nil.
func (f *Filter) path() *PathModifier {
	switch {
	case f.Redirect != nil:
		return f.Redirect.Path
	case f.Rewrite != nil:
		return f.Rewrite.Path
	default:
		return nil
	}
}

// readBackendRefs reads destinations. The result is not nil.
func (r *reader) readBackendRefs(v document.Value) []BackendRef {
	refs := []BackendRef{}
	var total uint64
	for _, item := range v.Items() {
		ref := r.readBackendRef(item, true)
		total += uint64(ref.Weight)
		refs = append(refs, ref)
	}
	if total > math.MaxUint32 {
		v.Fault("", "the weights add up to %d, more than %d", total, uint32(math.MaxUint32))
	}
	return refs
}

// readBackendRef reads one destination, which has no weight in a mirror. The weight is 1 if it is not given. A
// MeshService with tags is taken for a MeshServiceSubset: an example of the decision
// record has it so.
func (r *reader) readBackendRef(v document.Value, weighted bool) BackendRef {
	if r.isRoute {
		return r.readRouteBackend(v, weighted)
	}
	fields := append(slices.Clone(refNames), "port")
	weight := uint64(0)
	if weighted {
		fields, weight = append(fields, "weight"), 1
	}
	o := v.Object(fields...)
	ref, kind, ok := r.refFields(o, meshService, meshServiceSubset)
	if o.Field("tags").Present() {
		kind = meshServiceSubset
	}
	if ok {
		checkRef(o, kind)
	}
	if w := o.Field("weight"); w.Present() {
		weight = w.Uint(0, math.MaxUint32)
	}
	to := BackendRef{Name: ref.Name, Tags: ref.Tags, Weight: uint32(weight)}
	for key := range ref.Tags {
		if to.TagLines == nil {
			to.TagLines = make(map[string]int, len(ref.Tags))
		}
		to.TagLines[key] = o.Field("tags").Peek(key).Position().Line
	}
	return to
}
