package perendpoint_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/perendpoint"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a Set over a fake network.
type fixture struct {
	*lbtest.Bed
	set     *perendpoint.Set
	changes int
}

func newFixture(t testing.TB) *fixture {
	f := &fixture{Bed: lbtest.NewBed(t)}
	f.set = perendpoint.New(f.Env, func(*perendpoint.Member) { f.changes++ })
	t.Cleanup(func() { f.Loop.Do(f.set.Close) })
	return f
}

func test(t *testing.T, run func(*testing.T, *fixture)) { subtest(run)(t) }

func subtest(run func(*testing.T, *fixture)) func(*testing.T) { return lbtest.Subtest(newFixture, run) }

// on runs fn on the loop, and waits for what follows from it.
func (f *fixture) on(fn func()) {
	f.Loop.Do(fn)
	synctest.Wait()
}

func (f *fixture) update(endpoints ...xdsresource.Endpoint) {
	f.on(func() { f.set.Update(endpoints) })
}

func (f *fixture) connectAll() {
	f.on(func() {
		for _, m := range f.set.Members() {
			m.Connect()
		}
	})
}

func at(addrs ...string) xdsresource.Endpoint {
	return xdsresource.Endpoint{Address: addrs[0], Additional: addrs[1:], Weight: 1}
}

func (f *fixture) expectMembers(when string, want ...string) {
	f.T.Helper()
	got := []string{}
	for _, m := range f.set.Members() {
		got = append(got, m.Endpoint().Address+" "+m.State().ConnectivityState.String())
	}
	xdstest.Equal(f.T, when+": members", append([]string{}, want...), got)
}

// subConn is the connection of the only member.
func (f *fixture) subConn() *lbtest.SubConn {
	f.T.Helper()
	result, err := f.set.Members()[0].State().Picker.Pick(balancer.PickInfo{})
	xdstest.NoError(f.T, err)
	return lbtest.Picked(result)
}

// gRFC A27: endpoints that are neither HEALTHY nor UNKNOWN get no RPCs.
func TestOnlyUsableEndpointsAreMembers(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		sick := at("sick:1")
		sick.Health = xdsresource.HealthUnhealthy
		f.update(sick, at("a:1"), at("a:1"))
		f.expectMembers("one sick, one twice", "a:1 IDLE")
		f.connectAll()
		sick.Address = "a:1"
		f.update(sick)
		f.expectMembers("the last one is sick")
		f.ExpectOpen("the last one is sick")
	})
}

func TestEndpointsKeepTheirConnections(t *testing.T) {
	t.Parallel()
	heavier := at("a:1", "b:1")
	heavier.Weight = 7
	for _, tc := range []struct {
		given    string
		endpoint xdsresource.Endpoint
		kept     bool
	}{
		{"the same", at("a:1", "b:1"), true},
		{"another weight", heavier, true},
		{`the same addresses in another order (gRFC A61, "Address List Updates in Petiole Policies")`, at("b:1", "a:1"), true},
		{"one address less (gRFC A61)", at("a:1"), false},
		{"one address more (gRFC A61)", at("a:1", "b:1", "c:1"), false},
	} {
		t.Run(tc.given, subtest(func(t *testing.T, f *fixture) {
			f.update(at("a:1", "b:1"))
			f.connectAll()
			before := f.subConn()
			f.update(tc.endpoint)
			if got := f.set.Members()[0].Endpoint(); !got.Equal(tc.endpoint) {
				t.Errorf("the member's endpoint is %+v, want %+v", got, tc.endpoint)
			}
			if !tc.kept {
				f.expectMembers("a new endpoint", tc.endpoint.Address+" IDLE")
				f.ExpectOpen("a new endpoint")
				return
			}
			if f.subConn() != before {
				t.Error("the endpoint was connected again")
			}
		}))
	}
}
