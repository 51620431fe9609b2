package xdsclient

import (
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// A response is not more than its bytes while it is worked on.
func FuzzHandle(f *testing.F) {
	types := newTestTypes()
	add := func(m *discoveryv3.DiscoveryResponse) {
		m.TypeUrl = types.clusters.TypeURL
		f.Add(false, mustMarshal(f, m))
	}
	f.Add(false, sotwPush(f, types.clusters, 3, 1, "x"))
	f.Add(false, sotwPush(f, types.clusters, 2, 1, "panic"))
	f.Add(false, sotwPush(f, types.endpoints, 1, 0, "bad: x"))
	add(&discoveryv3.DiscoveryResponse{Nonce: "n"})
	add(&discoveryv3.DiscoveryResponse{ResourceErrors: []*discoveryv3.ResourceError{resourceError("cluster-1", 5, "x"), resourceError("", 5, "x")}})
	add(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{
		pack(f, wrap(f, "cluster-1", cluster("cluster-1", ""))), pack(f, wrap(f, "", endpoints("b"))), pack(f, heartbeat("cluster-2", "1"))}})
	for _, parts := range [][]part{
		{has("cluster-1", "2", cluster("cluster-1", "x")), lacks("cluster-2", "u")},
		{has("cluster-1", "1", nil), has("x", "1", cluster("", ""), "cluster-2", "cluster-1"), lacks("x")},
		{fails("cluster-1", 5, "x"), fails("cluster-2", 7, "x"), fails("cluster-0", 99, "\n"), has("cluster-0", "", badCluster("", "x"))},
	} {
		f.Add(true, mustMarshal(f, deltaResponse(types.clusters, "n", parts...)))
	}
	f.Fuzz(func(t *testing.T, incremental bool, message []byte) {
		types := newTestTypes()
		k, push := newCore(t), func(n int, text string) []byte { return sotwPush(t, types.clusters, n, -1, text) }
		if incremental {
			k = newDeltaCore(t)
			push = func(n int, text string) []byte { return deltaPush(t, types.clusters, text, 0, n, content) }
		}
		k.watchClusters(types, 3)
		k.answer()
		k.push(push(2, "")) // the third stays unknown
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
		k.push(push(3, "final"))
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
	f.Add([]byte{2<<3 | 2, 0, 4<<3 | 2, 1, 'x', 4 << 3, 1})
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

// The same of the incremental variant.
func FuzzDeltaDecode(f *testing.F) {
	types := newTestTypes()
	f.Add(mustMarshal(f, deltaResponse(types.clusters, "n", has("a", "1", cluster("a", ""), "alias"), has("b", "2", nil),
		lacks("c", ""), fails("d", 5, "x"), fails("", 0, ""))))
	f.Fuzz(func(t *testing.T, message []byte) {
		got, err := delta{}.decode(message)
		var want discoveryv3.DeltaDiscoveryResponse
		if proto.Unmarshal(message, &want) != nil || want.GetTypeUrl() == "" {
			if err == nil {
				for range got.resources {
				}
				for range got.errors {
				}
				for range got.removed {
				}
			}
			return
		}
		if err != nil {
			t.Fatalf("proto.Unmarshal accepts what decode does not: %v", err)
		}
		if got.typeURL != want.GetTypeUrl() || got.version != want.GetSystemVersionInfo() || got.nonce != want.GetNonce() {
			t.Fatalf("got %+v, want %v", got, &want)
		}
		for r := range got.resources {
			checkWrapped(t, r, want.GetResources()[r.index], got.typeURL)
			want.Resources[r.index] = nil
		}
		for name := range got.removed {
			if string(name.name) != want.GetRemovedResources()[0] {
				t.Fatalf("%q is removed, want %q", name.name, want.GetRemovedResources())
			}
			want.RemovedResources = want.RemovedResources[1:]
		}
		for e := range got.errors {
			w := want.GetResourceErrors()[0]
			want.ResourceErrors = want.ResourceErrors[1:]
			if string(e.name) != w.GetResourceName().GetName() || e.code != w.GetErrorDetail().GetCode() ||
				string(e.message) != w.GetErrorDetail().GetMessage() || (e.err == nil) != (len(e.name) > 0) {
				t.Fatalf("got error %+v, want %v", e, w)
			}
		}
		if n := len(want.GetRemovedResources()) + len(want.GetResourceErrors()); n > 0 || slices.ContainsFunc(want.GetResources(), func(r *discoveryv3.Resource) bool { return r != nil }) {
			t.Fatalf("what is left out is %v", &want)
		}
	})
}

func checkResource(t *testing.T, got wireResource, want *anypb.Any, typeURL string) {
	t.Helper()
	if want.GetTypeUrl() == wrapperType {
		var w discoveryv3.Resource
		if proto.Unmarshal(want.GetValue(), &w) == nil {
			checkWrapped(t, got, &w, typeURL)
		}
		return
	}
	checkValue(t, got, want, typeURL)
}

func checkWrapped(t *testing.T, got wireResource, want *discoveryv3.Resource, typeURL string) {
	t.Helper()
	if string(got.name) != want.GetName() || string(got.version) != want.GetVersion() {
		t.Fatalf("resource %d is %q %q, want %q %q", got.index, got.name, got.version, want.GetName(), want.GetVersion())
	}
	if got.heartbeat != (want.GetResource() == nil && want.GetName() != "" && want.GetVersion() != "") {
		t.Fatalf("resource %d: heartbeat is %v for %v", got.index, got.heartbeat, want)
	}
	var aliases []string
	if got.wrapper != nil {
		for alias := range got.aliases() {
			aliases = append(aliases, string(alias))
		}
	}
	if !slices.Equal(aliases, want.GetAliases()) {
		t.Fatalf("resource %d has aliases %q, want %q", got.index, aliases, want.GetAliases())
	}
	if !got.heartbeat {
		checkValue(t, got, want.GetResource(), typeURL)
	}
}

func checkValue(t *testing.T, got wireResource, want *anypb.Any, typeURL string) {
	t.Helper()
	if (got.err == nil) != (want.GetTypeUrl() == typeURL) {
		t.Fatalf("resource %d of type %q: got error %v", got.index, want.GetTypeUrl(), got.err)
	}
	if got.err == nil && string(got.value) != string(want.GetValue()) {
		t.Fatalf("resource %d has the value %x, want %x", got.index, got.value, want.GetValue())
	}
}
