package meshroute

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/document"
)

// Faults is the error for input that cannot be used: all that is wrong with it, by
// file and line.
type Faults = document.Faults

// Fault is one entry of [Faults].
type Fault = document.Fault

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

	// targetKey is equal for equal TargetRefs.
	targetKey string
}

// To is what a policy says of requests to one destination.
type To struct {
	// TargetRef is of kind MeshService, or Mesh for all services.
	TargetRef TargetRef
	// Rules have different matches, and are not empty.
	Rules []Rule

	// digest is equal for destinations with the same rules, wherever they are
	// written.
	digest string
	// services are the names that the rules refer to, and subsets those of them
	// that are referred to with tags: in order, each once.
	services []string
	subsets  []subset
}

// Kind is the kind of thing that a TargetRef or a BackendRef is about. Kinds of
// TargetRefs are ordered by how specific they are.
type Kind int

// The kinds, from least to most specific.
const (
	// MeshAll, in policies "Mesh", is everything.
	MeshAll Kind = iota
	// MeshSubset is everything that has the tags.
	MeshSubset
	// MeshService is the service of that name.
	MeshService
	// MeshServiceSubset is what has the tags in the service of that name.
	MeshServiceSubset
)

var kindNames = []string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset"}

// String returns the kind as it is written in policies.
func (k Kind) String() string { return kindNames[k] }

// TargetRef selects clients or destinations.
type TargetRef struct {
	Kind Kind
	// Name is that of the service. It is empty for Mesh and MeshSubset.
	Name string
	// Tags is empty for Mesh and MeshService, and only for these.
	Tags map[string]string
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
	return strings.TrimRight(r.Kind.String()+" "+r.Name+formatTags(r.Tags), " ")
}

// formatTags returns "{a=b,c=d}", or "" if there are none.
func formatTags(tags map[string]string) string {
	if len(tags) == 0 {
		return ""
	}
	list := make([]string, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, key+"="+tags[key])
	}
	return "{" + strings.Join(list, ",") + "}"
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
	// Kind is MeshService or MeshServiceSubset.
	Kind Kind
	Name string
	// Tags is what endpoints must have. It is empty for a MeshService.
	Tags map[string]string `json:",omitempty"`
	// Weight is the share of this destination, relative to the sum of all. It
	// is 0 in a mirror.
	Weight uint32
}

// String returns the service with the tags, such as "backend{version=v1}".
func (r BackendRef) String() string { return r.Name + formatTags(r.Tags) }
