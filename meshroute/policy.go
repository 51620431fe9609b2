package meshroute

import (
	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/internal/meshpolicy"
)

// Policy is a MeshHTTPRoute: rules for the requests of some clients to some services.
// [Parse] makes policies; they are not to be changed afterwards. Fields for programs are
// Name, Source (the start of its doc) and TargetRef (its clients).
type Policy = meshpolicy.Policy

// TargetRef selects clients or destinations by two fields: Name, of a service, and Tags, a
// map[string]string. An empty field selects all. Policies call the four combinations
// Mesh, MeshSubset, MeshService and MeshServiceSubset.
type TargetRef = meshpolicy.TargetRef

// Source is where something was written: File, the name given to [Parse], and Line,
// which counts from 1 and is 0 if it is not known. String returns "file:line".
type Source = meshpolicy.Source

// Merged is what several policies together say of the requests of one client to one
// service: Rules, those of more specific policies first. String explains it, rule by
// rule in the order in which requests meet them, with the policy and the line that each
// field comes from.
type Merged = meshpolicy.Merged

// Faults is the error for input that cannot be used: List has all that is wrong with it,
// each with File, Line, Path, Problem and Suggestion. Error returns one on each line.
type Faults = document.Faults

// Parse reads the policies in a file of YAML documents or JSON. The error is a
// *[Faults] with all that is wrong, each with file, line, path and, where there is
// one, a suggestion; policies without a fault are returned all the same. A doc
// without a kind is a policy too.
//
// name is for faults and for the Source of the policies.
func Parse(name string, data []byte) ([]*Policy, error) { return meshpolicy.Parse(name, data) }
