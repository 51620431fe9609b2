package controlplane

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// limited returns a delta stream of a peer.
func limited(t *testing.T, store *Store, q *quotas, host byte) *delta {
	t.Helper()
	usage, err := q.open(&peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, host), Port: 1}}, 1<<20)
	xdstest.NoError(t, err)
	return &delta{newStream(context.Background(), 1, ProtocolDelta, store, &Options{MaxResponseSize: 1 << 20}, usage)}
}

// Each distinct name is paid for by one peer that subscribes to it, and nothing is when all have left.
func TestNamesArePaidForOnce(t *testing.T) {
	t.Parallel()
	for _, onDemand := range []bool{false, true} {
		store, q := NewStore(), newQuotas(bounds.Streams, nil)
		if onDemand {
			store.OnDemand("", func(_, _ []*Demand) {})
		}
		rng := rand.New(rand.NewPCG(1, 2))
		var streams []*delta
		end := func(i int) {
			store.release(streams[i].stream)
			streams[i].usage.close()
			streams = append(streams[:i], streams[i+1:]...)
		}
		for range 2000 {
			switch n := len(streams); {
			case n == 0 || n < 8 && rng.IntN(10) == 0:
				streams = append(streams, limited(t, store, q, byte(rng.IntN(3))))
			case rng.IntN(20) == 0:
				end(rng.IntN(n))
			default:
				req := &discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Endpoints}
				if name := fmt.Sprint(rng.IntN(20)); rng.IntN(2) == 0 {
					req.ResourceNamesSubscribe = []string{name}
				} else {
					req.ResourceNamesUnsubscribe = []string{name}
				}
				xdstest.NoError(t, streams[rng.IntN(n)].handleRequest(req))
			}
			checkPayers(t, store, q)
		}
		for len(streams) > 0 {
			end(0)
		}
		for of := range kinds {
			xdstest.Equal(t, "what is used after all have left: "+limitsOfAll[of].name, 0, q.of[of].Used())
		}
		if len(q.peers) > 0 {
			t.Errorf("%d peers are left", len(q.peers))
		}
	}
}

func checkPayers(t *testing.T, store *Store, q *quotas) {
	t.Helper()
	store.mu.RLock()
	defer store.mu.RUnlock()
	var names int64
	for _, table := range store.tables {
		for _, asks := range table.asks.m {
			for _, a := range asks {
				pays := a.payer == nil
				for sub := range a.subscriptions() {
					pays = pays || a.payer == sub.stream.usage.peer
				}
				if !pays || (a.payer == nil) != (len(a.subs) == 0) {
					t.Fatalf("%q, with %d subscriptions, is not paid for by one of them", a.spelling, len(a.subs))
				}
				if a.payer != nil {
					names += a.weight()
				}
			}
		}
	}
	if used := q.of[ofNames].Used(); used != names {
		t.Fatalf("%d names are counted, there are %d", used, names)
	}
}

// Other spellings of a name are names for the limits of a peer: a client that spells a few names in ever other ways, on many streams, ends
// at its share, and gives all of it back.
func TestSpellingsCountForThePeer(t *testing.T) {
	t.Parallel()
	const limit, names, size = 4000, 10, 10 * nameBytes
	store, q := NewStore(), newQuotas(bounds.Streams, nil)
	q.set(ofNames, limit)
	spelled := func(stream, name int) string {
		path := []byte(fmt.Sprintf("xdstp://a/T/%d/", name))
		for i := range size {
			if i < 16 && stream>>i&1 == 1 {
				path = append(path, "%61"...)
			} else {
				path = append(path, 'a')
			}
		}
		return string(path)
	}
	var streams []*delta
	var kept int
	for refused := false; !refused; {
		p := limited(t, store, q, 1)
		streams = append(streams, p)
		for name := range names {
			one := spelled(len(streams), name)
			err := p.handleRequest(&discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Endpoints, ResourceNamesSubscribe: []string{one}})
			if refused = err != nil; refused {
				break
			}
			if kept += len(one); kept > limit*nameBytes {
				t.Fatalf("%d streams of a peer keep %d bytes of names", len(streams), kept)
			}
		}
		checkPayers(t, store, q)
	}
	if err := limited(t, store, q, 2).handleRequest(&discoverypb.DeltaDiscoveryRequest{
		TypeUrl: typeurl.Endpoints, ResourceNamesSubscribe: []string{spelled(1, 1)},
	}); err != nil {
		t.Errorf("another peer is refused: %v", err)
	}
	for _, p := range streams {
		store.release(p.stream)
		p.usage.close()
	}
	checkPayers(t, store, q)
}

// A client that does not read, and leaves ever other names beside its wildcard, ends at its share.
func TestNamesThatAreLeftCount(t *testing.T) {
	t.Parallel()
	q := newQuotas(bounds.Streams, nil)
	q.set(ofVersions, 200)
	p := limited(t, NewStore(), q, 1)
	var err error
	for i := 0; err == nil && i < 200; i++ {
		name := fmt.Sprint(i)
		if err = p.handleRequest(&discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Cluster, ResourceNamesSubscribe: []string{"*", name}}); err == nil {
			err = p.handleRequest(&discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Cluster, ResourceNamesUnsubscribe: []string{name}})
		}
	}
	if kept := len(p.subs[typeurl.Cluster].items.has.m); status.Code(err) != codes.ResourceExhausted || kept > 110 {
		t.Errorf("%d names are kept: %v", kept, err)
	}
	p.store.release(p.stream)
	p.usage.close()
	xdstest.Equal(t, "used after the stream", 0, q.of[ofVersions].Used())
}

// A client that does not read, and leaves most of its many names, has no room for what was due of them.
func TestNamesThatAreLeftAreNotDue(t *testing.T) {
	t.Parallel()
	p := limited(t, NewStore(), newQuotas(bounds.Streams, nil), 1)
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	handleDelta(t, p, &discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Endpoints, ResourceNamesSubscribe: names})
	handleDelta(t, p, &discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Endpoints, ResourceNamesUnsubscribe: names[1:]})
	if due := &p.subs[typeurl.Endpoints].items.later; len(due.m) != 1 || due.most > 8 {
		t.Errorf("%d topics are due, with room for %d", len(due.m), due.most)
	}
	p.store.release(p.stream)
}

// A claim in another spelling counts by its length, too.
func TestClaimsCountByLength(t *testing.T) {
	t.Parallel()
	for range 10 { // the order is not defined
		q := newQuotas(bounds.Streams, nil)
		p := limited(t, NewStore(), q, 1)
		xdstest.NoError(t, p.handleRequest(&discoverypb.DeltaDiscoveryRequest{
			TypeUrl: typeurl.Endpoints, ResourceNamesSubscribe: []string{"xdstp://a/T/d/*"},
			InitialResourceVersions: map[string]string{"xdstp://a/T/d/a": "1", "xdstp://a/T/d/%61": strings.Repeat("x", 100*nameBytes)},
		}))
		has := p.subs[typeurl.Endpoints].items.has.m[topic{name: keyOf("xdstp://a/T/d/a")}]
		if used := q.of[ofVersions].Used(); used < int64(len(has.resource.version)/nameBytes) {
			t.Errorf("%d are used", used)
		}
	}
}

// Streams that subscribe to one long name, and are sent nothing yet, keep it once.
func TestStreamsShareNames(t *testing.T) {
	t.Parallel()
	store, q := NewStore(), newQuotas(bounds.Streams, nil)
	store.OnDemand("", func(_, _ []*Demand) {})
	kept := map[*byte]bool{}
	for range 3 {
		p := limited(t, store, q, 1)
		for range 2 {
			xdstest.NoError(t, p.handleRequest(&discoverypb.DeltaDiscoveryRequest{
				TypeUrl: typeurl.Endpoints, ResourceNamesSubscribe: []string{strings.Repeat("x", nameBytes)},
			}))
			p.collect()
			for tp := range p.subs[typeurl.Endpoints].items.has.m {
				kept[unsafe.StringData(tp.name.leaf)] = true
			}
		}
	}
	xdstest.Equal(t, "how often the name is kept", 1, len(kept))
}

// While a client's request of many names is carried out, and while its stream is released, others have the
// store again and again.
func TestOthersHaveTurns(t *testing.T) {
	t.Parallel()
	const names = 2000
	store := NewStore()
	store.pace.turn = 0
	all := make([]string, names)
	versions := make(map[string]string, names)
	for i := range all {
		all[i] = fmt.Sprint(i)
		versions[all[i]] = "1"
	}
	st := newTestStream(store, ProtocolDelta, Options{})
	p := &delta{st}
	others := envTest(t)
	var turns int
	sotw := newTestSotW(store)
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"subscribes over delta", func() error {
			return p.handleRequest(&discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Endpoints, ResourceNamesSubscribe: all, InitialResourceVersions: versions})
		}},
		{"subscribes again over delta", func() error {
			return p.handleRequest(&discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Endpoints, ResourceNamesSubscribe: all})
		}},
		{"is shown", func() error {
			for p.stream.subs[typeurl.Endpoints].queued {
				_ = push(p.stream, p, func(*discoverypb.DeltaDiscoveryResponse) error { return nil })
			}
			between := turns
			if errs := st.status(overviewed).Types[0].ErrorCount; errs != 0 {
				t.Errorf("%d errors", errs)
			}
			turns -= between
			return nil
		}},
		{"gets other constraints", func() error { store.constrain(st, others); return nil }},
		{"subscribes over SotW", func() error { return sotw.handleRequest(request(typeurl.Cluster, all...)) }},
		{"subscribes to one less over SotW", func() error { return sotw.handleRequest(request(typeurl.Cluster, all[1:]...)) }},
		{"unsubscribes over delta", func() error {
			return p.handleRequest(&discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Endpoints, ResourceNamesUnsubscribe: all[1:]})
		}},
		{"ends", func() error { store.release(sotw.stream); return nil }},
	} {
		turns = 0
		store.pace.between = func() {
			if !store.mu.TryLock() {
				t.Errorf("a client %s: the store is locked in the turn of others", step.name)
				return
			}
			defer store.mu.Unlock()
			turns++
		}
		err := step.do()
		xdstest.NoError(t, err)
		if turns < names-1 {
			t.Errorf("a client %s: others had %d turns", step.name, turns)
		}
	}
}

// Of many clients that make the server work long, one at a time waits for the store, so that others wait for one only.
func TestOneLongWorkAtATime(t *testing.T) {
	t.Parallel()
	store, q := NewStore(), newQuotas(bounds.Streams, nil)
	store.pace = pace{turn: time.Nanosecond, alone: 1}
	var waiting, most atomic.Int64
	var all sync.WaitGroup
	for i := range byte(8) {
		turn := store.writing(limited(t, store, q, i%2).usage.peer)
		turn.locks = []sync.Locker{&waiter{of: turn.locks[0], waiting: &waiting, most: &most}}
		all.Go(func() {
			turn.peer.enter()
			defer turn.peer.leave()
			turn.lock()
			defer turn.unlock()
			for range 500 {
				turn.next()
			}
		})
	}
	all.Wait()
	xdstest.Equal(t, "works that waited for the store at a time", 1, most.Load())
}

// waiter counts how many wait for a lock or have it, but for the first time that each has it.
type waiter struct {
	of            sync.Locker
	waiting, most *atomic.Int64
	taken         int
}

func (w *waiter) Lock() {
	if w.taken++; w.taken > 1 {
		if n := w.waiting.Add(1); n > w.most.Load() {
			w.most.Store(n)
		}
	}
	w.of.Lock()
}

func (w *waiter) Unlock() {
	if w.taken > 1 {
		w.waiting.Add(-1)
	}
	w.of.Unlock()
}

// Requests of one peer, however many and small, are carried out one at a time: they do not wait for the store in the way of others,
// which are served meanwhile.
func TestRequestsOfOnePeerWaitForEachOther(t *testing.T) {
	t.Parallel()
	store, q := NewStore(), newQuotas(bounds.Streams, nil)
	var inside, most atomic.Int64
	var first sync.Once
	begun, served := make(chan struct{}), make(chan struct{})
	compare := func() subscriptionChange {
		n := inside.Add(1)
		defer inside.Add(-1)
		if n > most.Load() {
			most.Store(n)
		}
		first.Do(func() {
			close(begun)
			<-served
		})
		runtime.Gosched()
		return subscriptionChange{interest: interestNamed}
	}
	var all sync.WaitGroup
	for range 1000 {
		p := limited(t, store, q, 1)
		all.Go(func() {
			sub, err := p.subscription(typeurl.Endpoints, nil)
			if err == nil {
				err = p.resubscribe(sub, nil, compare)
			}
			if err != nil {
				t.Error(err)
			}
			p.leave()
		})
	}
	<-begun
	request := &discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Endpoints, ResourceNamesSubscribe: []string{"a"}}
	if err := limited(t, store, q, 2).handleRequest(request); err != nil {
		t.Error(err)
	}
	close(served)
	all.Wait()
	xdstest.Equal(t, "requests of one peer that were carried out at a time", 1, most.Load())
}

// A stream may end in any turn of a request. The rest of the work on it is given up, and nothing is left of it.
func TestRelease_InAnyTurn(t *testing.T) {
	t.Parallel()
	names := func(format string) (names []string) {
		for i := range 5 {
			names = append(names, fmt.Sprintf(format, i))
		}
		return names
	}
	a, b, c, members := names("a%d"), names("b%d"), names("c%d"), names("xdstp://a/T/d/%d")
	versions := map[string]string{}
	for _, name := range b {
		versions[name] = "1"
	}
	sotw := func(names ...string) func(*stream) error {
		return func(st *stream) error {
			return (&sotw{stream: st}).handleRequest(request(typeurl.Cluster, names...))
		}
	}
	deltaOf := func(req *discoverypb.DeltaDiscoveryRequest) func(*stream) error {
		return func(st *stream) error {
			req.TypeUrl = typeurl.Cluster
			return (&delta{st}).handleRequest(req)
		}
	}
	for name, test := range map[string]struct {
		before, request func(*stream) error
		// compared is how many names are compared with the subscription, before the work that is given up.
		compared int
	}{
		"SotW": {sotw(append(a, b...)...), sotw(append(b, c...)...), 20},
		"first over delta": {nil, deltaOf(&discoverypb.DeltaDiscoveryRequest{
			ResourceNamesSubscribe: b, InitialResourceVersions: versions}), 5},
		"later over delta": {
			deltaOf(&discoverypb.DeltaDiscoveryRequest{ResourceNamesSubscribe: append(a, b...)}),
			deltaOf(&discoverypb.DeltaDiscoveryRequest{ResourceNamesSubscribe: append(b, c...), ResourceNamesUnsubscribe: a}), 15,
		},
		"end of the collections": {
			deltaOf(&discoverypb.DeltaDiscoveryRequest{ResourceNamesSubscribe: append(b, "*", "xdstp://a/T/d/*")}),
			deltaOf(&discoverypb.DeltaDiscoveryRequest{ResourceNamesUnsubscribe: []string{"*", "xdstp://a/T/d/*"}}), 1,
		},
	} {
		for end := 1; ; end++ {
			store := NewStore()
			protocol := ProtocolDelta
			if name == "SotW" {
				protocol = ProtocolSotW
			}
			st := newTestStream(store, protocol, Options{})
			update(t, store, func(tx *Tx) {
				for _, name := range slices.Concat(c, members) {
					tx.Set(&clusterpb.Cluster{Name: name})
				}
			})
			if test.before != nil {
				xdstest.NoError(t, test.before(st))
				if protocol == ProtocolDelta {
					pushed(t, &delta{st})
				}
				update(t, store, func(tx *Tx) { tx.Set(&clusterpb.Cluster{Name: "xdstp://a/T/d/new"}) })
			}
			turns, after, releasing := 0, 0, false
			store.pace.turn, store.pace.between = 0, func() {
				switch {
				case releasing:
				case turns >= end:
					after++
				default:
					if turns++; turns == end {
						releasing = true
						store.release(st)
						releasing = false
					}
				}
			}
			st.usage.peer.large.Lock() // others of its peer have their turns
			st.request.large = true
			if err := test.request(st); err != nil && err != errClosed {
				t.Fatal(err)
			}
			if end > test.compared && after > 0 {
				t.Errorf("%s: %d turns more after the end in turn %d", name, after, end)
			}
			if turns < end {
				break
			}
			if left := store.tables[typeurl.Cluster].asks.m; len(left) > 0 {
				t.Errorf("%s: %d names are left after the end in turn %d", name, len(left), end)
			}
		}
	}
}

// What a client claims to have, and does not exist, is compared in pieces, and in turns if the claims waited for a
// collection.
func TestManyClaimsAreComparedInPieces(t *testing.T) {
	t.Parallel()
	const claims = 2000
	for _, test := range []struct {
		name     string
		onDemand bool
		request  *discoverypb.DeltaDiscoveryRequest
	}{
		{"by names", false, &discoverypb.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"*"}}},
		{"by locators", false, &discoverypb.DeltaDiscoveryRequest{ResourceLocatorsSubscribe: []*discoverypb.ResourceLocator{{Name: "*"}}}},
		{"by names, on demand", true, &discoverypb.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"*"}}},
		{"by locators, on demand", true, &discoverypb.DeltaDiscoveryRequest{ResourceLocatorsSubscribe: []*discoverypb.ResourceLocator{{Name: "*"}}}},
	} {
		store := NewStore()
		answered := make(chan []*Demand, 1)
		if test.onDemand {
			store.OnDemand("", func(begun, _ []*Demand) { answered <- begun })
		}
		update(t, store, func(tx *Tx) { tx.Set(&clusterpb.Cluster{Name: "there"}) })
		store.pace = pace{due: 100}
		p := &delta{newTestStream(store, ProtocolDelta, Options{})}
		test.request.TypeUrl = typeurl.Cluster
		test.request.InitialResourceVersions = map[string]string{}
		for i := range claims {
			test.request.InitialResourceVersions[fmt.Sprint(i)] = "1"
		}
		xdstest.NoError(t, p.handleRequest(test.request))
		if test.onDemand {
			begun := <-answered
			turns := 0
			store.pace.between = func() { turns++ }
			update(t, store, func(tx *Tx) { tx.Answer(begun[0], nil) })
			if turns > 0 {
				t.Fatalf("%s: an update waited for others", test.name)
			}
			if due := p.subs[typeurl.Cluster].items.count(); due > 10 {
				t.Errorf("%s: the answer made %d topics due at once", test.name, due)
			}
		}
		var removed, resources int
		for p.subs[typeurl.Cluster].queued {
			if err := push(p.stream, p, func(resp *discoverypb.DeltaDiscoveryResponse) error {
				if n := len(resp.GetRemovedResources()) + len(resp.GetRemovedResourceNames()); n > 110 {
					t.Errorf("%s: a response has %d removals", test.name, n)
				}
				removed += len(resp.GetRemovedResources()) + len(resp.GetRemovedResourceNames())
				resources += len(resp.GetResources())
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if removed != claims || resources != 1 {
			t.Errorf("%s: the client was sent %d removals and %d resources, want %d and 1", test.name, removed, resources, claims)
		}
	}
}

// envTest has env=test for all types.
func envTest(t *testing.T) dynparam.ByType {
	t.Helper()
	env, err := dynparam.New(dynparam.Require("env", dynparam.Value("test")))
	xdstest.NoError(t, err)
	all, err := dynparam.NewByType(map[string]dynparam.Constraints{"*": env})
	xdstest.NoError(t, err)
	return all
}

// Of the text of a NACK, which a client may make as long as a request, a part is kept. Options.OnNACK gets all of it, when the request holds
// nothing: it may call functions of the server that wait for the turn of the peer.
func TestLongNACK(t *testing.T) {
	t.Parallel()
	detail := &statuspb.Status{Code: int32(codes.InvalidArgument), Message: strings.Repeat("x", 1<<20)}
	p := newTestSotW(NewStore())
	var got Rejection
	var waits bool
	p.opts.OnNACK = func(r Rejection) { got, waits = r, p.request.entered }
	mustHandle(t, p, request(typeurl.Cluster))
	discard(t, p)
	d := &p.subs[typeurl.Cluster].delivery
	p.enter() // as a long request does
	mustHandle(t, p, &discoverypb.DiscoveryRequest{TypeUrl: typeurl.Cluster, ResponseNonce: d.nonce, ErrorDetail: detail})
	if kept := d.nack.Err; kept.Code() != codes.InvalidArgument || len(kept.Message()) > 2*bounds.KeptNACK {
		t.Errorf("%v with %d bytes is kept", kept.Code(), len(kept.Message()))
	}
	if got.NACK.Err.Message() != detail.GetMessage() || got.NACK.Err.Code() != codes.InvalidArgument || waits {
		t.Errorf("the handler got %v with %d bytes; others wait: %t", got.NACK.Err.Code(), len(got.NACK.Err.Message()), waits)
	}
}

// A client may have a wildcard for each of any number of constraints.
func TestListsOfManyWildcardsAreNotKept(t *testing.T) {
	t.Parallel()
	store := NewStore()
	update(t, store, func(tx *Tx) { tx.Set(&clusterpb.Cluster{Name: "c"}) })
	p, req := newTestSotW(store), request(typeurl.Cluster)
	for i := range 2 * maxLists {
		req.ResourceLocators = append(req.ResourceLocators, fuzzLocator("*", "shard", fmt.Sprint(i)))
	}
	mustHandle(t, p, req)
	discard(t, p)
	for a := range p.subs[typeurl.Cluster].asks() {
		if a.lists.of[byLocators] != nil {
			t.Fatal("the list of one of many wildcards is kept")
		}
	}
	store.release(p.stream)
}
