// Package meshpolicy is the model of MeshHTTPRoute policies. It reads them from YAML and JSON, and merges
// the policies for one client. It is for meshroute, whose package documentation describes the merging,
// and for the command, which reads policies among other documents. It does not know xDS.
package meshpolicy

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/internal/document"
)

// Source is a place in a file.
type Source struct {
	// File is the name given to Parse.
	File string
	// Line counts from 1; 0 means unknown.
	Line int
}

// String returns "file:line" as one printable line.
func (s Source) String() string {
	s.File = faults.Printable(s.File, "")
	switch {
	case s.Line == 0:
		return s.File
	case s.File == "":
		return fmt.Sprintf("line %d", s.Line)
	default:
		return fmt.Sprintf("%s:%d", s.File, s.Line)
	}
}

// Policy is a MeshHTTPRoute: rules for the requests of some clients to some services. Parse and New
// return policies; they must not be changed.
type Policy struct {
	// Kind is GRPCRouteKind, HTTPRouteKind, or empty for a MeshHTTPRoute.
	Kind   string
	Name   string
	Source Source
	// Author is whom the policies with the same one are of: a namespace of Kubernetes. Empty: not known.
	Author string
	// Created is when it was made, in seconds since 1970; 0: not known. Of two that are equally specific the older one wins.
	Created int64
	// Complete says that requests to its destinations that no rule of any policy applies to are refused, as the Gateway API
	// wants it.
	Complete bool
	// To is not empty, and has each destination once, but for ports of a Service.
	To []To
	// Notes are on fields of the document that have no effect.
	Notes []document.Fault
}

// To is the part of a policy that is for one destination: the rules for requests of some clients to it.
type To struct {
	// Policy is set by New.
	Policy *Policy
	// Clients selects the clients. TargetRef is a service by name, or zero for all services.
	Clients, TargetRef TargetRef
	// Rules have different matches. There may be none if Policy.Complete is set: then all requests are refused.
	Rules []Rule
	// Index is the entry's place in the document. OnePort is 1 if the entry names a port: it counts before one for all ports of a Service.
	Index, OnePort int

	subsets map[string]Subsets
}

// Path is the place of the destination in the document.
func (t *To) Path() string {
	if t.Policy.Kind == "" {
		return fmt.Sprintf("spec.to[%d].targetRef", t.Index)
	}
	return "spec.parentRefs"
}

// TargetRef selects clients or destinations by service name and tags, both optional.
type TargetRef struct {
	// Name is that of the service; empty means any.
	Name string
	// Tags are the required tags.
	Tags map[string]string
}

// kinds are those of references as they are written in policies, by their specificity.
var kinds = []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset"}

// specificity is higher for a name than for tags, and highest for both.
func (r TargetRef) specificity() (rank int) {
	if r.Name != "" {
		rank = 2
	}
	if len(r.Tags) > 0 {
		rank++
	}
	return rank
}

// Selects reports whether the reference selects a client.
func (r TargetRef) Selects(c Client) bool {
	if r.Name != "" && r.Name != c.Service {
		return false
	}
	for key, value := range r.Tags {
		if c.Tag(key) != value {
			return false
		}
	}
	return true
}

// String returns the reference in short, such as "MeshServiceSubset backend{version=v1}".
func (r TargetRef) String() string {
	return strings.TrimRight(kinds[r.specificity()]+" "+r.Name+FormatTags(r.Tags), " ")
}

// FormatTags returns "{a=b,c=d}", or "" if there are none.
func FormatTags(tags map[string]string) string {
	if len(tags) == 0 {
		return ""
	}
	return "{" + strings.Join(pairs(tags), ",") + "}"
}

// pairs returns the tags as "key=value", ordered by key.
func pairs(tags map[string]string) []string {
	list := make([]string, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, key+"="+tags[key])
	}
	return list
}

// Rule forwards matching requests, and may change them.
type Rule struct {
	// To is the part of the policy that has the rule, and Index the place there. New sets both.
	To    *To
	Index int
	// Line is the line of its policy's file on which the rule starts. Lines has the line on which the value of
	// each field starts, 0 if the field has none.
	Line  int
	Lines [NumFields]int
	// Matches are in canonical form: not empty, sorted, each once. A rule without matches has one
	// without conditions.
	Matches []Match
	// The other fields are merged, each by itself. nil means unspecified.
	//
	// Filters are applied in order. Empty means none. Problem, of a rule that cannot be used and fails its requests, says what is wrong
	// with it; it then has no filters, and its backends get no requests.
	Filters []Filter
	Problem string
	// BackendRefs are the destinations. Empty means the original service, or nowhere if NoBackends is set: that a route of the
	// Gateway API has none, where "all traffic which matches this rule MUST receive a 500 status code" or UNAVAILABLE.
	BackendRefs []BackendRef
	NoBackends  bool
	// Timeouts, Retry and Session are those of the Gateway API's routes.
	Timeouts *Timeouts
	Retry    *Retry
	Session  *Session

	// matchesKey is equal for equal Matches only.
	matchesKey string
}

// Field is a field of a rule that is merged.
type Field int

// The fields.
const (
	FieldFilters Field = iota
	FieldBackendRefs
	FieldTimeouts
	FieldRetry
	FieldSession
	NumFields
)

// Has reports whether a field is specified.
func (r *Rule) Has(f Field) bool {
	return [...]bool{r.Filters != nil, r.BackendRefs != nil || r.NoBackends, r.Timeouts != nil, r.Retry != nil, r.Session != nil}[f]
}

// Path is the place of the rule in the document.
func (r *Rule) Path() string {
	if r.To.Policy.Kind == "" {
		return fmt.Sprintf("spec.to[%d].rules[%d]", r.To.Index, r.Index)
	}
	return fmt.Sprintf("spec.rules[%d]", r.Index)
}

// IsRoute reports whether the rule is of a route of the Gateway API. nil is not.
func (r *Rule) IsRoute() bool { return r != nil && r.To.Policy.Kind != "" }

// Source returns a line in the policy's file, the rule's own if it is 0. nil is nowhere.
func (r *Rule) Source(line int) Source {
	if r == nil {
		return Source{}
	}
	return Source{r.To.Policy.Source.File, cmp.Or(line, r.Line)}
}

// MatchSource returns the place of one of the matches.
func (r *Rule) MatchSource(i int) Source { return r.Source(r.Matches[i].Line) }

// FieldSource returns the place of a field. nil has it nowhere.
func (r *Rule) FieldSource(f Field) Source {
	if r == nil {
		return Source{}
	}
	return r.Source(r.Lines[f])
}

// Redirects reports whether a filter answers the requests.
func (r *Rule) Redirects() bool {
	return slices.ContainsFunc(r.Filters, func(f Filter) bool { return f.Type == RequestRedirect })
}

// Nowhere reports whether the rule has no backends, or none with a weight above 0, or is not supported.
func (r *Rule) Nowhere() bool {
	return r.NoBackends || r.Problem != "" || len(r.BackendRefs) > 0 && !slices.ContainsFunc(r.BackendRefs, func(r BackendRef) bool { return r.Weight > 0 })
}

// BackendRef is a destination of requests.
type BackendRef struct {
	// Name is that of the service.
	Name string
	// Tags are required of endpoints; empty means all endpoints of the service.
	Tags map[string]string
	// TagLines are the lines of the tags in the policy's file.
	TagLines map[string]int
	// Weight is relative to the sum of all. It is 0 in a mirror.
	Weight uint32
	// Filters edit the headers of the requests that go there, and of their responses.
	Filters []Filter
}

// Reference is a reference to a service in a rule: a backend, or that of a mirror.
type Reference struct {
	*BackendRef
	IsMirror bool
	// Index is that of the backend or of the filter.
	Index int
}

// Path is the place of the reference below its rule.
func (r Reference) Path() string {
	if r.IsMirror {
		return fmt.Sprintf("filters[%d]", r.Index)
	}
	return fmt.Sprintf("backendRefs[%d]", r.Index)
}

// References returns the references to services in the rule.
func (r *Rule) References() iter.Seq[Reference] {
	return func(yield func(Reference) bool) {
		for i := range r.Filters {
			if mirror := r.Filters[i].Mirror; mirror != nil && !yield(Reference{mirror, true, i}) {
				return
			}
		}
		for i := range r.BackendRefs {
			if !yield(Reference{&r.BackendRefs[i], false, i}) {
				return
			}
		}
	}
}

// String returns the service with the tags, such as "backend{version=v1}".
func (r BackendRef) String() string { return r.Name + FormatTags(r.Tags) }

// Subset returns the ID of the selected endpoints, which is equal for equal ones only, such as "backend" or "backend;version=v1;zone=a".
func (r BackendRef) Subset() string {
	return strings.Join(append([]string{r.Name}, pairs(r.Tags)...), ";")
}

// Subsets are the tags of subsets of one service, by their IDs.
type Subsets map[string]map[string]string
