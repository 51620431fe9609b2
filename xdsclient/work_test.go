package xdsclient

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/bounds"
)

// works makes each resource of a type take some time to decode.
func works(typ *ResourceType, d time.Duration) {
	decode := typ.Decode
	typ.Decode = func(a *anypb.Any, o DecodeOptions) (any, error) {
		time.Sleep(d)
		return decode(a, o)
	}
}

// A server that sends distinct versions as fast as it can costs a quarter of the time, once the burst is
// used up. The last version comes through when it stops.
func TestFloodOfDistinctResponses(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, types *testTypes, c *XDSClient, a *ear, s answerer) {
		const each = 500 * time.Millisecond
		works(types.clusters, each)
		long := strings.Repeat("x", 1<<20)
		start := time.Now()
		for i := 0; time.Since(start) < 40*time.Second; i++ {
			s.repeat(types.clusters, fmt.Sprint(long, i))
		}
		took := time.Since(start)
		work := time.Duration(c.Stats().Decoded) * each
		if allowed := bounds.ResponseBurst + took/bounds.ResponseShare; work > allowed+2*each || work < allowed/2 {
			t.Errorf("%v of work within %v, want some %v", work, took, allowed)
		}
		s.repeat(types.clusters, "last")
		for a.value().(*clusterv3.Cluster).GetAltStatName() != "last" {
		}
		if late := time.Since(start) - took; late > 15*time.Second {
			t.Errorf("the last version took %v", late)
		}
	})
}

// Hundreds of small changes a second arrive at once, for as long as it may be.
func TestManySmallChangesAreNotDelayed(t *testing.T) {
	onBothProtocols(t, func(t *testing.T, types *testTypes, _ *XDSClient, a *ear, s answerer) {
		const each = time.Millisecond
		works(types.clusters, each)
		for i := range 60 * 200 {
			sent := time.Now()
			s.repeat(types.clusters, fmt.Sprint(i))
			a.cluster(fmt.Sprint(i))
			if late := time.Since(sent); late > each {
				t.Fatalf("change %d took %v, want %v", i, late, each)
			}
			s.replies()
			pass(time.Second/200 - each)
		}
	})
}

// The start of a large mesh is not delayed.
func TestStartIsNotDelayed(t *testing.T) {
	overDelta(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		const responses, per, each = 100, 100, 200 * time.Microsecond
		works(types.clusters, each)
		all := newEar(t)
		all.calls = make(chan heard, responses*per)
		for i := range responses * per {
			t.Cleanup(c.Watch(types.clusters, fmt.Sprint(i), all))
		}
		s := server.askedDelta()
		start := time.Now()
		for i := range responses {
			parts := make([]part, per)
			for j := range parts {
				name := fmt.Sprint(i*per + j)
				parts[j] = has(name, "1", cluster(name, "x"))
			}
			s.send(types.clusters, fmt.Sprint(i), parts...)
		}
		for range responses * per {
			all.value()
		}
		if took, want := time.Since(start), responses*per*each; took > want+100*time.Millisecond {
			t.Errorf("%d resources took %v, want the %v of their decoder", responses*per, took, want)
		}
	})
}

// A server that opens the stream again and again has no further burst.
func TestWorkIsCountedAcrossStreams(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		works(types.clusters, time.Second)
		a, _ := listen(t, c, types.clusters, "a")
		start := time.Now()
		n := 0
		for time.Since(start) < time.Minute {
			s := server.asked()
			for range 3 {
				n++
				s.send(types.clusters, fmt.Sprint(n), fmt.Sprint(n), cluster("a", fmt.Sprint(n)))
				a.cluster(fmt.Sprint(n))
			}
			s.breakOff()
		}
		if n > 35 {
			t.Errorf("%d s of work in a minute, want some 25", n)
		}
	})
}
