package controlplane

import (
	"errors"
	"fmt"
	"unicode/utf8"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Tx collects the changes of one [Store.Update]. It is valid only within that function, for one
// goroutine.
type Tx struct {
	store *Store
	// stored are the slots of types that are changed.
	stored map[string]map[nameKey]*slot
	// changes are what is to be stored under the names that are changed.
	changes map[slotKey]*slot
	// answers are those to demands; nil for a resource that does not exist.
	answers  map[*Demand]*entry
	renewals []renewal
	errs     []error
}

type slotKey struct {
	typeURL string
	name    nameKey
}

// Set adds resources or replaces those of the same type and name. The name is the message's field
// name or cluster_name (ClusterLoadAssignment); a message without a name makes the update fail. The
// message is serialized at once; the caller may change it afterwards.
//
// The resources have no dynamic parameters. Variants of the same name with parameters stay; see
// [Tx.SetVariant].
func (tx *Tx) Set(messages ...proto.Message) { tx.SetVariant(nil, messages...) }

// SetVariant is Set for the variants of resources with these dynamic parameters (xRFC TP2). Other
// variants of the same names stay. It ends an earlier SetError of the name.
//
// Best practice is that all variants of a resource have the same keys, and that there is a variant
// for every value that clients may require (TP2, "Matching Behavior and Best Practices").
func (tx *Tx) SetVariant(parameters map[string]string, messages ...proto.Message) {
	for _, m := range messages {
		switch named := m.(type) {
		case interface{ GetName() string }:
			tx.SetNamed(named.GetName(), parameters, m)
		case interface{ GetClusterName() string }:
			tx.SetNamed(named.GetClusterName(), parameters, m)
		case nil:
			tx.SetNamed("", parameters, nil)
		default:
			tx.fail(fmt.Errorf("set: a %T has no name field; use SetNamed", m))
		}
	}
}

// SetNamed is [Tx.SetVariant] for a message under a given name; parameters may be nil. An *anypb.Any
// is the serialized resource itself, whatever its bytes. The name may be one of xRFC TP1 (xdstp:),
// but not that of a glob collection.
//
// Spellings of a TP1 name with the same canonical form are one name. The spelling that was stored
// first stays until the resource changes.
func (tx *Tx) SetNamed(name string, parameters map[string]string, m proto.Message) {
	if isNil(m) {
		tx.fail(fmt.Errorf("set %q: the message is nil", name))
		return
	}
	if name == "" {
		tx.fail(fmt.Errorf("set: the name of the %T is empty", m))
		return
	}
	r, err := newResource(name, parameters, m)
	if err != nil {
		tx.fail(fmt.Errorf("set %q: %w", name, err))
		return
	}
	tx.SetResource(r)
}

// SetResource stores a resource that [NewResource] made as the variant with its parameters, as
// [Tx.SetNamed] does.
func (tx *Tx) SetResource(r *Resource) {
	tx.draft(r.packed.TypeUrl, r.key).set(&entry{resource: r})
}

// Answer answers a demand (see [Store.OnDemand]) with a resource of its type or, if r is nil, with
// the absence of one. The subscribers are sent what differs from the previous answer. For a
// demand of a collection r must be nil, and means that the members are in the store: those that were
// set before and those of this update.
//
// A resource that must not be cached is no answer to a demand that clients share. The store
// discards it, ends the demand, and begins one of each subscriber in its place.
//
// An answer to a demand that has ended is ignored.
func (tx *Tx) Answer(d *Demand, r *Resource) {
	switch {
	case r == nil:
		tx.answers[d] = nil
	case d.Collection():
		tx.fail(fmt.Errorf("answer %q: the demand is for a collection: set its members by SetResource, and answer nil", d.Name))
	case r.packed.TypeUrl != d.TypeURL:
		tx.fail(fmt.Errorf("answer %q: the resource is a %s, the demand is for a %s", d.Name, r.packed.TypeUrl, d.TypeURL))
	case r.key != d.ask.name:
		tx.fail(fmt.Errorf("answer %q: the resource has the name %q", d.Name, r.name))
	case !d.Constraints.Match(r.parameters):
		tx.fail(fmt.Errorf("answer %q: the demand is for %v, the resource has the parameters %v", d.Name, d.Constraints, r.parameters))
	default:
		tx.answers[d] = &entry{resource: r}
	}
}

// AnswerBeside answers a demand with a resource, and with an error that the subscribers are sent once they have it: something is wrong
// with it, and they keep it (gRFC A88, "ambient errors"). Once it is answered without the error, they are sent the resource again. Clients
// of SotW are not told of errors beside Listeners and Clusters: a response has all of these, and one that it has is not in error.
func (tx *Tx) AnswerBeside(d *Demand, r *Resource, st *status.Status) {
	tx.Answer(d, r)
	e := tx.answers[d]
	if e == nil { // which Answer has found wrong
		return
	}
	var err error
	if e.beside, err = newResourceError(d.Name, st); err != nil {
		tx.fail(fmt.Errorf("answer %q: %w", d.Name, err))
	}
}

// AnswerError answers a demand with an error in place of the resource, or of the members of a glob
// collection (xRFC TP3); see [Tx.SetError]. TP3 has no errors for wildcards: for one, it ends the
// streams of the subscribers, with st. Unless they should come back at once, do not answer.
func (tx *Tx) AnswerError(d *Demand, st *status.Status) {
	e, err := newResourceError(d.Name, st)
	if err != nil {
		tx.fail(fmt.Errorf("answer %q: %w", d.Name, err))
		return
	}
	tx.answers[d] = &entry{err: e}
}

// SetDPDS stores a resource with the constraints that each client must subscribe with (TP2,
// "Server-Specified Constraints"): of returns them, by type of resource, for the client's node. The node
// is that of the stream's first request, nil if it had none; it must not be changed. An error of the
// function, for instance one of package status, is sent to the client in place of the resource.
//
// of is called without locks, for one client after the other. A client is
// sent nothing while it waits for that, and Server.Close waits for it, so of should be quick, and must not panic. It is called again when it is replaced, or on
// [Store.RefreshDPDS]; a client is sent the result only if it changed.
//
// The type URL is [dynparam.MapTypeURL]; clients subscribe by name, not through a glob collection. A
// name that they could not subscribe to, such as one of another type, makes the update fail.
func (tx *Tx) SetDPDS(name string, of func(node *corepb.Node) (dynparam.ByType, error)) {
	key, err := ofResource(name)
	if err == nil {
		err = xdsname.CheckConstraintsMap(name)
	}
	if of == nil {
		err = errors.Join(err, errors.New("the function is nil"))
	}
	if err != nil {
		tx.fail(fmt.Errorf("set DPDS resource %q: %w", name, err))
		return
	}
	tx.draft(dynparam.MapTypeURL, key).set(&entry{computed: &computation{name: name, of: of}})
}

// ofResource returns an error if no resource can be stored under the name.
func ofResource(name string) (nameKey, error) {
	key, err := storable(name)
	if err == nil && key.isGlob() {
		err = errors.New("the name is that of a glob collection: replace its last part, \"*\", to name a resource")
	}
	return key, err
}

// SetError replaces a resource, with all its variants, by an error (xRFC TP3): each client that
// subscribed to the name is sent st, once. Setting a variant, and Delete, end it. The name may be
// that of a glob collection, which then is in error as a whole: its subscribers are sent nothing
// about its members until the error is deleted.
//
// The code decides what clients do: NOT_FOUND and PERMISSION_DENIED let them drop the resource; with
// all others, which are transient, they keep it. A nil or OK st, an empty typeURL or name, and "*"
// make the update fail: TP3 has no errors for wildcard subscriptions.
func (tx *Tx) SetError(typeURL, name string, st *status.Status) {
	key, badName := storable(name)
	if e := tx.newError(typeURL, name, dynparam.Parameters{}, st, badName); e != nil {
		e.whole = true
		tx.replace(typeURL, key, e)
	}
}

// SetVariantError replaces one variant by an error: subscriptions that would get the variant with
// these parameters get st. Other variants of the name stay. So some clients can get
// PERMISSION_DENIED, and others the resource.
func (tx *Tx) SetVariantError(typeURL, name string, parameters map[string]string, st *status.Status) {
	key, badName := ofResource(name)
	p, badParameters := dynparam.NewParameters(parameters)
	if e := tx.newError(typeURL, name, p, st, errors.Join(badName, badParameters)); e != nil {
		tx.draft(typeURL, key).set(e)
	}
}

// newError returns nil, and makes the update fail, if the error cannot be stored.
func (tx *Tx) newError(typeURL, name string, p dynparam.Parameters, st *status.Status, bad error) *entry {
	if typeURL == "" {
		bad = errors.Join(errors.New("the type URL is empty"), bad)
	}
	e, badStatus := newResourceError(name, st)
	if err := errors.Join(bad, badStatus); err != nil {
		tx.fail(fmt.Errorf("set error of %q: %w", name, err))
		return nil
	}
	e.parameters = p
	return &entry{err: e}
}

// storable returns an error if nothing can be stored under the name.
func storable(name string) (nameKey, error) {
	switch {
	case name == "":
		return nameKey{}, errors.New("the name is empty")
	case !utf8.ValidString(name):
		return nameKey{}, errors.New("the name is not valid UTF-8")
	case name == wildcardName:
		return nameKey{}, fmt.Errorf("the name %q is reserved: it subscribes to every resource", name)
	}
	return keyOf(name), nil
}

// Delete removes a resource with all its variants, or the error in its place. Clients that have the
// resource learn of it later; see [Options.RemovalDelay].
func (tx *Tx) Delete(typeURL, name string) {
	tx.replace(typeURL, keyOf(name), nil)
}

// DeleteVariant is Delete for the variant with these parameters, or the error in its
// place.
func (tx *Tx) DeleteVariant(typeURL, name string, parameters map[string]string) {
	p, err := dynparam.NewParameters(parameters)
	if err != nil {
		tx.fail(fmt.Errorf("delete a variant of %q: %w", name, err))
		return
	}
	tx.draft(typeURL, keyOf(name)).delete(p.Key())
}

// DeleteAll removes all resources and errors of a type. Followed by Set it replaces the type as a
// whole; resources that are set with the same bytes do not change.
func (tx *Tx) DeleteAll(typeURL string) {
	for key := range tx.changes {
		if key.typeURL == typeURL {
			tx.replace(typeURL, key.name, nil)
		}
	}
	for key := range tx.slots(typeURL) {
		tx.replace(typeURL, key, nil)
	}
}

// draft returns what is to be stored under a name, to be changed.
func (tx *Tx) draft(typeURL string, key nameKey) *slot {
	s := tx.changes[slotKey{typeURL, key}]
	if s == nil {
		s = tx.slots(typeURL)[key].clone()
		tx.changes[slotKey{typeURL, key}] = s
	}
	return s
}

// slots returns the slots of a type, which are read without Store.mu: only updates change them. It takes Store.mu once for a type, as that
// may be held by one client after the other.
func (tx *Tx) slots(typeURL string) map[nameKey]*slot {
	slots, ok := tx.stored[typeURL]
	if !ok {
		tx.store.mu.RLock()
		slots = tx.store.present(typeURL).slots
		tx.store.mu.RUnlock()
		tx.stored[typeURL] = slots
	}
	return slots
}

// replace replaces all variants by e, which may be nil.
func (tx *Tx) replace(typeURL string, key nameKey, e *entry) {
	tx.changes[slotKey{typeURL, key}] = slotOf(e)
}

func (tx *Tx) fail(err error) { tx.errs = append(tx.errs, err) }

// isNil also catches a nil pointer of a message type.
func isNil(m proto.Message) bool { return m == nil || !m.ProtoReflect().IsValid() }
