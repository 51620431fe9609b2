package controlplane

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	dpdspb "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Resource is one variant of a resource in the store. It is immutable and shared by all streams.
type Resource struct {
	name       string
	key        nameKey
	parameters dynparam.Parameters
	version    string
	packed     *anypb.Any
	// plain and variant are made when first needed.
	plain, variant *envelope
}

// Name returns the name that clients subscribe to.
func (r *Resource) Name() string { return r.name }

// Parameters returns the dynamic parameters of this variant (xRFC TP2); a resource without variants
// has none.
func (r *Resource) Parameters() dynparam.Parameters { return r.parameters }

// Version returns the version of this variant. It is a hash of the bytes and the parameters, and so
// is the same in every process that serves them: a client may reconnect to another replica.
func (r *Resource) Version() string { return r.version }

// Any returns the serialized resource. It must not be changed.
func (r *Resource) Any() *anypb.Any { return r.packed }

func (r *Resource) sameBytes(o *Resource) bool {
	return r != nil && o != nil && bytes.Equal(r.packed.Value, o.packed.Value)
}

// newResource serializes m, once for all streams. An Any is the packed resource itself.
func newResource(name string, parameters dynparam.Parameters, m proto.Message) (*Resource, error) {
	packed, err := pack(m)
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	hash.Write(packed.Value)
	hash.Write([]byte(parameters.Key()))
	r := &Resource{
		name: name, key: keyOf(name), parameters: parameters, packed: packed,
		version: hex.EncodeToString(hash.Sum(nil)[:8]),
	}
	r.plain = newEnvelope(r, byNames)
	r.variant = r.plain
	if !parameters.IsZero() {
		r.variant = newEnvelope(r, byLocators)
	}
	return r, nil
}

func pack(m proto.Message) (*anypb.Any, error) {
	switch m := m.(type) {
	case *anypb.Any:
		if m.GetTypeUrl() == "" {
			return nil, fmt.Errorf("the Any has no type URL")
		}
		return &anypb.Any{TypeUrl: m.TypeUrl, Value: bytes.Clone(m.Value)}, nil
	case *dpdspb.DynamicParameterConstraintsMap:
		return dynwire.MarshalMap(m) // its Go name is not the one on the wire
	}
	packed := new(anypb.Any)
	if err := anypb.MarshalFrom(packed, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("serializing a %T: %w", m, err)
	}
	return packed, nil
}

// envelope returns the resource's envelope for streams of a dialect.
func (r *Resource) envelope(d dialect) *envelope {
	if d == byLocators {
		return r.variant
	}
	return r.plain
}

// message is the resource in its envelope, under the name the client used.
func (r *Resource) message(name string, d dialect) *discoverypb.Resource {
	if name == r.name {
		return r.envelope(d).message()
	}
	return r.newMessage(name, d)
}

func (r *Resource) newMessage(name string, d dialect) *discoverypb.Resource {
	m := &discoverypb.Resource{Name: name, Version: r.version, Resource: r.packed}
	if d == byLocators {
		m.DynamicParameters = r.parameters.Map()
	}
	if r.packed.TypeUrl == dynparam.MapTypeURL {
		// TP2, "Non-Cacheability of DPDS".
		m.CacheControl = &discoverypb.Resource_CacheControl{DoNotCache: true}
	}
	return m
}

// envelope is a resource in an envoy.service.discovery.v3.Resource, under the
// name it was stored with, made once for all streams.
type envelope struct {
	message func() *discoverypb.Resource
	// packed is for SotW.
	packed func() *anypb.Any
}

func newEnvelope(r *Resource, d dialect) *envelope {
	e := &envelope{message: sync.OnceValue(func() *discoverypb.Resource { return r.newMessage(r.name, d) })}
	e.packed = sync.OnceValue(func() *anypb.Any {
		value, err := proto.MarshalOptions{Deterministic: true}.Marshal(e.message())
		if err != nil {
			// Only a name that is not UTF-8 could fail, and Tx accepts none.
			return r.packed
		}
		return &anypb.Any{TypeUrl: typeurl.Wrapper, Value: value}
	})
	return e
}

// resourceName returns the name in a resource message.
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
