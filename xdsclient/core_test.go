package xdsclient

import (
	"fmt"
	"runtime"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/testutils"
)

// core is a client with one channel that has no server: a test hands the
// responses to it.
type core struct {
	t       testing.TB
	c       *XDSClient
	channel *serverChannel
}

func newCore(t testing.TB, features ...string) *core {
	t.Helper()
	c, err := New(parseBootstrap(t, "passthrough:///nowhere", testutils.ServerFeatures(features...)))
	if err != nil {
		t.Fatal(err)
	}
	server := c.config.Servers[0]
	ch := newServerChannel(c, server)
	ch.cancel = func() {}
	c.channels[server.Key()] = ch
	t.Cleanup(c.Close)
	ch.opened()
	return &core{t, c, ch}
}

func newDeltaCore(t testing.TB) *core { return newCore(t, "delta") }

// delta makes an incremental response.
func (k *core) delta(typ *ResourceType, nonce string, parts ...part) []byte {
	k.t.Helper()
	return mustMarshal(k.t, deltaResponse(typ, nonce, parts...))
}

// push hands over a response and waits until the watchers are done with it.
func (k *core) push(message []byte) verdict {
	v, d, err := k.channel.handle(message)
	if err != nil {
		k.t.Fatal(err)
	}
	if d != nil {
		<-d.finished
		k.channel.delivered(d)
	}
	return v
}

// answer takes the requests that are due, as the writer does, and returns the
// bytes that go out.
func (k *core) answer() (sent int) {
	for {
		r, fresh := k.channel.nextRequest()
		if r == nil {
			return sent
		}
		message, err := k.channel.protocol.encode(r)
		if err != nil {
			k.t.Fatal(err)
		}
		sent += len(message)
		k.channel.sent(r.typeURL, fresh)
	}
}

// counter is a watcher that counts.
type counter struct{ values, errors int }

func (n *counter) ResourceChanged(_ any, err error, done func()) {
	if err != nil {
		n.errors++
	} else {
		n.values++
	}
	done()
}

func (n *counter) AmbientError(_ error, done func()) {
	n.errors++
	done()
}

// sotwPush makes a response with n clusters of about 250 bytes. The one with the
// given index has another text than the rest.
func sotwPush(t testing.TB, typ *ResourceType, n, odd int, text string) []byte {
	r := &discoveryv3.DiscoveryResponse{TypeUrl: typ.TypeURL, VersionInfo: "v" + text, Nonce: "n" + text}
	for i := range n {
		content := fmt.Sprintf("%0180d", i)
		if i == odd {
			content = text
		}
		r.Resources = append(r.Resources, pack(t, cluster(fmt.Sprint("cluster-", i), content)))
	}
	return mustMarshal(t, r)
}

func (k *core) watchClusters(types *testTypes, n int) *counter {
	heard := &counter{}
	for i := range n {
		k.c.Watch(types.clusters, fmt.Sprint("cluster-", i), heard)
	}
	return heard
}

// DESIGN, "Budgets": a SotW push of 10,000 unchanged resources decodes none.
func TestPushOfUnchangedResourcesDecodesNone(t *testing.T) {
	const n = 10_000
	types := newTestTypes()
	k := newCore(t)
	heard := k.watchClusters(types, n)
	message := sotwPush(t, types.clusters, n, -1, "")
	k.push(message)
	if types.decoded.Load() != n || heard.values != n {
		t.Fatalf("the first push decoded %d resources and told of %d, want %d", types.decoded.Load(), heard.values, n)
	}
	for range 3 {
		if k.push(message) != verdictAccepted {
			t.Error("an unchanged response was not ACKed")
		}
	}
	if got := types.decoded.Load() - n; got != 0 {
		t.Errorf("pushes of unchanged resources decoded %d", got)
	}
	if got := k.c.Stats(); got.Unchanged != 3*n || got.Decoded != n {
		t.Errorf("Stats() is %+v, want %d unchanged and %d decoded", got, 3*n, n)
	}
	if heard.values != n || heard.errors != 0 {
		t.Errorf("watchers were called %d times for %d values", heard.values, n)
	}
	// Work that does not depend on the resources is all that is allocated.
	if got := testing.AllocsPerRun(5, func() { k.push(message) }); got > 100 {
		t.Errorf("a push of %d unchanged resources allocates %v times", n, got)
	}
	k.push(sotwPush(t, types.clusters, n, 77, "changed"))
	if got := types.decoded.Load() - n; got != 1 {
		t.Errorf("a push with one changed resource decoded %d", got)
	}
	if heard.values != n+1 {
		t.Errorf("a push with one changed resource told of %d", heard.values-n)
	}
}

func BenchmarkUnchangedPush(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			types := newTestTypes()
			k := newCore(b)
			k.watchClusters(types, n)
			message := sotwPush(b, types.clusters, n, -1, "")
			k.push(message)
			k.answer()
			b.ReportAllocs()
			for b.Loop() {
				k.push(message)
				k.answer()
			}
			b.ReportMetric(float64(types.decoded.Load()-int64(n))/float64(b.N), "decodes/op")
		})
	}
}

// BenchmarkFirstRequest is the cost of asking for many resources.
func BenchmarkFirstRequest(b *testing.B) {
	types := newTestTypes()
	k := newCore(b)
	k.watchClusters(types, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		k.channel.opened()
		k.answer()
	}
}

// BenchmarkMemoryPerResource reports what a cached, watched resource takes beside
// its name, its bytes and its decoded value.
func BenchmarkMemoryPerResource(b *testing.B) {
	const n = 10_000
	var overhead, raw float64
	for b.Loop() {
		types := newTestTypes()
		decode := types.clusters.Decode
		types.clusters.Decode = nameOnly(decode)
		k := newCore(b)
		message := sotwPush(b, types.clusters, n, -1, "")
		before := heap()
		k.watchClusters(types, n)
		k.push(message)
		k.answer()
		total := float64(heap() - before)
		raw = float64(len(message)) / n
		overhead = total/n - raw
		runtime.KeepAlive(k)
	}
	b.ReportMetric(overhead, "B/resource")
	b.ReportMetric(raw, "serialized-B/resource")
}

type decoder = func(resource *anypb.Any, opts DecodeOptions) (string, any, error)

// nameOnly makes a decoder whose values take no memory.
func nameOnly(decode decoder) decoder {
	return func(resource *anypb.Any, opts DecodeOptions) (string, any, error) {
		name, _, err := decode(resource, opts)
		return name, struct{}{}, err
	}
}

// A response is not more than its bytes while it is worked on.
func FuzzHandle(f *testing.F) {
	types := newTestTypes()
	f.Add(sotwPush(f, types.clusters, 3, 1, "x"))
	f.Add(sotwPush(f, types.clusters, 2, 1, "panic"))
	f.Add(sotwPush(f, types.endpoints, 1, 0, "bad: x"))
	f.Add(mustMarshal(f, &discoveryv3.DiscoveryResponse{TypeUrl: types.clusters.TypeURL, Nonce: "n"}))
	f.Add(mustMarshal(f, &discoveryv3.DiscoveryResponse{TypeUrl: types.clusters.TypeURL,
		Resources: []*anypb.Any{pack(f, wrap(f, "cluster-1", cluster("cluster-1", ""))), pack(f, wrap(f, "", endpoints("b")))}}))
	f.Fuzz(func(t *testing.T, message []byte) {
		types := newTestTypes()
		k := newCore(t)
		k.watchClusters(types, 3)
		k.push(sotwPush(t, types.clusters, 2, -1, "")) // the third stays unknown
		before := k.c.Stats()
		k.answer()
		for range 2 {
			v, d, err := k.channel.handle(message)
			if d == nil {
				if v != verdictNone {
					t.Fatalf("verdict %v without a delivery", v)
				}
				continue
			}
			if err != nil {
				t.Fatalf("a delivery beside error %v", err)
			}
			<-d.finished
			k.channel.delivered(d)
			if v == verdictNone {
				t.Fatal("a response was neither accepted nor rejected")
			}
			if sent := k.answer(); sent == 0 || sent > maxFaultText+4<<10 {
				t.Fatalf("the answer has %d bytes", sent)
			}
		}
		// Whatever came, the next good response counts.
		k.push(sotwPush(t, types.clusters, 3, -1, "final"))
		after := k.c.Stats()
		if after.Responses <= before.Responses {
			t.Fatal("a good response was not counted")
		}
		for _, s := range k.channel.types[0].subs {
			if s.resource.state != resourceAccepted || s.resource.payload == nil {
				t.Fatalf("%s is in state %d at the end", s.resource.key.name, s.resource.state)
			}
		}
	})
}

// What proto.Unmarshal accepts is read alike.
func FuzzSotWDecode(f *testing.F) {
	types := newTestTypes()
	f.Add(sotwPush(f, types.clusters, 3, 1, "x"))
	f.Add([]byte{2<<3 | 2, 0, 4<<3 | 2, 1, 'x', 4<<3 | 0, 1})
	f.Add(mustMarshal(f, &discoveryv3.DiscoveryResponse{TypeUrl: "x", Canary: true, Nonce: "n",
		Resources: []*anypb.Any{pack(f, wrap(f, "w", cluster("c", "")))}}))
	f.Fuzz(func(t *testing.T, message []byte) {
		var want discoveryv3.DiscoveryResponse
		if proto.Unmarshal(message, &want) != nil || want.GetTypeUrl() == "" {
			// Parts that do not matter here may be malformed: no panic is enough.
			if r, err := (sotw{}).decode(message); err == nil {
				for range r.resources {
				}
			}
			return
		}
		got, err := sotw{}.decode(message)
		if err != nil {
			t.Fatalf("proto.Unmarshal accepts what decode does not: %v", err)
		}
		if got.typeURL != want.GetTypeUrl() || got.version != want.GetVersionInfo() || got.nonce != want.GetNonce() {
			t.Fatalf("got %+v, want %v", got, &want)
		}
		n := 0
		for r := range got.resources {
			checkResource(t, r, want.GetResources()[n], got.typeURL)
			n++
		}
		if n != len(want.GetResources()) {
			t.Fatalf("got %d resources, want %d", n, len(want.GetResources()))
		}
	})
}

func checkResource(t *testing.T, got wireResource, want *anypb.Any, typeURL string) {
	t.Helper()
	name := ""
	if want.GetTypeUrl() == wrapperType {
		var w discoveryv3.Resource
		if proto.Unmarshal(want.GetValue(), &w) != nil {
			return
		}
		name, want = w.GetName(), w.GetResource()
	}
	if string(got.name) != name {
		t.Fatalf("resource %d has the name %q, want %q", got.index, got.name, name)
	}
	if (got.err == nil) != (want.GetTypeUrl() == typeURL) {
		t.Fatalf("resource %d of type %q: got error %v", got.index, want.GetTypeUrl(), got.err)
	}
	if got.err == nil && string(got.value) != string(want.GetValue()) {
		t.Fatalf("resource %d has the value %x, want %x", got.index, got.value, want.GetValue())
	}
}
