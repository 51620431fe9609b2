package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/controlplane"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// shards computes a resource for the shard that the constraints require.
type shards struct {
	mu         sync.Mutex
	generation int
	calls      atomic.Int32
}

func (s *shards) next() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation++
}

func (s *shards) compute(_ context.Context, d *controlplane.Demand) (*controlplane.Resource, error) {
	s.calls.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	required, _ := d.Constraints.Parameters()
	switch d.Name {
	case "missing":
		return nil, nil
	case "denied":
		return nil, status.Error(codes.PermissionDenied, "not yours")
	case "broken":
		return nil, errors.New("no status")
	case "panics":
		panic("a fault in the program")
	case "another":
		return controlplane.NewResource(&discoverypb.Resource{Name: "something else", Resource: variant(eds, "")})
	}
	return controlplane.NewResource(&discoverypb.Resource{
		Name: d.Name, DynamicParameters: required.Map(),
		Resource: variant(eds, fmt.Sprintf("%s of %v, generation %d", d.Name, required, s.generation)),
	})
}

// TP2's title: dynamically generated, cacheable resources.
func TestTP2_ComputedForEachNameAndConstraints(t *testing.T) {
	eachVariant(t, controlplane.Options{NotFoundErrors: true}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		f := new(shards)
		s.store.Compute(eds, f.compute)
		one, two := open("one"), open("two")
		a := one.subscribe(eds, "a", exactly(t, "shard", "1"))
		b := two.subscribe(eds, "a", exactly(t, "shard", "2"))
		same := two.subscribe(eds, "a", exactly(t, "shard", "1"))
		until(t, one, a, "a of {shard=1}, generation 0")
		until(t, two, b, "a of {shard=2}, generation 0")
		until(t, two, same, "a of {shard=1}, generation 0")
		if got := f.calls.Load(); got != 2 {
			t.Errorf("%d calls for two different constraints", got)
		}
		f.next()
		s.store.Recompute(eds, "b") // has no subscriber
		s.store.Recompute(cds, "")  // is not computed
		s.store.Recompute(eds, "a")
		until(t, one, a, "a of {shard=1}, generation 1")
		until(t, two, b, "a of {shard=2}, generation 1")

		// The same result is not sent again.
		before := one.responses[eds]
		s.store.Recompute(eds, "")
		marker := one.subscribe(eds, "marker", unconstrained)
		until(t, one, marker, "marker of {}, generation 1")
		if isDelta(one) && one.responses[eds] != before+1 {
			t.Errorf("%d responses, want one", one.responses[eds]-before)
		}

		for name, want := range map[string]string{
			"missing": nothing,
			"denied":  "PermissionDenied: not yours",
			"broken":  "Unknown: no status",
			"panics":  `Internal: the control plane failed to compute ` + eds + ` "panics"; its log has the reason`,
			"another": `Internal: store update: answer "another": the resource has the name "something else"`,
		} {
			if name == "missing" && !isDelta(two) {
				want = `NotFound: the control plane has no resource "missing" of type ` + eds
			}
			until(t, two, two.subscribe(eds, name, unconstrained), want)
		}
	})
}

// A computation that takes its time is not in the way of the next one, which comes later.
func TestComputationsRunConcurrently(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		t.Skip("there is one CPU, so there is one computation at a time")
	}
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		begun, done := make(chan struct{}), make(chan struct{})
		s.store.Compute(eds, func(_ context.Context, d *controlplane.Demand) (*controlplane.Resource, error) {
			if d.Name == "slow" {
				close(begun)
				<-done
			}
			return controlplane.NewResource(&discoverypb.Resource{Name: d.Name, Resource: variant(eds, d.Name)})
		})
		finish := sync.OnceFunc(func() { close(done) })
		t.Cleanup(finish)
		one, two := open("one"), open("two")
		slow := one.subscribe(eds, "slow", unconstrained)
		<-begun
		until(t, two, two.subscribe(eds, "quick", unconstrained), "quick")
		finish()
		until(t, one, slow, "slow")
	})
}

// until takes responses until the client has what it should.
func until(t *testing.T, c *tp2Client, h *holding, want string) {
	t.Helper()
	for ctx := testContext(t); h.String() != want; {
		if ctx.Err() != nil {
			t.Fatalf("%q with %v: got %q, want %q", h.ask.name, h.ask.constraints, h.String(), want)
		}
		c.settle()
	}
}

// A DPDS resource, and any other that must not be cached, is computed for each client.
func TestTP2_ComputedForEachClientIfNotCacheable(t *testing.T) {
	eachVariant(t, controlplane.Options{}, func(t *testing.T, s *testServer, open func(node string) *tp2Client) {
		compute := func(_ context.Context, d *controlplane.Demand) (*controlplane.Resource, error) {
			return controlplane.NewResource(&discoverypb.Resource{
				Name: d.Name, Resource: variant(d.TypeURL, "for "+d.Node.GetId()),
				CacheControl: &discoverypb.Resource_CacheControl{DoNotCache: true},
			})
		}
		s.store.Compute(dynparam.MapTypeURL, compute)
		s.store.Compute(eds, compute)
		for _, node := range []string{"one", "two"} {
			c := open(node)
			until(t, c, c.subscribe(dynparam.MapTypeURL, dpdsName, unconstrained), "for "+node)
			until(t, c, c.subscribe(eds, "a", unconstrained), "for "+node)
		}
	})
}

// Collections have the members that are stored.
func TestStore_ComputeLeavesCollections(t *testing.T) {
	t.Parallel()
	const glob, member = "xdstp://x/t/g/*", "xdstp://x/t/g/m"
	s, f := startServer(t), new(shards)
	s.store.Compute(eds, f.compute)
	s.update(t, func(tx *controlplane.Tx) { tx.SetNamed(member, nil, variant(eds, "stored")) })
	c := s.openDelta(t)
	c.subscribe(eds, glob)
	c.want(eds, member)
	if f.calls.Load() != 0 {
		t.Error("the collection was computed")
	}
}

// The context ends when the last client has left, and a later result is dropped.
func TestStore_ComputeEndsWithTheLastClient(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	entered, left := make(chan struct{}), make(chan struct{})
	s.store.Compute(eds, func(ctx context.Context, d *controlplane.Demand) (*controlplane.Resource, error) {
		entered <- struct{}{}
		<-ctx.Done()
		left <- struct{}{}
		return given(t, "1", d.Name, assignment(d.Name)), ctx.Err()
	})
	c := s.open(t)
	c.subscribe(eds, "a")
	receive(t, entered)
	c.subscribe(eds)
	receive(t, left)
}

// One client subscribes to very many names, and leaves. The server keeps nothing of them.
func TestStore_ComputedResourcesGoWithTheirClients(t *testing.T) {
	const names = 20_000
	s, f := startServer(t), new(shards)
	s.store.Compute(eds, f.compute)
	s.store.Compute(cds, f.compute)
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	c := s.openDelta(t)
	for i := 0; i < names; i += 5000 {
		var list []string
		for j := range 5000 {
			list = append(list, fmt.Sprintf("name-%d", i+j))
		}
		c.subscribe(eds, list...)
	}
	for got := 0; got < names; {
		got += len(c.next().values)
	}
	held := heap() - before
	c.cancel()
	for ctx := testContext(t); len(s.control.Clients()) > 0 || heap()-before > held/10; {
		if ctx.Err() != nil {
			t.Fatalf("%d bytes are left of %d", heap()-before, held)
		}
		runtime.Gosched()
	}
}
