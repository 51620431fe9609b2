package xdsresource

import (
	"maps"
	"slices"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/provenance"
)

// metadataKey is the key of the attribute with an endpoint's metadata, in the wire format.
type metadataKey struct{}

// WithMetadata returns e with the Metadata of an Endpoint as an attribute, for policies of the
// program's own.
func WithMetadata(e resolver.Endpoint, wire string) resolver.Endpoint {
	if wire != "" {
		e.Attributes = e.Attributes.WithValue(metadataKey{}, wire)
	}
	return e
}

// MetadataOf returns the metadata that WithMetadata has set, or nil. It decodes it.
func MetadataOf(e resolver.Endpoint) *corepb.Metadata {
	wire, _ := e.Attributes.Value(metadataKey{}).(string)
	if wire == "" {
		return nil
	}
	m := new(corepb.Metadata)
	if proto.Unmarshal([]byte(wire), m) != nil {
		return nil // Not reached: it was encoded from such a message.
	}
	return m
}

// metadata returns m in the wire format, without the places of package provenance: a version in which
// only these differ keeps the old value.
func (d *endpointDecoder) metadata(m *corepb.Metadata) string {
	if _, ok := m.GetFilterMetadata()[provenance.Key]; ok {
		m = proto.CloneOf(m)
		delete(m.FilterMetadata, provenance.Key)
	}
	if len(m.GetFilterMetadata()) == 0 && len(m.GetTypedFilterMetadata()) == 0 {
		return ""
	}
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return "" // Not reached: it was decoded.
	}
	known, ok := d.known[string(wire)]
	if !ok {
		if d.known == nil {
			d.known = make(map[string]string)
		}
		known = string(wire)
		d.known[known] = known
	}
	return known
}

// filterMetadata decodes Cluster.metadata for HTTP filters: for each key the typed entry, if its type is known, or else the
// other one (gRFC A83, "xDS Cluster Metadata").
func (d clusterDecoder) filterMetadata(pb *corepb.Metadata) httpfilter.Metadata {
	var m httpfilter.Metadata
	typed := pb.GetTypedFilterMetadata()
	for _, key := range slices.Sorted(maps.Keys(typed)) {
		parser := httpfilter.ParserOf(typed[key].GetTypeUrl())
		if parser == nil {
			continue
		}
		value, err := parser.ParseMetadata(typed[key])
		if err != nil {
			d.fault(faults.Field("metadata").Field("typed_filter_metadata").Key(key), "%v", err)
		}
		m = append(m, httpfilter.MetadataEntry{Key: key, Value: value})
	}
	for _, key := range slices.Sorted(maps.Keys(pb.GetFilterMetadata())) {
		if _, ok := m.Get(key); !ok && key != provenance.Key {
			m = append(m, httpfilter.MetadataEntry{Key: key})
		}
	}
	return m
}
