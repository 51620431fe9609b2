package explain

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"
)

// Whatever a dump has in place of resources is explained, or is an error.
func TestDamagedResources(t *testing.T) {
	t.Parallel()
	explained := 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(5, seed))
		s := shop()
		for range 1 + r.IntN(3) {
			damage(r, s.Resources[r.IntN(len(s.Resources))])
		}
		e, err := Explain(s, Request{Target: "backend", Method: method, Headers: map[string][]string{"x-user": {"7"}}})
		if err != nil {
			continue
		}
		explained++
		if e.Outcome == "" {
			t.Errorf("seed %d: there is no outcome", seed)
		}
		if _, err := json.Marshal(e); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		e.Text()
	}
	if explained < 1000 {
		t.Errorf("only %d of them are explained: too few to learn much", explained)
	}
}

// damage changes a resource in one way.
func damage(r *rand.Rand, resource *Resource) {
	if resource.Raw == nil || len(resource.Raw.Value) == 0 {
		return
	}
	b := append([]byte(nil), resource.Raw.Value...)
	switch r.IntN(4) {
	case 0:
		b = b[:r.IntN(len(b))]
	case 1:
		b[r.IntN(len(b))] = byte(r.Uint32())
	case 2: // It occurs twice, so that lists have more entries.
		b = append(b, b...)
	default:
		resource.Raw, resource.State = nil, []string{"", "REQUESTED", "NACKED", "ACKED", "nonsense"}[r.IntN(5)]
		return
	}
	resource.Raw = &anypb.Any{TypeUrl: resource.Raw.TypeUrl, Value: b}
}
