package controlplane

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
)

// Tx collects the changes of one [Store.Update]. It is valid only within the
// function it was given to, and for one goroutine.
type Tx struct {
	store *Store
	// changes maps a key to its new resource, nil if it is to be deleted.
	changes map[resourceKey]*Resource
	errs    []error
}

type resourceKey struct{ typeURL, name string }

// Set adds resources or replaces those of the same type and name. The name is
// the message's field name, or cluster_name if it has none
// (ClusterLoadAssignment). A message without a name makes the update fail. The
// message is serialized here; the caller may change it afterwards.
func (tx *Tx) Set(messages ...proto.Message) {
	for _, m := range messages {
		if isNil(m) {
			tx.fail(errors.New("set: the message is nil"))
			continue
		}
		name, err := resourceName(m)
		if err != nil {
			tx.fail(fmt.Errorf("set: %w", err))
			continue
		}
		tx.SetNamed(name, m)
	}
}

// SetNamed is Set for a message under a name of the caller's choice. A
// *anypb.Any is taken as the serialized resource itself, whatever its bytes.
func (tx *Tx) SetNamed(name string, m proto.Message) {
	switch {
	case isNil(m):
		tx.fail(fmt.Errorf("set %q: the message is nil", name))
		return
	case name == "":
		tx.fail(fmt.Errorf("set: the name of a %T is empty", m))
		return
	case !utf8.ValidString(name):
		tx.fail(fmt.Errorf("set %q: the name is not valid UTF-8", name))
		return
	case name == wildcardName:
		tx.fail(fmt.Errorf("set: %q is no name for a resource, as it subscribes to all of them", name))
		return
	}
	r, err := newResource(name, m)
	if err != nil {
		tx.fail(fmt.Errorf("set %q: %w", name, err))
		return
	}
	tx.changes[resourceKey{r.packed.TypeUrl, name}] = r
}

// Delete removes a resource, if it exists.
func (tx *Tx) Delete(typeURL, name string) {
	tx.changes[resourceKey{typeURL, name}] = nil
}

// DeleteAll removes every resource of a type. Together with Set after it, it
// replaces the type as a whole; resources that come back with the same bytes
// did not change.
func (tx *Tx) DeleteAll(typeURL string) {
	for key := range tx.changes {
		if key.typeURL == typeURL {
			tx.changes[key] = nil
		}
	}
	for _, r := range tx.store.Resources(typeURL) {
		tx.Delete(typeURL, r.name)
	}
}

// Get returns the resource as this update would leave it, nil if there is none.
func (tx *Tx) Get(typeURL, name string) *Resource {
	if r, ok := tx.changes[resourceKey{typeURL, name}]; ok {
		return r
	}
	return tx.store.Get(typeURL, name)
}

func (tx *Tx) fail(err error) { tx.errs = append(tx.errs, err) }

// isNil also catches a nil pointer of a message type.
func isNil(m proto.Message) bool { return m == nil || !m.ProtoReflect().IsValid() }
