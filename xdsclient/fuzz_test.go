package xdsclient

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/bounds"
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
			accepted, d, err := k.channel.Receive(message)
			if d == nil {
				if accepted {
					t.Fatal("accepted without a delivery")
				}
				continue
			}
			if err != nil {
				t.Fatalf("a delivery beside error %v", err)
			}
			<-d
			k.channel.Delivered()
			k.channel.Reading()
			if sent := k.answer(); sent == 0 || sent > bounds.NACKText+4<<10 {
				t.Fatalf("the answer has %d bytes", sent)
			}
		}
		// Whatever came, the next good response counts.
		k.push(push(3, "final"))
		after := k.c.Stats()
		if after.Responses <= before.Responses {
			t.Fatal("a good response was not counted")
		}
		for s := range k.channel.types[0].subs.all() {
			if s.resource.state() != StateACKed || s.resource.payload == nil {
				t.Fatalf("%s is in state %v at the end", s.resource.key.name, s.resource.state())
			}
		}
	})
}

func heartbeat(name, version string) proto.Message {
	return deltaResponse(&ResourceType{}, "", has(name, version, nil)).GetResources()[0]
}
