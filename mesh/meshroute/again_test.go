package meshroute

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	sessionpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy/policytest"
)

// changeService returns another service of the same name.
func changeService(r *rand.Rand, s *Service) *Service {
	changed := *s
	changed.Endpoints = slices.Clone(s.Endpoints)
	switch r.IntN(11) {
	case 0:
		changed.TLS = &TLS{Identity: "id", Roots: "ca", SANs: exactSAN("other")}
	case 1:
		changed.TLS = nil
	case 2:
		changed.Route = &routepb.RouteAction{MaxStreamDuration: &routepb.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(1e9 * 5)}}
	case 3:
		changed.Endpoints = append(changed.Endpoints, Endpoint{Address: fmt.Sprintf("host-%d:1", r.IntN(3))})
	case 4:
		changed.Endpoints = nil
	case 5:
		changed.Aliases = []Alias{{Name: policytest.Pick(r, []string{s.Name + "-alias", "no name"}), Namespace: policytest.Pick(r, []string{"", "x"})}}
	case 6:
		changed.LocalityWeights = map[Locality]uint32{{Zone: "z"}: 3}
	case 7:
		changed.Endpoints = append(changed.Endpoints, Endpoint{Address: fmt.Sprintf("10.0.0.%d:1", 100+r.IntN(3)), ForZones: []string{"z"}, Locality: Locality{Zone: "z"}})
	case 8:
		changed.Endpoints = append(changed.Endpoints, Endpoint{Address: "no port"})
	case 9:
		changed.Filters = []*hcmpb.HttpFilter{httpFilter(fmt.Sprint("sessions-", r.IntN(2)), true, &sessionpb.StatefulSession{})}
	default:
		changed.Endpoints = append(changed.Endpoints, Endpoint{Address: fmt.Sprintf("10.0.0.%d:1", 100+r.IntN(3))})
	}
	seen := map[string]bool{}
	changed.Endpoints = slices.DeleteFunc(changed.Endpoints, func(e Endpoint) bool {
		twice := seen[e.Address]
		seen[e.Address] = true
		return twice
	})
	return &changed
}

// A mesh that is built after a change of some services is the same as one that is built from nothing, and so is what it says of
// the change.
func TestBuildAgain(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 60 {
		in := randomInput(r)
		in.Separate = r.IntN(2) == 0
		m := mustBuild(t, in, nil)
		sameChanges(t, nothing, m)
		for range 12 {
			next := in
			next.Services = slices.Clone(in.Services)
			for i, s := range next.Services {
				if r.IntN(2) == 0 {
					next.Services[i] = changeService(r, s)
				}
			}
			if n := len(next.Services); n > 0 && r.IntN(4) == 0 { // one comes twice
				next.Services = slices.Insert(next.Services, r.IntN(n), policytest.Pick(r, []*Service{next.Services[r.IntN(n)], changeService(r, next.Services[r.IntN(n)])}))
			}
			if n := len(next.Services); n > 0 && r.IntN(3) == 0 {
				at := r.IntN(n)
				next.Services = slices.Delete(next.Services, at, at+1)
			}
			if n := r.IntN(8); n < 3 { // some policies change, come or go
				next.Policies = slices.Concat(policytest.Policies(r, n), next.Policies[min(n+r.IntN(2), len(next.Policies)):])
			}
			want, wantErr := Build(next, nil)
			got, err := Build(next, m)
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("got the error %v, want %v", err, wantErr)
			}
			if err != nil {
				continue
			}
			sameMesh(t, want, got)
			sameChanges(t, m, got)
			in, m = next, got
		}
	}
}

func sameMesh(t *testing.T, want, got *Mesh) {
	t.Helper()
	a, b := want.Resources(), got.Resources()
	if !slices.EqualFunc(a, b, func(a, b *Resource) bool { return a.Key() == b.Key() && a.Equal(b) && a.Service == b.Service }) {
		t.Fatalf("the resources differ:\n%v\nwant\n%v", b, a)
	}
	xdstest.Equal(t, "keys", want.Keys(), got.Keys())
	xdstest.Equal(t, "reports", want.Reports(), got.Reports())
	for _, c := range policytest.Clients()[:40] {
		for _, name := range policytest.Services {
			x, y := want.Routes(c, name), got.Routes(c, name)
			if (x == nil) != (y == nil) || x != nil && !x.Equal(y) {
				t.Fatalf("%v gets other routes to %s", c, name)
			}
		}
	}
}

// sameChanges applies what a mesh says of a change.
func sameChanges(t *testing.T, before, after *Mesh) {
	t.Helper()
	byKey := func(m *Mesh) map[string]*Resource {
		all := make(map[string]*Resource)
		for _, r := range m.Resources() {
			all[r.Key()] = r
		}
		return all
	}
	has, want := byKey(before), byKey(after)
	changed, removed := after.Changes(before)
	for _, r := range removed {
		delete(has, r.Key())
	}
	for _, r := range changed {
		has[r.Key()] = r
	}
	// What stays the same is not copied.
	if !maps.EqualFunc(has, want, func(a, b *Resource) bool { return a == b || a.Service != b.Service && a.Equal(b) }) {
		t.Fatalf("the changes %v and removals %v do not lead from one mesh to the other", changed, removed)
	}
}
