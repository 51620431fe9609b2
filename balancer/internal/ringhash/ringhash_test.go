package ringhash_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/balancer/internal/ringhash"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a ring over a fake network, in a synctest bubble.
type fixture struct {
	network *lbtest.Network
	cc      *lbtest.ClientConn
	loop    *tree.Loop
	policy  *ringhash.Policy
}

func newFixture() *fixture {
	f := &fixture{network: lbtest.NewNetwork(), loop: tree.NewLoop(func() {})}
	f.cc = lbtest.NewClientConn(f.network)
	env := lbtest.NewEnv(f.loop, f.cc)
	f.loop.Do(func() { f.policy = ringhash.New(env, func() { f.cc.UpdateState(f.policy.State()) }) })
	return f
}

func (f *fixture) update(config string, endpoints ...xdsresource.Endpoint) {
	f.loop.Do(func() {
		f.policy.Update(endpoints, config)
		f.cc.UpdateState(f.policy.State())
	})
	synctest.Wait()
}

func (f *fixture) close() {
	f.loop.Do(f.policy.Close)
	synctest.Wait()
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

// after returns the endpoints from name on in the order of the ring.
func after(name string) []string {
	names := []string{"a", "b", "c"}
	hash := func(n string) uint64 { return xxhash.Sum64String(n+":1_0") - xxhash.Sum64String(name+":1_0") }
	for i := range names {
		for j := range names[:i] {
			if hash(names[i]) < hash(names[j]) {
				names[i], names[j] = names[j], names[i]
			}
		}
	}
	return names
}

func (f *fixture) expect(t *testing.T, when string, ctx context.Context, want string) {
	t.Helper()
	addr, err := f.cc.Pick(ctx)
	switch {
	case err == nil && addr != want+":1":
		t.Errorf("%s: the pick goes to %s, want %s", when, addr, want)
	case err != nil && !strings.Contains(err.Error(), want):
		t.Errorf("%s: the pick fails with %q, want %q", when, err, want)
	}
	synctest.Wait()
}

func (f *fixture) expectState(t *testing.T, when string, want connectivity.State, open ...string) {
	t.Helper()
	synctest.Wait()
	if got := f.cc.State().ConnectivityState; got != want {
		t.Errorf("%s: state is %v, want %v", when, got, want)
	}
	if got := strings.ReplaceAll(strings.Join(f.cc.Open(), " "), ":1", ""); got != strings.Join(open, " ") {
		t.Errorf("%s: connections to [%s], want %v", when, got, open)
	}
}

const waits = "no SubConn is available"

// gRFC A42: connections are made when an RPC asks for them, and only those.
func TestConnectsOnlyWhatItNeeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		f.update(small, three()...)
		f.expectState(t, "before any RPC", connectivity.Idle)
		f.expect(t, "first RPC", rpcTo("b"), waits)
		f.expectState(t, "after an RPC for b", connectivity.Ready, "b")
		for range 5 {
			f.expect(t, "b is connected", rpcTo("b"), "b")
		}
		f.expect(t, "first RPC for a", rpcTo("a"), waits)
		f.expectState(t, "after an RPC for a", connectivity.Ready, "a", "b")
		f.network.Set("b:1", lbtest.Silent)
		f.expectState(t, "b went idle", connectivity.Ready, "a", "b")
		f.network.Set("b:1", lbtest.Up)
		f.expect(t, "b is idle", rpcTo("b"), waits)
		f.expect(t, "b is back", rpcTo("b"), "b")
	})
}

// gRFC A61, "Ring Hash": what failed is skipped, in the order of the ring.
func TestPassesWhatFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		order := after("a")
		f.network.Set(order[0]+":1", lbtest.Refused)
		f.update(small, three()...)
		f.expect(t, "first", rpcTo(order[0]), waits)
		f.cc.Pick(rpcTo(order[1])) // if it is not connected yet
		synctest.Wait()
		f.expect(t, "the first one failed", rpcTo(order[0]), order[1])

		f.network.Set(order[0]+":1", lbtest.Up)
		time.Sleep(2 * lbtest.Backoff)
		f.expect(t, "mended", rpcTo(order[0]), order[0])

		for _, e := range order {
			f.network.Set(e+":1", lbtest.Refused)
		}
		time.Sleep(2 * lbtest.Backoff)
		synctest.Wait()
		for range 5 { // idle ones are tried one after the other
			f.cc.Pick(rpcTo(order[0]))
			f.cc.Pick(rpcTo(order[1]))
			f.cc.Pick(rpcTo(order[2]))
			time.Sleep(2 * lbtest.Backoff)
			synctest.Wait()
		}
		f.expectState(t, "all failed", connectivity.TransientFailure, "a", "b", "c")
		f.expect(t, "all failed", rpcTo(order[0]), "dial "+order[0]+":1: connection refused")
	})
}

// gRFC A42, "Aggregated Connectivity State", and A61: in CONNECTING and
// TRANSIENT_FAILURE it goes on connecting without any RPC.
func TestStateAndRecoveryWithoutRPCs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		for _, e := range []string{"a", "b", "c"} {
			f.network.Set(e+":1", lbtest.Silent)
		}
		f.update(small, three()...)
		f.expect(t, "one RPC", rpcTo("a"), waits)
		f.expectState(t, "a connects", connectivity.Connecting, "a")
		f.network.Set("a:1", lbtest.Refused)
		f.expectState(t, "one failed: the next is tried", connectivity.Connecting, "a", "b")
		f.network.Set("b:1", lbtest.Refused)
		f.expectState(t, "two failed", connectivity.TransientFailure, "a", "b", "c")
		f.network.Set("c:1", lbtest.Up)
		f.expectState(t, "one recovered", connectivity.Ready, "a", "b", "c")
	})
}

func TestOneEndpointThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		f.network.Set("a:1", lbtest.Refused)
		f.update("", to("a"))
		f.expect(t, "idle", rpcTo("a"), waits)
		f.expectState(t, "failed", connectivity.TransientFailure, "a")
		f.update("")
		f.expectState(t, "no endpoint", connectivity.TransientFailure)
		f.expect(t, "no endpoint", rpcTo("a"), "no usable endpoint")
		f.update(`{"minRingSize":0}`, to("a"))
		f.expect(t, "a bad configuration", rpcTo("a"), "minRingSize")
	})
}

func TestExitIdleConnectsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		f.update(small, three()...)
		f.loop.Do(f.policy.ExitIdle)
		f.expectState(t, "after ExitIdle", connectivity.Ready, "a")
	})
}

func TestEndpointsThatStayKeepTheirConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		f.update(small, three()...)
		for _, e := range []string{"a", "b", "c"} {
			f.expect(t, "first", rpcTo(e), waits)
		}
		subConn := func() balancer.SubConn {
			r, err := f.cc.State().Picker.Pick(balancer.PickInfo{Ctx: rpcTo("b")})
			if err != nil {
				t.Fatal(err)
			}
			return lbtest.Picked(r)
		}
		before := subConn()
		heavier := to("b")
		heavier.Weight = 9
		sick := to("c")
		sick.Health = xdsresource.HealthUnhealthy
		f.update(small, to("d"), sick, heavier)
		f.expectState(t, "after the update", connectivity.Ready, "b")
		if subConn() != before {
			t.Error("b was connected anew")
		}
	})
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
	t.Run("same values, same endpoint", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := newFixture()
			defer f.close()
			f.update(byHeader, three()...)
			for range 3 {
				f.cc.Pick(with("x", "y"))
				synctest.Wait()
			}
			one, err := f.cc.Pick(with("x", "y"))
			other, _ := f.cc.Pick(with("x,y"))
			if err != nil || one != other || len(f.cc.Open()) != 1 {
				t.Errorf("picks go to %q and %q (%v), connections %v", one, other, err, f.cc.Open())
			}
		})
	})
	t.Run("without the header any, preferably a connected one", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := newFixture()
			defer f.close()
			f.update(byHeader, three()...)
			f.expect(t, "nothing is connected", with(), waits)
			if open := f.cc.Open(); len(open) != 1 {
				t.Fatalf("one RPC opened %v", open)
			}
			// An endpoint that has but a hundredth of the ring is missed by 2,000
			// RPCs once in 500 million runs.
			for i := 0; i < 2000 && len(f.cc.Open()) < 3; i++ {
				if _, err := f.cc.Pick(with("")); err != nil {
					t.Fatalf("RPC %d had to wait although an endpoint is connected: %v", i, err)
				}
				synctest.Wait()
			}
			if open := f.cc.Open(); len(open) != 3 {
				t.Errorf("after many RPCs %v are connected, want all", open)
			}
		})
	})
}

func TestRPCWithoutDecision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		defer f.close()
		f.update(small, three()...)
		f.expect(t, "no Decision", context.Background(), "dynxds interceptors")
	})
}

func TestPickAllocatesNothing(t *testing.T) {
	f := newFixture()
	defer f.loop.Do(f.policy.Close)
	var all []xdsresource.Endpoint
	for i := range 100 {
		all = append(all, to(fmt.Sprint(i)))
	}
	f.loop.Do(func() { f.policy.Update(all, ""); f.cc.UpdateState(f.policy.State()) })
	ctx := rpcTo("7")
	f.cc.Pick(ctx)
	if err := f.cc.Await(t.Context(), connectivity.Ready); err != nil {
		t.Fatal(err)
	}
	picker := f.cc.State().Picker
	if n := testing.AllocsPerRun(100, func() {
		if _, err := picker.Pick(balancer.PickInfo{Ctx: ctx}); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a pick makes %v allocations", n)
	}
}
