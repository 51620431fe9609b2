package controlplane_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
)

// modelTypes are a type with wildcard and one without.
var modelTypes = []string{cds, rds}

// modelNames are the names that the store and the clients choose from.
var modelNames = func() []string {
	var names []string
	for i := range 6 {
		names = append(names, fmt.Sprintf("n%d", i))
	}
	for _, dir := range []string{"d", "d/e"} {
		for i := range 3 {
			names = append(names, fmt.Sprintf("xdstp://auth/T/%s/x%d", dir, i), fmt.Sprintf("xdstp://auth/T/%s/x%d?a=1", dir, i))
		}
	}
	return names
}()

var modelGlobs = []string{"xdstp://auth/T/d/*", "xdstp://auth/T/d/*?a=1", "xdstp://auth/T/d/e/*"}

// The property that all else is for: whatever happens to the store, to the
// subscriptions and to the streams, and in whatever order it reaches whom, a
// simple client over SotW and one over delta end up with exactly what the store
// has for them.
func TestServer_EveryClientConverges(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, controlplane.Options{NotFoundErrors: true, MaxResponseSize: 200})
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			clients := []*modelClient{
				newModelClient(ctx, t, s, seed, newModelSotW), newModelClient(ctx, t, s, seed+100, newModelSotW),
				newModelClient(ctx, t, s, seed, newModelDelta), newModelClient(ctx, t, s, seed+100, newModelDelta),
			}
			rng := rand.New(rand.NewPCG(seed, 0))
			for range 15 {
				var actors sync.WaitGroup
				for _, c := range clients {
					actors.Go(func() { c.act(c.rng.IntN(8)) })
				}
				actors.Go(func() { changeStore(t, s.store, rng) })
				actors.Wait()
				for _, c := range clients {
					c.converge(s.store)
				}
				if t.Failed() {
					break
				}
			}
			cancel()
			for _, c := range clients {
				c.readers.Wait()
			}
		})
	}
}

func changeStore(t *testing.T, store *controlplane.Store, rng *rand.Rand) {
	for range rng.IntN(8) {
		if _, err := store.Update(func(tx *controlplane.Tx) {
			for range rng.IntN(3) + 1 {
				changeOne(tx, rng)
			}
		}); err != nil {
			t.Error(err)
		}
	}
}

func changeOne(tx *controlplane.Tx, rng *rand.Rand) {
	name, variant := pick(rng, modelNames), fmt.Sprint(rng.IntN(4))
	switch rng.IntN(8) {
	case 0, 1:
		tx.Delete(cds, name)
		tx.Delete(rds, name)
	case 2:
		tx.SetError(pick(rng, modelTypes), name, status.New(pick(rng, []codes.Code{codes.NotFound, codes.Internal}), variant))
	case 3:
		tx.SetError(pick(rng, modelTypes), pick(rng, modelGlobs), status.New(codes.Internal, variant))
	case 4:
		tx.Delete(pick(rng, modelTypes), pick(rng, modelGlobs))
	default:
		tx.Set(changed(name, variant), xdsmsg.RouteConfig(name, variant))
	}
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

// act changes the client's mind or breaks its stream, n times.
func (c *modelClient) act(n int) {
	for range n {
		if c.rng.IntN(6) == 0 {
			c.reconnect()
			continue
		}
		c.mu.Lock()
		c.protocol.change(c, pick(c.rng, modelTypes))
		c.mu.Unlock()
	}
}

// converge waits until the client has what the store has for it.
func (c *modelClient) converge(store *controlplane.Store) {
	for {
		c.mu.Lock()
		diff := ""
		for typeURL, mt := range c.types {
			diff += cmp.Diff(mt.expected(store, typeURL), mt.wantedState())
		}
		c.mu.Unlock()
		if diff == "" {
			return
		}
		select {
		case <-c.learned:
		case <-c.ctx.Done():
			c.t.Errorf("%T does not converge (-store +client):\n%s", c.protocol, diff)
			return
		}
	}
}

// expected is what the client has to know.
func (mt *modelType) expected(store *controlplane.Store, typeURL string) map[string]string {
	want := map[string]string{}
	for _, name := range modelNames {
		byGlob := mt.inGlob(name, func(glob string) bool { return store.Error(typeURL, glob) == nil })
		named := mt.names[name]
		r, err := store.Get(typeURL, name), store.Error(typeURL, name)
		switch {
		case r != nil && (named || byGlob || mt.wildcard):
			want[name] = string(r.Any().GetValue())
		case err != nil && (named || byGlob):
			want[name] = errorText(err.Code(), err.Message())
		}
	}
	return want
}

func errorText(code codes.Code, message string) string {
	return fmt.Sprintf("error %v %s", code, message)
}
