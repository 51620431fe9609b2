package xdsclient

import (
	"fmt"
	"runtime"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// heap returns the bytes that are in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// deltaCoreWith makes a core that has n clusters.
func deltaCoreWith(t testing.TB, types *testTypes, n int) (*core, *counter) {
	k := newCore(t, "delta")
	heard := k.watchClusters(types, n)
	k.answer()
	k.push(k.clusters(types, "1", 0, n, content))
	k.answer()
	return k, heard
}

// In delta, work is proportional to the response and to the
// change of subscriptions, not to the subscriptions.
func TestDeltaWorkDoesNotGrowWithTheSubscriptions(t *testing.T) {
	type cost struct{ response, subscription, sent int }
	costs := map[int]cost{}
	for _, n := range []int{100, 10_000} {
		types := newTestTypes()
		k, _ := deltaCoreWith(t, types, n)
		messages := [][]byte{
			k.clusters(types, "2", 5, 6, but(5, "x")), k.clusters(types, "3", 5, 6, but(5, "y")),
		}
		var c cost
		i := 0
		c.response = int(testing.AllocsPerRun(100, func() {
			k.push(messages[i%2])
			c.sent = k.answer()
			i++
		}))
		c.subscription = int(testing.AllocsPerRun(100, func() {
			stop := k.c.Watch(types.clusters, "other", &counter{})
			c.sent += k.answer()
			stop()
			c.sent += k.answer()
		}))
		costs[n] = c
	}
	// What a map or a queue takes when it grows is not counted.
	small, large := costs[100], costs[10_000]
	if large.response > small.response+5 || large.subscription > small.subscription+5 || large.sent != small.sent {
		t.Errorf("with 10,000 subscriptions the cost is %+v, with 100 %+v", large, small)
	}
}

// A push of one ClusterLoadAssignment among 10,000 costs the client little memory, though over SotW the ACK repeats all names, and
// locators beside them: the bytes of a request are used again.
func TestAllocatedBytesOfAnEndpointPush(t *testing.T) {
	if raceDetector {
		t.Skip("with the race detector, pools drop things at random")
	}
	const n, pushes, budget = 10_000, 100, 25_000
	for _, features := range [][]string{nil, {"delta"}, {"dynamic_parameter_constraints"}, {"delta", "dynamic_parameter_constraints"}} {
		t.Run(fmt.Sprint(features), func(t *testing.T) {
			types := newTestTypes()
			k := newCore(t, features...)
			for i := range n {
				k.c.Watch(types.endpoints, fmt.Sprintf("outbound|8080||service-%05d", i), &counter{})
			}
			message := func(version string) []byte {
				return k.response(types, types.endpoints, version,
					fmt.Sprintf(`[Resource]{name:%q,version:%q,resource:{[Endpoints]{cluster_name:%[1]q,named_endpoints:{key:%[2]q,value:{}}}}}`, "outbound|8080||service-00007", version))
			}
			messages := [][]byte{message("1"), message("2")}
			send := func() { // as gRPC does
				for m := k.request(); m != nil; m = k.request() {
					sent, err := transport.Codec{}.Marshal(m)
					xdstest.NoError(t, err)
					sent.Free()
				}
			}
			send()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for i := range pushes {
				k.push(messages[i%2])
				send()
			}
			runtime.ReadMemStats(&after)
			xdstest.Equal(t, "resources decoded", pushes, int(types.decoded.Load()))
			if got := (after.TotalAlloc - before.TotalAlloc) / pushes; got > budget {
				t.Errorf("a push allocates %d bytes, want %d at most", got, budget)
			}
		})
	}
}

// A response with a million of everything that nobody asked for leaves nothing
// behind.
func TestFloodLeavesNothingBehind(t *testing.T) {
	const flood = 1_000_000
	types := newTestTypes()
	for _, variant := range []string{"SotW", "delta"} {
		t.Run(variant, func(t *testing.T) {
			k := newCore(t)
			message, unasked := floodOf(t, types.clusters, wrapperType, flood), uint64(flood)
			if variant == "delta" {
				k = newCore(t, "delta")
				// Aliases and removals are not counted.
				message, unasked = deltaFloodOf(types.clusters, flood/4), flood/2
			}
			heard := k.watchClusters(types, 1)
			k.answer()
			before := heap()
			if !k.push(message) {
				t.Error("the response was not accepted")
			}
			if grown := int64(heap()) - int64(before); grown > 1<<20 {
				t.Errorf("the heap has grown by %d bytes", grown)
			}
			if got := k.c.Stats(); got.Unasked < unasked || got.Decoded != 0 || heard.values+heard.errors != 0 {
				t.Errorf("Stats() is %+v, and watchers were called %d times; want %d unasked and no more", got, heard.values+heard.errors, unasked)
			}
			if sent := k.answer(); sent == 0 || sent > 1000 {
				t.Errorf("the answer has %d bytes", sent)
			}
			runtime.KeepAlive(message)
		})
	}
}

// Watches that end before the server has answered leave nothing behind, though another one that began before them goes on,
// whether the server reads the requests or not.
func TestUnansweredWatchesLeaveNothingBehind(t *testing.T) {
	const watches = 10_000
	for _, features := range [][]string{nil, {"delta"}} {
		for name, answer := range map[string]func(*core){"read": func(k *core) { k.answer() }, "unread": func(*core) {}} {
			t.Run(fmt.Sprint(features, name), func(t *testing.T) {
				types := newTestTypes()
				k := newCore(t, features...)
				k.c.Watch(types.clusters, "silent", &counter{})
				k.answer()
				before := heap()
				for i := range watches {
					stop := k.c.Watch(types.clusters, fmt.Sprint("cluster-", i), &counter{})
					answer(k)
					stop()
					answer(k)
				}
				if grown := int64(heap()) - int64(before); grown > 2<<20 { // SotW remembers some names: maxUnsubscribed
					t.Errorf("the heap has grown by %d bytes", grown)
				}
			})
		}
	}
}

// wrapperType is the type URL of a wrapped resource in a SotW response.
const wrapperType = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// Field numbers of the messages of envoy.service.discovery.v3.
const (
	wrapperVersion    = 1
	wrapperName       = 3
	wrapperAliases    = 4
	wrapperParameters = 8
	sotwResources     = 2
	deltaResources    = 2
	deltaTypeURL      = 4
	deltaRemoved      = 6
	deltaErrors       = 9
)

// appendField adds a length-delimited field to a message.
func appendField(b []byte, number int, value string) []byte {
	b = protowire.AppendTag(b, protowire.Number(number), protowire.BytesType)
	return protowire.AppendString(b, value)
}

// floodOf makes a SotW response with n wrapped resources.
func floodOf(t testing.TB, typ *ResourceType, wrapper string, n int) []byte {
	message := mustMarshal(t, &discoveryv3.DiscoveryResponse{TypeUrl: typ.TypeURL, VersionInfo: "1", Nonce: "n"})
	for i := range n {
		inner := appendField(nil, wrapperName, fmt.Sprint("u", i))
		inner = appendField(inner, wrapperVersion, "1")
		a := appendField(appendField(nil, 1, wrapper), 2, string(inner))
		message = appendField(message, sotwResources, string(a))
	}
	return message
}

// deltaFloodOf makes an incremental response with n each of resources, aliases,
// removals and errors.
func deltaFloodOf(typ *ResourceType, n int) []byte {
	var message, aliases []byte
	message = appendField(message, deltaTypeURL, typ.TypeURL)
	for i := range n {
		name := fmt.Sprint("u", i)
		message = appendField(message, deltaResources, string(appendField(nil, wrapperName, name)))
		message = appendField(message, deltaRemoved, name)
		message = appendField(message, deltaErrors, string(appendField(nil, 1, string(appendField(nil, 1, name)))))
		aliases = appendField(aliases, wrapperAliases, name)
	}
	return appendField(message, deltaResources, string(appendField(aliases, wrapperName, "aliased")))
}
