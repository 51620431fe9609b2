// Package provenance says, in the metadata of resources, where each of their parts was written. A control
// plane that makes resources out of documents adds it, so that whoever looks at a client can name the
// document. Clients ignore it.
package provenance

import (
	"cmp"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Key is the key in Metadata.filter_metadata. Its Struct has a string for each part: "file:line", or
// several with ", " between them.
const Key = "dynxds.source"

// The parts of resources.
const (
	// Matches and those after it are the fields of rules in policies.
	Matches, Filters, BackendRefs, Timeouts, Retry, Session = "matches", "filters", "backendRefs", "timeouts", "retry", "sessionPersistence"
	// Service is a service as a whole, Endpoint one of its endpoints, TLS its security.
	Service, Endpoint, TLS = "service", "endpoint", "tls"
)

// Metadata returns the metadata of a message whose parts were written at these places, nil for none. Parts
// without a place are left out.
func Metadata(parts map[string]string) *corepb.Metadata {
	fields := make(map[string]*structpb.Value, len(parts))
	for part, place := range parts {
		if place != "" {
			fields[part] = structpb.NewStringValue(place)
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return &corepb.Metadata{FilterMetadata: map[string]*structpb.Struct{Key: {Fields: fields}}}
}

// Of returns the places of the parts of a message with this metadata, nil for none.
func Of(m *corepb.Metadata) map[string]string {
	fields := m.GetFilterMetadata()[Key].GetFields()
	if len(fields) == 0 {
		return nil
	}
	parts := make(map[string]string, len(fields))
	for part, place := range fields {
		if text := place.GetStringValue(); text != "" {
			parts[part] = text
		}
	}
	return parts
}

// At returns the place of the first of the parts that has one, or "".
func At(m *corepb.Metadata, parts ...string) (at string) {
	places := Of(m)
	for _, part := range parts {
		at = cmp.Or(at, places[part])
	}
	return at
}
