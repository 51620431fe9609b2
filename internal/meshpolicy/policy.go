// Package meshpolicy is the model of MeshHTTPRoute policies: what they say, how they are
// read from YAML and JSON, and how several of them are merged for one client. It is
// for meshroute, whose package documentation describes the merging, and for the
// command, which reads policies among other documents. It does not know xDS: what becomes
// of a merged policy is meshroute's.
package meshpolicy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Source is where something was written.
type Source struct {
	// File is the name given to Parse.
	File string
	// Line counts from 1. 0: unknown.
	Line int
}

// String returns "file:line".
func (s Source) String() string {
	switch {
	case s.Line == 0:
		return s.File
	case s.File == "":
		return fmt.Sprintf("line %d", s.Line)
	default:
		return fmt.Sprintf("%s:%d", s.File, s.Line)
	}
}

// Policy is a MeshHTTPRoute: rules for the requests of some clients to some
// services. Parse makes policies; they are not to be changed afterwards.
type Policy struct {
	Name   string
	Source Source
	// TargetRef selects the clients.
	TargetRef TargetRef
	// To has each destination once, and is not empty.
	To []To

	targetKey string
}

// To is what a policy says of requests to one destination.
type To struct {
	// TargetRef is a service by its name, or zero for all services.
	TargetRef TargetRef
	// Rules have different matches, and are not empty.
	Rules []Rule

	digest   string
	services []string
	subsets  []Subset
}

// TargetRef selects clients or destinations: everything, what has the tags, the service
// of that name, or what has the tags in that service.
type TargetRef struct {
	// Name is that of the service. Empty: any.
	Name string
	// Tags are the tags that have to be there, with their values.
	Tags map[string]string
}

// kind is what policies call a TargetRef or a BackendRef, which its fields decide. Kinds
// are ordered by how specific they are.
type kind int

const (
	everything kind = iota
	meshSubset
	meshService
	meshServiceSubset
)

// String returns the kind as it is written in policies.
func (k kind) String() string {
	return [...]string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset"}[k]
}

// hasName and hasTags say which fields a reference of the kind has.
func (k kind) hasName() bool { return k >= meshService }
func (k kind) hasTags() bool { return k == meshSubset || k == meshServiceSubset }

func (r TargetRef) kind() kind {
	k := everything
	if r.Name != "" {
		k = meshService
	}
	if len(r.Tags) > 0 {
		k++
	}
	return k
}

// Selects reports whether a client is meant.
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
	return strings.TrimRight(r.kind().String()+" "+r.Name+FormatTags(r.Tags), " ")
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

// Rule sends the requests that match somewhere, and changes them on the way.
type Rule struct {
	// Line is where the rule starts in its policy's file.
	Line int
	// Matches are in canonical form: never empty, each once, in an order of their
	// own. A rule written without matches has one that matches everything.
	Matches []Match
	// Filters are carried out one after the other. nil: the policy does not say;
	// empty: there are none.
	Filters []Filter
	// BackendRefs are where requests go. nil: the policy does not say; empty: to
	// the service that they were for.
	BackendRefs []BackendRef

	// matchesKey is equal for equal Matches, and for no others.
	matchesKey string
}

// BackendRef is a destination of requests.
type BackendRef struct {
	// Name is that of the service.
	Name string
	// Tags are those that endpoints must have. Empty: all endpoints of the service.
	Tags map[string]string `json:",omitempty"`
	// Weight is the share of this destination, relative to the sum of all. It
	// is 0 in a mirror.
	Weight uint32
}

// String returns the service with the tags, such as "backend{version=v1}".
func (r BackendRef) String() string { return r.Name + FormatTags(r.Tags) }

// Subset returns the endpoints that requests may go to.
func (r BackendRef) Subset() Subset { return NewSubset(r.Name, r.Tags) }

// Subset is a service, or those of its endpoints that have the tags.
type Subset struct {
	// ID is equal for equal subsets, such as "backend" or "backend;version=v1;zone=a".
	ID, Service string
	Tags        map[string]string
}

// NewSubset returns the endpoints of a service that have the tags.
func NewSubset(service string, tags map[string]string) Subset {
	if len(tags) == 0 {
		return Subset{service, service, nil}
	}
	var id strings.Builder
	id.WriteString(service)
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		id.WriteString(";" + key + "=" + tags[key])
	}
	return Subset{id.String(), service, tags}
}
