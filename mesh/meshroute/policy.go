package meshroute

import (
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// Policy is a MeshHTTPRoute: rules for the requests of some clients to some services. [Parse] returns
// policies; they must not be changed. Its fields include Name and Source (the start of its document).
type Policy = meshpolicy.Policy

// TargetRef selects clients or destinations by two fields: Name, of a service, and Tags, a
// map[string]string. An empty field selects all. Policies call the four combinations
// Mesh, MeshSubset, MeshService and MeshServiceSubset.
type TargetRef = meshpolicy.TargetRef

// Source is a place in a file: File, the name given to [Parse], and Line, from 1, or 0 if it is
// unknown. String returns "file:line".
type Source = meshpolicy.Source

// Merged has the merged rules for the requests of one client to one service: Rules, those of more
// specific policies first. String explains them in the order of matching, with the policy and the line
// of each field.
type Merged = meshpolicy.Merged

// Faults is the error for invalid input: List has all errors, each with File, Line, Path, Problem and
// Suggestion. Error returns one per line.
type Faults = document.Faults

// Parse reads the policies in a file of YAML documents or JSON. A document without a kind is a policy
// too. The error is a *[Faults]; policies without an error are returned even so. name is the file name
// in errors and in the Source of the policies.
func Parse(name string, data []byte) ([]*Policy, error) { return meshpolicy.Parse(name, data) }
