package publish

import (
	"fmt"
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/internal/meshpolicy"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/meshroute"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// key identifies a variant of a resource.
type key struct{ typeURL, name, parameters string }

func keyOf(r *meshroute.Resource) key { return key{r.TypeURL, r.Name, r.Parameters.Key()} }

// update is the difference between two states.
type update struct {
	// set and removed are of the meshes.
	set, removed map[key]*meshroute.Resource
	// setWritten and removedWritten are of the folder's resources, all of which are in written.
	setWritten, removedWritten, written map[key]*folder.Resource
}

// addWritten adds the folder's resources. The error has those that conflict with the resources of
// services and policies.
func (u *update) addWritten(from *state, resources []*folder.Resource) error {
	var faults document.Faults
	u.written = make(map[key]*folder.Resource, len(resources))
	u.setWritten, u.removedWritten = map[key]*folder.Resource{}, maps.Clone(from.written)
	for _, r := range resources {
		parameters, err := dynparam.NewParameters(r.Parameters)
		k := key{r.Any.GetTypeUrl(), r.Name, parameters.Key()}
		switch {
		case err != nil:
			faults.Add(fault(r, fmt.Sprintf("its dynamic parameters cannot be used: %v", err), ""))
		case u.makes(from, key{k.typeURL, xdsname.Canonical(r.Name), k.parameters}):
			faults.Add(fault(r, "a service has this resource already", "rename it, or give it dynamic parameters"))
		}
		u.written[k] = r
		if old := from.written[k]; old == nil || !proto.Equal(old.Any, r.Any) {
			u.setWritten[k] = r
		}
		delete(u.removedWritten, k)
	}
	return faults.Err()
}

func fault(r *folder.Resource, problem, suggestion string) document.Fault {
	return document.Fault{
		File: r.Source.File, Line: r.Source.Line, Problem: fmt.Sprintf("%s: %s", r, problem), Suggestion: suggestion,
	}
}

// makes reports whether the meshes have the resource after the update. If they have variants of it,
// the one for all clients counts as the one without parameters.
func (u *update) makes(from *state, k key) bool {
	if u.has(from, k) {
		return true
	}
	if k.parameters != "" {
		return false
	}
	// The parameters are valid.
	least, _ := dynparam.NewParameters(map[string]string{meshpolicy.SpecificityKey: "0"})
	k.parameters = least.Key()
	return u.has(from, k)
}

func (u *update) has(from *state, k key) bool {
	return u.set[k] != nil || from.made[k] != nil && u.removed[k] == nil
}

// isUnchanged reports whether a rebuilt resource is equal to the old one.
func isUnchanged(old, new *meshroute.Resource) bool {
	switch {
	case old == nil:
		return false
	case old.Err != nil || new.Err != nil:
		return old.Err != nil && new.Err != nil && proto.Equal(old.Err.Proto(), new.Err.Proto())
	}
	return old.Message == new.Message || proto.Equal(old.Message, new.Message)
}

// apply applies the update to the store: removals first, as a resource may replace one of the other
// kind.
func (u *update) apply(tx *controlplane.Tx) {
	for k, r := range u.removed {
		tx.DeleteVariant(k.typeURL, k.name, r.Parameters.Map())
	}
	for k, r := range u.removedWritten {
		tx.DeleteVariant(k.typeURL, k.name, r.Parameters)
	}
	for k, r := range u.set {
		if r.Err != nil {
			tx.SetVariantError(k.typeURL, k.name, r.Parameters.Map(), r.Err)
			continue
		}
		tx.SetNamed(k.name, r.Parameters.Map(), r.Message)
	}
	for k, r := range u.setWritten {
		tx.SetNamed(k.name, r.Parameters, r.Any)
	}
}

// keep applies the update to the state.
func (u *update) keep(s *state) {
	if s.made == nil {
		s.made = make(map[key]*meshroute.Resource, len(u.set))
	}
	for k := range u.removed {
		delete(s.made, k)
	}
	maps.Copy(s.made, u.set)
	s.written = u.written
}
