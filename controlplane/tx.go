package controlplane

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Tx collects the changes of one [Store.Update]. It is valid only within the
// function it was given to, and for one goroutine.
type Tx struct {
	store *Store
	// changes maps a key to its new entry, nil if it is to be deleted.
	changes map[entryKey]*entry
	errs    []error
}

type entryKey struct {
	typeURL string
	name    nameKey
}

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
// The name may be one of xRFC TP1 (xdstp:), but not that of a glob collection.
//
// Names of TP1 that differ only in how they are written are one name. The
// spelling that is stored first stays until the resource changes.
func (tx *Tx) SetNamed(name string, m proto.Message) {
	if isNil(m) {
		tx.fail(fmt.Errorf("set %q: the message is nil", name))
		return
	}
	if name == "" {
		tx.fail(fmt.Errorf("set: the name of a %T is empty", m))
		return
	}
	key, err := storable(name)
	if err == nil && key.isGlob() {
		err = errors.New("the name is that of a glob collection, not of a resource: its members are the resources whose names have another last part")
	}
	var r *Resource
	if err == nil {
		r, err = newResource(name, m)
	}
	if err != nil {
		tx.fail(fmt.Errorf("set %q: %w", name, err))
		return
	}
	tx.changes[entryKey{r.packed.TypeUrl, key}] = &entry{resource: r}
}

// SetError puts an error in place of a resource (xRFC TP3): clients that
// subscribed to the name are sent st, each of them once, instead of the
// resource. It replaces a resource of that name; Set and Delete end it. The name may be that of a
// glob collection, which then is in error as a whole: its subscribers
// are told nothing of its members until the error is deleted.
//
// Codes decide what clients do. NOT_FOUND and PERMISSION_DENIED let them drop a
// version that they have; all others are transient, and they keep it. A nil or
// OK st, an empty typeURL or name, and "*" make the update fail: TP3 has no
// errors for wildcard subscriptions.
func (tx *Tx) SetError(typeURL, name string, st *status.Status) {
	key, badName := storable(name)
	if name == "" {
		badName = errors.New("the name is empty")
	}
	var badType error
	if typeURL == "" {
		badType = errors.New("the type URL is empty")
	}
	e, badStatus := newResourceError(name, st)
	if err := errors.Join(badType, badName, badStatus); err != nil {
		tx.fail(fmt.Errorf("set error of %q: %w", name, err))
		return
	}
	tx.changes[entryKey{typeURL, key}] = &entry{err: e}
}

// storable says whether something can be stored under a name.
func storable(name string) (nameKey, error) {
	switch {
	case !utf8.ValidString(name):
		return nameKey{}, errors.New("the name is not valid UTF-8")
	case name == wildcardName:
		return nameKey{}, fmt.Errorf("%q is no name for a resource, as it subscribes to all of them", name)
	}
	return keyOf(name), nil
}

// Delete removes a resource, or the error in its place, if there is one.
func (tx *Tx) Delete(typeURL, name string) {
	tx.changes[entryKey{typeURL, keyOf(name)}] = nil
}

// DeleteAll removes every resource of a type and every error. Together with Set
// after it, it replaces the type as a whole; resources that come back with the
// same bytes did not change.
func (tx *Tx) DeleteAll(typeURL string) {
	for key := range tx.changes {
		if key.typeURL == typeURL {
			tx.changes[key] = nil
		}
	}
	for _, key := range tx.store.keys(typeURL) {
		tx.changes[entryKey{typeURL, key}] = nil
	}
}

// Get returns the resource as this update would leave it, nil if there is none.
func (tx *Tx) Get(typeURL, name string) *Resource {
	if e := tx.entry(typeURL, name); e != nil {
		return e.resource
	}
	return nil
}

// Error returns the error in place of a resource as this update would leave
// it, nil if there is none.
func (tx *Tx) Error(typeURL, name string) *status.Status {
	if e := tx.entry(typeURL, name); e != nil && e.err != nil {
		return e.err.status
	}
	return nil
}

func (tx *Tx) entry(typeURL, name string) *entry {
	key := keyOf(name)
	if e, ok := tx.changes[entryKey{typeURL, key}]; ok {
		return e
	}
	return tx.store.entry(typeURL, key)
}

func (tx *Tx) fail(err error) { tx.errs = append(tx.errs, err) }

// isNil also catches a nil pointer of a message type.
func isNil(m proto.Message) bool { return m == nil || !m.ProtoReflect().IsValid() }
