package controlplane

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Resource is one resource as the store holds it. It is immutable and shared by
// every stream.
type Resource struct {
	name    string
	version string
	packed  *anypb.Any
	// wrapped is made when the first stream needs it.
	wrapped func() *anypb.Any
}

// Name returns the name that clients subscribe to.
func (r *Resource) Name() string { return r.name }

// Version returns the version of this resource alone. It is derived from the
// bytes: it changes only if they do, and is the same in every process that
// serves them, so that a client may reconnect to another replica.
func (r *Resource) Version() string { return r.version }

// Any returns the serialized resource. It must not be changed.
func (r *Resource) Any() *anypb.Any { return r.packed }

func (r *Resource) sameBytes(o *Resource) bool {
	return r != nil && o != nil && bytes.Equal(r.packed.Value, o.packed.Value)
}

// newResource serializes m, this once for all streams. A message that is an
// Any already is taken as the packed resource.
func newResource(name string, m proto.Message) (*Resource, error) {
	packed, err := pack(m)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(packed.Value)
	r := &Resource{name: name, version: hex.EncodeToString(sum[:8]), packed: packed}
	r.wrapped = sync.OnceValue(r.wrap)
	return r, nil
}

func pack(m proto.Message) (*anypb.Any, error) {
	if packed, ok := m.(*anypb.Any); ok {
		if packed.GetTypeUrl() == "" {
			return nil, fmt.Errorf("the Any has no type URL")
		}
		return &anypb.Any{TypeUrl: packed.TypeUrl, Value: bytes.Clone(packed.Value)}, nil
	}
	packed := new(anypb.Any)
	if err := anypb.MarshalFrom(packed, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("serializing a %T: %w", m, err)
	}
	return packed, nil
}

// message is the resource in its envelope, under the name the client used.
func (r *Resource) message(name string) *discoverypb.Resource {
	return &discoverypb.Resource{Name: name, Version: r.version, Resource: r.packed}
}

// wrap serializes the envelope, for SotW.
func (r *Resource) wrap() *anypb.Any {
	packed, err := pack(r.message(r.name))
	if err != nil {
		// Only a name that is not UTF-8 could fail, and Tx accepts none.
		return r.packed
	}
	return packed
}

// resourceName reads the name out of a resource message.
func resourceName(m proto.Message) (string, error) {
	var name string
	switch m := m.(type) {
	case interface{ GetName() string }:
		name = m.GetName()
	case interface{ GetClusterName() string }:
		name = m.GetClusterName()
	default:
		return "", fmt.Errorf("a %T has no name field; use SetNamed", m)
	}
	if name == "" {
		return "", fmt.Errorf("the name of the %T is empty", m)
	}
	return name, nil
}
