package controlplane_test

import (
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/mesh/controlplane"
)

// variant is a resource whose content is text.
func variant(typeURL, text string) *anypb.Any {
	return &anypb.Any{TypeUrl: typeURL, Value: []byte(text)}
}

// parameters is for pairs of keys and values.
func parameters(pairs ...string) map[string]string {
	p := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		p[pairs[i]] = pairs[i+1]
	}
	return p
}

// setVariant stores a variant whose text is content.
func (s *testServer) setVariant(t testing.TB, typeURL, name, content string, pairs ...string) {
	t.Helper()
	s.update(t, func(tx *controlplane.Tx) {
		tx.SetNamed(name, parameters(pairs...), variant(typeURL, content))
	})
}
