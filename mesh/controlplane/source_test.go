package controlplane_test

import (
	"slices"
	"strings"
	"testing"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// source records the demands that a store notifies it of.
type source struct {
	t     *testing.T
	store *controlplane.Store
	begun chan *controlplane.Demand
	ended chan *controlplane.Demand
}

// newSource makes a source of the types of a store.
func newSource(t *testing.T, store *controlplane.Store, typeURLs ...string) *source {
	s := &source{t, store, make(chan *controlplane.Demand, 1000), make(chan *controlplane.Demand, 1000)}
	for _, typeURL := range typeURLs {
		store.OnDemand(typeURL, func(begun, ended []*controlplane.Demand) {
			for _, d := range begun {
				s.begun <- d
			}
			for _, d := range ended {
				s.ended <- d
			}
		})
	}
	return s
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	ctx := testContext(t)
	select {
	case v := <-from:
		return v
	case <-ctx.Done():
		t.Fatal("no demand")
		panic("unreachable")
	}
}

// wantBegun returns the next demands, ordered by name.
func (s *source) wantBegun(names ...string) []*controlplane.Demand {
	s.t.Helper()
	var all []*controlplane.Demand
	for range names {
		all = append(all, receive(s.t, s.begun))
	}
	slices.SortFunc(all, func(a, b *controlplane.Demand) int {
		return strings.Compare(a.Name+a.Constraints.Key(), b.Name+b.Constraints.Key())
	})
	for i, d := range all {
		if d.Name != names[i] {
			s.t.Fatalf("demand for %q, want %q", d.Name, names[i])
		}
	}
	return all
}

func (s *source) wantEnded(d *controlplane.Demand) {
	s.t.Helper()
	if got := receive(s.t, s.ended); got != d {
		s.t.Fatalf("the demand for %q ended, want %q", got.Name, d.Name)
	}
}

func (s *source) update(change func(*controlplane.Tx)) {
	s.t.Helper()
	if _, err := s.store.Update(change); err != nil {
		s.t.Fatal(err)
	}
}

func (s *source) answer(d *controlplane.Demand, r *controlplane.Resource) {
	s.t.Helper()
	s.update(func(tx *controlplane.Tx) { tx.Answer(d, r) })
}

func (s *source) fail(d *controlplane.Demand, code codes.Code, message string) {
	s.t.Helper()
	s.update(func(tx *controlplane.Tx) { tx.AnswerError(d, status.New(code, message)) })
}

func assignment(name string) *endpointpb.ClusterLoadAssignment {
	return &endpointpb.ClusterLoadAssignment{ClusterName: name}
}

// given is a resource with a version of its own.
func given(t testing.TB, version, name string, m proto.Message, pairs ...string) *controlplane.Resource {
	t.Helper()
	packed, ok := m.(*anypb.Any)
	if !ok {
		packed = new(anypb.Any)
		xdstest.NoError(t, packed.MarshalFrom(m))
	}
	r, err := controlplane.NewResource(&discoverypb.Resource{
		Name: name, Version: version, Resource: packed, DynamicParameters: parameters(pairs...),
	})
	xdstest.NoError(t, err)
	return r
}
