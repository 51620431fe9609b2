package provenance_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
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

func TestIsPlaces(t *testing.T) {
	places := marshal(t, provenance.Metadata(map[string]string{provenance.Matches: "a.yaml:3", provenance.Service: "s.yaml"}))
	other := marshal(t, &corepb.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb": {}}})
	number := marshal(t, &corepb.Metadata{FilterMetadata: map[string]*structpb.Struct{
		provenance.Key: {Fields: map[string]*structpb.Value{provenance.Matches: structpb.NewNumberValue(3)}},
	}})
	for _, tc := range []struct {
		name string
		raw  []byte
		want bool
	}{
		{"places", places, true},
		{"nothing", nil, true},
		{"another key", other, false},
		{"another key, too", slices.Concat(places, other), false},
		{"a number", number, false},
		{"text that is not UTF-8", bytes.Replace(places, []byte("s.yaml"), []byte("s.y\xffml"), 1), false},
		{"malformed", append(slices.Clone(places), 0xff), false},
		{"cut off", places[:len(places)-1], false},
	} {
		if got := provenance.IsPlaces(tc.raw); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}

func marshal(t *testing.T, m *corepb.Metadata) []byte {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
