package ringhash_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/ringhash"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a ring over a fake network.
type fixture struct {
	*lbtest.Fixture[*ringhash.Policy]
}

func newFixture(t testing.TB) *fixture {
	return &fixture{lbtest.NewFixture(t, ringhash.New)}
}

func test(t *testing.T, run func(*testing.T, *fixture)) { subtest(run)(t) }

func subtest(run func(*testing.T, *fixture)) func(*testing.T) { return lbtest.Subtest(newFixture, run) }

func (f *fixture) update(config string, endpoints ...xdsresource.Endpoint) {
	f.Update(func() { f.Policy.Update(endpoints, config) })
}

// to is the endpoint "name:1", of one entry on a ring of a small size.
func to(name string) xdsresource.Endpoint {
	return xdsresource.Endpoint{Address: name + ":1", Weight: 1}
}

// small is a ring with one entry for each of three endpoints.
const small = `{"minRingSize":3,"maxRingSize":3}`

// three are a, b, c in the order of the ring, starting anywhere.
func three() []xdsresource.Endpoint { return []xdsresource.Endpoint{to("a"), to("b"), to("c")} }

type fixed uint64

func (fixed) Origin() (context.Context, string, string) { return context.Background(), "", "" }

func (f fixed) Hash() (uint64, bool) { return uint64(f), true }

// rpcTo is an RPC whose hash is that of the endpoint's place.
func rpcTo(name string) context.Context {
	return &decision.Decision{
		Context: context.Background(),
		Extra:   &decision.Extra{RPC: fixed(xxhash.Sum64String(name + ":1_0"))},
	}
}

// expect picks once, and waits for what the pick connects. want is the name of an endpoint, or
// a part of the error.
func (f *fixture) expect(when string, ctx context.Context, want string) {
	f.T.Helper()
	if len(want) == 1 {
		want += ":1"
	}
	f.ExpectPick(ctx, when, want)
	synctest.Wait()
}

// gRFC A76: the hash of a header in place of the route's.
func TestRequestHashHeader(t *testing.T) {
	t.Parallel()
	const byHeader = `{"minRingSize":3,"maxRingSize":3,"requestHashHeader":"user"}`
	with := func(values ...string) context.Context {
		md := metadata.MD{}
		md.Append("user", values...)
		return metadata.NewOutgoingContext(context.Background(), md)
	}
	t.Run("same values, same endpoint", subtest(func(t *testing.T, f *fixture) {
		f.update(byHeader, three()...)
		for range 3 {
			f.CC.Pick(with("x", "y"))
			synctest.Wait()
		}
		one, err := f.CC.Pick(with("x", "y"))
		other, _ := f.CC.Pick(with("x,y"))
		if err != nil || one != other || len(f.CC.Open()) != 1 {
			t.Errorf("picks go to %q and %q (%v), connections %v", one, other, err, f.CC.Open())
		}
	}))
	t.Run("without the header any, preferably a connected one", subtest(func(t *testing.T, f *fixture) {
		f.update(byHeader, three()...)
		f.expect("nothing is connected", with(), lbtest.Waits)
		if open := f.CC.Open(); len(open) != 1 {
			t.Fatalf("one RPC opened %v", open)
		}
		// 2,000 RPCs miss an endpoint with only a hundredth of the ring once in 500 million
		// runs.
		for i := 0; i < 2000 && len(f.CC.Open()) < 3; i++ {
			if _, err := f.CC.Pick(with("")); err != nil {
				t.Fatalf("RPC %d had to wait although an endpoint is connected: %v", i, err)
			}
			synctest.Wait()
		}
		if open := f.CC.Open(); len(open) != 3 {
			t.Errorf("after many RPCs %v are connected, want all", open)
		}
	}))
}

func TestRPCWithoutDecision(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.update(small, three()...)
		f.expect("no Decision", context.Background(), "dynxds interceptors")
	})
}

func TestPickAllocatesNothing(t *testing.T) {
	f := newFixture(t)
	var all []xdsresource.Endpoint
	for i := range 100 {
		all = append(all, to(fmt.Sprint(i)))
	}
	f.Loop.Do(func() { f.Policy.Update(all, ""); f.CC.UpdateState(f.Policy.State()) })
	ctx := rpcTo("7")
	f.CC.Pick(ctx)
	xdstest.NoError(t, f.CC.Await(t.Context(), connectivity.Ready))
	picker := f.CC.State().Picker
	if n := testing.AllocsPerRun(100, func() {
		if _, err := picker.Pick(balancer.PickInfo{Ctx: ctx}); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a pick makes %v allocations", n)
	}
}
