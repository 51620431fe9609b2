package provenance_test

import (
	"maps"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/provenance"
)

func TestMetadataAndBack(t *testing.T) {
	parts := map[string]string{provenance.Matches: "a.yaml:3, b.yaml:9", provenance.Filters: "", provenance.Service: "s.yaml"}
	got := provenance.Of(provenance.Metadata(parts))
	delete(parts, provenance.Filters)
	if !maps.Equal(got, parts) {
		t.Errorf("the parts are %v, want %v", got, parts)
	}
}

func TestNoParts(t *testing.T) {
	if m := provenance.Metadata(map[string]string{provenance.TLS: ""}); m != nil {
		t.Errorf("the metadata is %v, want none", m)
	}
	other := &corepb.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb": {}}}
	for _, m := range []*corepb.Metadata{nil, {}, other} {
		if got := provenance.Of(m); got != nil {
			t.Errorf("the parts of %v are %v, want none", m, got)
		}
	}
}
