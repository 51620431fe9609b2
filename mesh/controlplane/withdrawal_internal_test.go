package controlplane

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// However many resources are deleted, a bounded number is kept: the oldest are removed.
func TestWithdrawals_AreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := NewStore()
		p := newTestSotW(store)
		p.withdrawals.delay = time.Minute
		mustHandle(t, p, request(typeurl.Cluster))
		const batch = 4000
		for round := range 5 {
			update(t, store, func(tx *Tx) {
				for i := range batch {
					tx.Set(&clusterpb.Cluster{Name: fmt.Sprint(round, ".", i)})
				}
			})
			discard(t, p)
			update(t, store, func(tx *Tx) { tx.DeleteAll(typeurl.Cluster) })
			discard(t, p)
		}
		sub := p.subs[typeurl.Cluster]
		if len(sub.kept) != maxWithdrawals || len(p.withdrawals.queue) != maxWithdrawals || len(p.clusters) != maxWithdrawals {
			t.Errorf("%d are kept, %d are in the queue, %d were sent, want %d each", len(sub.kept), len(p.withdrawals.queue), len(p.clusters), maxWithdrawals)
		}
		time.Sleep(time.Minute)
		p.endWithdrawals()
		discard(t, p)
		if len(sub.kept) > 0 || len(p.withdrawals.queue) > 0 || p.withdrawals.bytes != 0 || len(p.clusters) > 0 {
			t.Errorf("after the delay %d are kept, %d of %d bytes are in the queue, %d are sent", len(sub.kept), len(p.withdrawals.queue), p.withdrawals.bytes, len(p.clusters))
		}
		store.release(p.stream)
	})
}

func TestWithdrawals_AreBoundedInBytes(t *testing.T) {
	t.Parallel()
	store := NewStore()
	p := newTestDelta(store)
	p.withdrawals.delay = time.Hour
	handleDelta(t, p, &discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Cluster})
	large := make([]byte, 1<<20)
	for i := range 100 {
		name := fmt.Sprint(i)
		update(t, store, func(tx *Tx) { tx.Set(&clusterpb.Cluster{Name: name, AltStatName: string(large)}) })
		pushed(t, p)
		update(t, store, func(tx *Tx) { tx.Delete(typeurl.Cluster, name) })
		pushed(t, p)
		if p.withdrawals.bytes > maxWithdrawalBytes {
			t.Fatalf("%d bytes are kept", p.withdrawals.bytes)
		}
	}
	if kept := len(p.subs[typeurl.Cluster].kept); kept < 20 || kept > 32 {
		t.Errorf("%d resources of 1 MiB are kept, want somewhat less than 32", kept)
	}
	store.release(p.stream)
}

// A resource that was deleted before it was sent is reported as removed, and not kept.
func TestWithdrawals_NotOfWhatWasNeverSent(t *testing.T) {
	t.Parallel()
	set := func(t *testing.T, store *Store) {
		update(t, store, func(tx *Tx) { tx.Set(&clusterpb.Cluster{Name: "a"}, &routepb.RouteConfiguration{Name: "a"}) })
	}
	end := func(t *testing.T, store *Store) {
		update(t, store, func(tx *Tx) { tx.Delete(typeurl.Cluster, "a"); tx.Delete(typeurl.RouteConfiguration, "a") })
	}
	for _, wildcard := range []bool{false, true} {
		store := NewStore()
		sotw, delta := newTestSotW(store), newTestDelta(store)
		sotw.withdrawals.delay, delta.withdrawals.delay = time.Hour, time.Hour
		names := []string{"a"}
		if wildcard {
			names = nil
		}
		ask := func(names ...string) {
			mustHandle(t, sotw, request(typeurl.Cluster, names...))
			mustHandle(t, sotw, request(typeurl.RouteConfiguration, names...))
			handleDelta(t, delta, &discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Cluster, ResourceNamesSubscribe: names})
			handleDelta(t, delta, &discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.RouteConfiguration, ResourceNamesSubscribe: names})
		}
		check := func(when string) {
			t.Helper()
			resources := discard(t, sotw)
			for _, r := range pushed(t, delta) {
				resources += len(r.GetResources())
			}
			if resources > 0 {
				t.Errorf("wildcard %v, %s: %d resources are sent that do not exist", wildcard, when, resources)
			}
			for _, s := range []*stream{sotw.stream, delta.stream} {
				for typeURL, sub := range s.subs {
					if len(sub.kept) > 0 {
						t.Errorf("wildcard %v, %s: %v keeps %v of %s", wildcard, when, s.protocol, sub.kept, typeURL)
					}
				}
			}
		}
		set(t, store)
		ask(names...)
		end(t, store)
		check("created before the subscription")
		set(t, store)
		end(t, store)
		check("created after the subscription")
		store.release(sotw.stream)
		store.release(delta.stream)
	}
}

// What is deleted just after a client has subscribed to many names stays in the responses until the delay has passed: the first one
// has all of them, though errors of the rest are looked for later.
func TestWithdrawals_OfTheRestOfManyNames(t *testing.T) {
	t.Parallel()
	store := NewStore()
	store.pace.due = 1
	p := newTestSotW(store)
	p.withdrawals.delay = time.Hour
	update(t, store, func(tx *Tx) { tx.Set(&clusterpb.Cluster{Name: "a"}, &clusterpb.Cluster{Name: "b"}) })
	mustHandle(t, p, request(typeurl.Cluster, "a", "b"))
	discard(t, p)
	update(t, store, func(tx *Tx) { tx.DeleteAll(typeurl.Cluster) })
	for len(p.dueSubs) > 0 {
		discard(t, p)
	}
	if len(p.clusters) != 2 {
		t.Errorf("the last response has %d Clusters, want both that were deleted", len(p.clusters))
	}
	store.release(p.stream)
}

// In any order of updates, requests and pushes, a client has its resources at least as long
// as the store, and no longer once the delay has passed.
func TestWithdrawals_Converge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(200) {
			w := newWithdrawalModel(seed)
			for range 60 {
				w.step(t)
				w.check(t, seed, false)
			}
			time.Sleep(w.sotw.withdrawals.delay)
			w.sotw.endWithdrawals()
			w.delta.endWithdrawals()
			w.push(t)
			w.check(t, seed, true)
			if t.Failed() {
				return
			}
			w.store.release(w.sotw.stream)
			w.store.release(w.delta.stream)
		}
	})
}

// withdrawalModel is a store, a SotW and a delta client of two types, and what they have.
type withdrawalModel struct {
	rand  *rand.Rand
	store *Store
	sotw  *sotw
	delta *delta
	// wanted are subscribed to, has is what each client has, by type and name.
	wanted            map[slotKey]bool
	sotwHas, deltaHas map[slotKey]bool
	// synced: the clients were sent all that is due.
	synced bool
}

var modelTypes = []string{typeurl.Cluster, typeurl.RouteConfiguration}

const modelNames = 4

func newWithdrawalModel(seed uint64) *withdrawalModel {
	store := NewStore()
	w := &withdrawalModel{
		rand: rand.New(rand.NewPCG(seed, 1)), store: store, sotw: newTestSotW(store), delta: newTestDelta(store),
		wanted: map[slotKey]bool{}, sotwHas: map[slotKey]bool{}, deltaHas: map[slotKey]bool{},
	}
	w.sotw.withdrawals.delay, w.delta.withdrawals.delay = time.Minute, time.Minute
	return w
}

func (w *withdrawalModel) step(t *testing.T) {
	t.Helper()
	typeURL := modelTypes[w.rand.IntN(2)]
	key := slotKey{typeURL, keyOf(fmt.Sprint(w.rand.IntN(modelNames)))}
	name := key.name.leaf
	w.synced = false
	switch w.rand.IntN(8) {
	case 0, 1:
		update(t, w.store, func(tx *Tx) {
			if typeURL == typeurl.Cluster {
				tx.Set(&clusterpb.Cluster{Name: name, AltStatName: fmt.Sprint(w.rand.IntN(2))})
			} else {
				tx.Set(&routepb.RouteConfiguration{Name: name})
			}
		})
	case 2, 3:
		update(t, w.store, func(tx *Tx) { tx.Delete(typeURL, name) })
	case 4:
		update(t, w.store, func(tx *Tx) { tx.SetError(typeURL, name, status.New(codes.PermissionDenied, "no")) })
	case 5:
		req := &discoverypb.DeltaDiscoveryRequest{TypeUrl: typeURL}
		if w.wanted[key] {
			req.ResourceNamesUnsubscribe = []string{name}
			delete(w.wanted, key)
			delete(w.deltaHas, key)
			delete(w.sotwHas, key)
		} else {
			req.ResourceNamesSubscribe = []string{name}
			w.wanted[key] = true
		}
		handleDelta(t, w.delta, req)
		var names []string
		for k := range w.wanted {
			if k.typeURL == typeURL {
				names = append(names, k.name.leaf)
			}
		}
		if len(names) > 0 { // none would be a wildcard at first
			mustHandle(t, w.sotw, request(typeURL, names...))
		} else {
			mustHandle(t, w.sotw, request(typeURL, "nobody"))
		}
	case 6:
		time.Sleep(time.Duration(w.rand.IntN(40)) * time.Second)
		w.sotw.endWithdrawals()
		w.delta.endWithdrawals()
	case 7:
		w.push(t)
	}
}

func (w *withdrawalModel) push(t *testing.T) {
	t.Helper()
	take := func(has map[slotKey]bool, typeURL, name string, is bool) {
		if key := (slotKey{typeURL, keyOf(name)}); !is {
			delete(has, key)
		} else if w.wanted[key] {
			has[key] = true
		}
	}
	for len(w.sotw.dueSubs) > 0 {
		err := w.sotw.push(func(r *discoverypb.DiscoveryResponse) error {
			if r.GetTypeUrl() == typeurl.Cluster {
				maps.DeleteFunc(w.sotwHas, func(k slotKey, _ bool) bool { return k.typeURL == typeurl.Cluster })
			}
			for _, packed := range r.GetResources() {
				m, err := packed.UnmarshalNew()
				if err != nil {
					return err
				}
				named, ok := m.(interface{ GetName() string })
				if !ok {
					return fmt.Errorf("a %T has no name", m)
				}
				take(w.sotwHas, r.GetTypeUrl(), named.GetName(), true)
			}
			for _, e := range r.GetResourceErrors() {
				take(w.sotwHas, r.GetTypeUrl(), e.GetResourceName().GetName(), false)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for len(w.delta.dueSubs) > 0 {
		for _, r := range pushed(t, w.delta) {
			for _, resource := range r.GetResources() {
				take(w.deltaHas, r.GetTypeUrl(), resource.GetName(), true)
			}
			for _, name := range r.GetRemovedResources() {
				take(w.deltaHas, r.GetTypeUrl(), name, false)
			}
			for _, e := range r.GetResourceErrors() {
				take(w.deltaHas, r.GetTypeUrl(), e.GetResourceName().GetName(), false)
			}
		}
	}
	w.synced = true
}

func (w *withdrawalModel) check(t *testing.T, seed uint64, last bool) {
	t.Helper()
	if !w.synced {
		return
	}
	for key := range w.wanted {
		stored := w.store.Get(key.typeURL, key.name.leaf) != nil
		failed := w.store.Error(key.typeURL, key.name.leaf) != nil
		for client, has := range map[string]bool{"SotW": w.sotwHas[key], "delta": w.deltaHas[key]} {
			if stored && !has || failed && has || last && has != stored {
				t.Errorf("seed %d: %s client: has %s %v: %v; it is in the store: %v, in error: %v", seed, client, key.typeURL, key.name, has, stored, failed)
			}
		}
	}
}
