package httpfilter

import (
	"context"

	"google.golang.org/protobuf/types/known/anypb"
)

// MetadataParser is a Filter that reads entries of Cluster.metadata.
type MetadataParser interface {
	Filter
	// MetadataTypeURLs returns the types of the entries of typed_filter_metadata that it reads. No
	// other filter may read them.
	MetadataTypeURLs() []string
	// ParseMetadata validates an entry of one of these types. An error NACKs the Cluster.
	ParseMetadata(*anypb.Any) (any, error)
}

// Metadata is what filters can know of Cluster.metadata (gRFC A83, "xDS Cluster Metadata"). It is immutable.
type Metadata []MetadataEntry

// MetadataEntry is an entry of typed_filter_metadata with what ParseMetadata has made of it, or, with a Value of
// nil, one of filter_metadata.
type MetadataEntry struct {
	Key   string
	Value any
}

// Get returns the value for a key. ok is false if there is no entry.
func (m Metadata) Get(key string) (value any, ok bool) {
	for i := range m {
		if m[i].Key == key {
			return m[i].Value, true
		}
	}
	return nil, false
}

// PickedMetadata returns the metadata of the cluster that an RPC goes to, as routes name it. ctx is what gRPC
// gives to call credentials that a filter has added (RPC.AddOptions), which are asked when the endpoint is
// picked. Before that there are none.
func PickedMetadata(ctx context.Context) Metadata {
	if m, _ := ctx.Value(MetadataKey{}).(*Metadata); m != nil {
		return *m
	}
	return nil
}

// MetadataKey is the key in contexts of the *Metadata that PickedMetadata returns. It is for the router of the
// RPC, and for tests of filters.
type MetadataKey struct{}
