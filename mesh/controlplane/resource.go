package controlplane

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

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
	aliases    []string
	ttl        time.Duration
	// doNotCache is set if caches must not keep the resource, nor share it between clients
	// (Resource.cache_control). That is so for each DPDS resource (TP2, "Non-Cacheability of DPDS").
	doNotCache bool
	// wrapped has for each addressing the resource in an envoy.service.discovery.v3.Resource, for SotW, under the name it was stored
	// with. It is made when first needed, once for all streams.
	wrapped [2]func() *anypb.Any
}

// Name returns the name that clients subscribe to.
func (r *Resource) Name() string { return r.name }

// Parameters returns the dynamic parameters of this variant (xRFC TP2); a resource without variants
// has none.
func (r *Resource) Parameters() dynparam.Parameters { return r.parameters }

// Version returns the version of this variant. Unless [NewResource] was given another, it is a hash
// of the bytes and the parameters, and so is the same in every process that serves them: a client
// may reconnect to another replica.
func (r *Resource) Version() string { return r.version }

// Any returns the serialized resource. It must not be changed.
func (r *Resource) Any() *anypb.Any { return r.packed }

// sameBytes reports whether clients that have r need not be sent o.
func (r *Resource) sameBytes(o *Resource) bool {
	return r == o || r != nil && o != nil && r.version == o.version && r.ttl == o.ttl &&
		r.doNotCache == o.doNotCache && r.name == o.name && r.parameters.Key() == o.parameters.Key() &&
		slices.Equal(r.aliases, o.aliases) && bytes.Equal(r.packed.Value, o.packed.Value)
}

// resourceID is equal for resources that are the same to clients: an answer of a source may be a member
// of a collection, too.
type resourceID struct{ name, parameters, version string }

func (r *Resource) id() resourceID { return resourceID{r.name, r.parameters.Key(), r.version} }

func (r *Resource) same(o *Resource) bool { return r == o || r != nil && o != nil && r.id() == o.id() }

// NewResource returns a resource as it is on the wire, for [Tx.Answer] and [Tx.SetResource]: with the
// name, the dynamic parameters (xRFC TP2), the aliases, the TTL and the cache control of m, and its
// bytes, which are not copied and must not be changed. A version that is not empty is sent to clients
// unchanged. The metadata of m is not kept.
//
// It returns an error if m has no name or no resource, or a name or parameters that no client can
// subscribe to.
func NewResource(m *discoverypb.Resource) (*Resource, error) {
	r, err := read(m)
	if err != nil {
		return nil, fmt.Errorf("resource %q: %w", m.GetName(), err)
	}
	return r, nil
}

// read is NewResource, with errors that do not say the name.
func read(m *discoverypb.Resource) (*Resource, error) {
	key, err := ofResource(m.GetName())
	p, badParameters := dynparam.NewParameters(m.GetDynamicParameters())
	var noType error
	if m.GetResource().GetTypeUrl() == "" {
		noType = errors.New("there is no resource, or its Any has no type URL")
	}
	var badTTL error
	if m.GetTtl() != nil {
		badTTL = m.GetTtl().CheckValid()
	}
	var badText error
	if texts := fmt.Sprintln(m.GetVersion(), m.GetResource().GetTypeUrl(), m.GetAliases()); !utf8.ValidString(texts) {
		badText = errors.New("the version, the type URL or an alias is not valid UTF-8")
	}
	if err := errors.Join(err, badParameters, noType, badTTL, badText); err != nil {
		return nil, err
	}
	r := &Resource{
		name: m.GetName(), key: key, parameters: p, packed: m.GetResource(), version: m.GetVersion(),
		aliases: m.GetAliases(), ttl: m.GetTtl().AsDuration(), doNotCache: m.GetCacheControl().GetDoNotCache(),
	}
	if r.version == "" {
		hash := sha256.New()
		hash.Write(r.packed.Value)
		hash.Write([]byte(r.parameters.Key()))
		r.version = hex.EncodeToString(hash.Sum(nil)[:8])
	}
	// TP2, "Non-Cacheability of DPDS".
	r.doNotCache = r.doNotCache || r.packed.TypeUrl == dynparam.MapTypeURL
	r.wrap()
	return r, nil
}

func (r *Resource) wrap() {
	for d := range r.wrapped {
		r.wrapped[d] = sync.OnceValue(func() *anypb.Any {
			// Only a text that is not UTF-8 could fail.
			value, _ := proto.MarshalOptions{Deterministic: true}.Marshal(r.message(r.name, addressing(d)))
			return &anypb.Any{TypeUrl: typeurl.Wrapper, Value: value}
		})
	}
	if r.parameters.IsZero() { // the envelopes are equal
		r.wrapped[byLocators] = r.wrapped[byNames]
	}
}

// newResource serializes m, once for all streams. An Any is the packed resource itself.
func newResource(name string, parameters map[string]string, m proto.Message) (*Resource, error) {
	packed, err := pack(m)
	if err != nil {
		return nil, err
	}
	return read(&discoverypb.Resource{Name: name, DynamicParameters: parameters, Resource: packed})
}

func pack(m proto.Message) (*anypb.Any, error) {
	switch m := m.(type) {
	case *anypb.Any:
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

// message is the resource in its envelope, under the name the client used.
func (r *Resource) message(name string, d addressing) *discoverypb.Resource {
	m := &discoverypb.Resource{Name: name, Version: r.version, Resource: r.packed, Aliases: r.aliases}
	if d == byLocators {
		m.DynamicParameters = r.parameters.Map()
	}
	if r.ttl > 0 {
		m.Ttl = durationpb.New(r.ttl)
	}
	if r.doNotCache {
		m.CacheControl = &discoverypb.Resource_CacheControl{DoNotCache: true}
	}
	return m
}
