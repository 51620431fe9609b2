package testutils

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// store has the resources of a FakeServer, by type, name and dynamic parameters (xRFC TP2).
type store struct {
	// version counts the updates.
	version uint64
	// types has the variants by type URL and by name in canonical form.
	types map[string]map[string]variants
	// dpds are the functions of SetDPDS by name in canonical form.
	dpds map[string]func(*corepb.Node) (dynparam.ByType, error)
}

// variants are what there is under one name, by the key of the parameters. An error in place of the whole
// name is the only one, under wholeName.
type variants map[string]*variant

const wholeName = "*"

// variant is one variant of a resource, or an error in its place. It is immutable.
type variant struct {
	name       string // in the spelling that was set
	parameters map[string]string
	version    string
	body       *anypb.Any
	err        *status.Status // instead of a body
	doNotCache bool
}

// Tx collects the changes of one update. It is valid only within the function that gets it.
type Tx struct {
	changes []func(*store)
	faults  []error
}

// Set adds resources, or replaces those of the same type and name. The name is the message's field name or
// cluster_name (ClusterLoadAssignment).
func (tx *Tx) Set(messages ...proto.Message) { tx.SetVariant(nil, messages...) }

// SetVariant is Set for the variants with these dynamic parameters (xRFC TP2). Other variants of the same
// names stay.
func (tx *Tx) SetVariant(parameters map[string]string, messages ...proto.Message) {
	for _, m := range messages {
		tx.SetNamed(nameOf(m), parameters, m)
	}
}

// SetNamed is SetVariant for a message under a given name. An *anypb.Any is the packed resource itself,
// whatever is in it.
func (tx *Tx) SetNamed(name string, parameters map[string]string, m proto.Message) {
	body, packed := m.(*anypb.Any)
	if !packed {
		body = new(anypb.Any)
		if err := anypb.MarshalFrom(body, m, proto.MarshalOptions{Deterministic: true}); err != nil {
			tx.faults = append(tx.faults, fmt.Errorf("resource %q: %w", name, err))
			return
		}
	}
	v, key := newVariant(name, parameters, proto.CloneOf(body)), parametersKey(parameters)
	tx.change(body.GetTypeUrl(), name, func(all variants) {
		delete(all, wholeName)
		all[key] = v
	})
}

// SetError sets an error in place of a resource and all its variants, or of a glob collection (xRFC TP3). A
// resource that is set later ends it, as Delete does.
func (tx *Tx) SetError(typeURL, name string, st *status.Status) {
	tx.Delete(typeURL, name)
	tx.setError(typeURL, name, wholeName, &variant{name: name, err: st})
}

// SetVariantError sets an error in place of one variant: it is for the clients that would get the variant.
func (tx *Tx) SetVariantError(typeURL, name string, parameters map[string]string, st *status.Status) {
	tx.setError(typeURL, name, parametersKey(parameters), &variant{name: name, parameters: maps.Clone(parameters), err: st})
}

func (tx *Tx) setError(typeURL, name, key string, v *variant) {
	if v.err.Code() == codes.OK {
		tx.faults = append(tx.faults, fmt.Errorf("error in place of %q: the status is OK", name))
		return
	}
	tx.change(typeURL, name, func(all variants) { all[key] = v })
}

// SetDPDS sets a resource of constraints, which the client's node decides (TP2, "Server-Specified
// Constraints"). of is called after every update and request, so that an empty Update is enough if its
// results change. An error is sent in place of the resource. of must be quick and not use the server; its
// node is nil if the client sent none.
func (tx *Tx) SetDPDS(name string, of func(node *corepb.Node) (dynparam.ByType, error)) {
	tx.changes = append(tx.changes, func(s *store) { s.dpds[xdsname.Canonical(name)] = of })
}

// Delete removes a resource with all its variants, or the error in its place.
func (tx *Tx) Delete(typeURL, name string) {
	tx.change(typeURL, name, func(all variants) { clear(all) })
	if typeURL == dynparam.MapTypeURL {
		tx.SetDPDS(name, nil)
	}
}

// DeleteVariant removes one variant, or the error in its place.
func (tx *Tx) DeleteVariant(typeURL, name string, parameters map[string]string) {
	key := parametersKey(parameters)
	tx.change(typeURL, name, func(all variants) { delete(all, key) })
}

// change changes what there is under a name.
func (tx *Tx) change(typeURL, name string, how func(variants)) {
	if name == "" || typeURL == "" {
		tx.faults = append(tx.faults, fmt.Errorf("resource %q of type %q: a resource needs a name and a type", name, typeURL))
		return
	}
	name = xdsname.Canonical(name)
	tx.changes = append(tx.changes, func(s *store) {
		if s.types[typeURL] == nil {
			s.types[typeURL] = map[string]variants{}
		}
		all := s.types[typeURL][name]
		if all == nil {
			all = variants{}
			s.types[typeURL][name] = all
		}
		if how(all); len(all) == 0 {
			delete(s.types[typeURL], name)
		}
	})
}

// newVariant returns a variant whose version is the same in every process that serves the same bytes.
func newVariant(name string, parameters map[string]string, body *anypb.Any) *variant {
	sum := sha256.Sum256([]byte(parametersKey(parameters) + body.GetTypeUrl() + string(body.GetValue())))
	return &variant{name: name, parameters: maps.Clone(parameters), version: fmt.Sprintf("%x", sum[:8]), body: body}
}

// parametersKey is equal for equal parameters only, and empty for none.
func parametersKey(parameters map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		fmt.Fprintf(&b, "%q=%q ", key, parameters[key])
	}
	return b.String()
}

// nameOf returns the name of a resource, empty if it has none.
func nameOf(m proto.Message) string {
	if named, ok := m.(interface{ GetName() string }); ok {
		return named.GetName()
	}
	if named, ok := m.(interface{ GetClusterName() string }); ok {
		return named.GetClusterName()
	}
	return ""
}

// under returns what there is under a name in canonical form, for a client with this node.
func (s *store) under(typeURL, name string, node *corepb.Node) variants {
	of := s.dpds[name]
	if typeURL != dynparam.MapTypeURL || of == nil {
		return s.types[typeURL][name]
	}
	constraints, err := of(node)
	if err != nil {
		return variants{wholeName: {name: name, err: status.Convert(err)}}
	}
	body, err := dynwire.MarshalMap(constraints.ToProto())
	if err != nil {
		return variants{wholeName: {name: name, err: status.New(codes.Internal, err.Error())}}
	}
	v := newVariant(name, nil, body)
	v.doNotCache = true
	return variants{"": v}
}
