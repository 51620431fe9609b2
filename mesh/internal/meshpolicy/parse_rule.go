package meshpolicy

import (
	"math"
	"slices"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/internal/document"
)

// maxProblem bounds what the errors of RPCs say of a rule that is not supported, in bytes.
const maxProblem = 300

// guarded reads a rule. One that has an error fails the requests that it is for, as far as its matches can be read: "the filter MUST
// NOT be skipped" (HTTPRouteFilter.type). ok is false if nobody can say which requests these are.
func guarded(v document.Value, read func(document.Value) (Rule, bool)) (r Rule, ok bool) {
	if problem := v.Try(func() { r, ok = read(v) }); problem != "" {
		filter := Filter{Type: Unsupported, Problem: faults.Shorten(problem, maxProblem)}
		r = Rule{Line: r.Line, Matches: r.Matches, Filters: []Filter{filter}, NoBackends: true}
	}
	return r, ok
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

// readRule reads a rule, whose filters and backendRefs may be in default, as in Kuma. ok is false if none of its matches can be read.
func (n ServiceNaming) readRule(v document.Value) (r Rule, ok bool) {
	outer := v.Object("matches", "filters", "backendRefs", "default")
	r = Rule{Line: v.Position().Line}
	r.Matches, ok = readMatches(outer.Field("matches"))
	o := outer
	if inner := outer.Field("default"); inner.Present() {
		o = inner.Object("filters", "backendRefs")
		for _, field := range []string{"filters", "backendRefs"} {
			if field := outer.Field(field); field.Present() {
				field.Fault("write it in default", "the rule has the field \"default\"")
			}
		}
	}
	if filters := o.Field("filters"); filters.Present() {
		r.Filters, r.Lines[FieldFilters] = n.readFilters(filters), filters.Position().Line
	}
	if refs := o.Field("backendRefs"); refs.Present() {
		r.BackendRefs, r.Lines[FieldBackendRefs] = n.readBackendRefs(refs), refs.Position().Line
	}
	checkRule(o, &r)
	return r, ok
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
func (n ServiceNaming) readBackendRefs(v document.Value) []BackendRef {
	return readBackends(v, func(item document.Value) BackendRef { return n.readBackendRef(item, true) })
}

func readBackends(v document.Value, read func(document.Value) BackendRef) []BackendRef {
	refs := []BackendRef{}
	var total uint64
	for _, item := range v.Items() {
		ref := read(item)
		total += uint64(ref.Weight)
		refs = append(refs, ref)
	}
	if total > math.MaxUint32 {
		v.Fault("", "the weights add up to %d, more than %d", total, uint32(math.MaxUint32))
	}
	return refs
}

// readBackendRef reads one destination. The weight is 1 if it is not given. A
// MeshService with tags is taken for a MeshServiceSubset: an example of the decision
// record has it so.
func (n ServiceNaming) readBackendRef(v document.Value, weighted bool) BackendRef {
	fields := append(slices.Clone(refNames), "port")
	weight := uint64(0)
	if weighted {
		fields, weight = append(fields, "weight"), 1
	}
	o := v.Object(fields...)
	ref, kind, ok := n.refFields(o, meshService, meshServiceSubset)
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
