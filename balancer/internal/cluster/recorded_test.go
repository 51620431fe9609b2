package cluster_test

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/lbtest"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// connectAll makes an RPC, as ring_hash connects an endpoint only then.
func connectAll(f *fixture) {
	f.CC.Pick(&decision.Decision{Context: context.Background(), Extra: &decision.Extra{RPC: new(counting)}})
	synctest.Wait()
}

const (
	inA = `{region="", zone="a", sub_zone=""}`
	inB = `{region="", zone="b", sub_zone=""}`
)

// gRFC A94, "Proposal": each subchannel has grpc.lb.backend_service and grpc.lb.locality, by
// endpoint.
func TestLabelsOfConnections(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"round_robin", "pick_first", "weighted_round_robin", xdsresource.PolicyRingHash, xdsresource.PolicyRandom} {
		t.Run(policy, subtest(func(t *testing.T, f *fixture) {
			f.Record()
			f.update(by(policy, "", at("a", 0, "a:1")))
			connectAll(f)
			if !f.CC.Labelled("a:1", "backend", inA) {
				t.Errorf("no connection to a:1 is labelled as of %s", inA)
			}
			if policy == xdsresource.PolicyRingHash {
				return // The same policy has the endpoint in whatever locality, and keeps its connection.
			}
			f.update(by(policy, "", at("b", 0, "a:1")))
			connectAll(f)
			if !f.CC.Labelled("a:1", "backend", inB) {
				t.Errorf("no connection to a:1 is labelled as of %s after a move", inB)
			}
		}))
		t.Run(policy+", across localities", subtest(func(t *testing.T, f *fixture) {
			f.Record()
			c := by(policy, "", at("a", 0, "a:1"), at("b", 0, "b:1"))
			c.Cluster.AcrossLocalities = true
			f.update(c)
			connectAll(f)
			for _, addr := range f.CC.Open() {
				if want := map[string]string{"a:1": inA, "b:1": inB}[addr]; !f.CC.Labelled(addr, "backend", want) {
					t.Errorf("no connection to %s is labelled as of %s", addr, want)
				}
			}
			if len(f.CC.Open()) == 0 {
				t.Error("nothing is connected")
			}
		}))
	}
}

// If no metrics are recorded, connections and policies have no labels.
func TestNoLabelsIfNothingIsRecorded(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.update(by("weighted_round_robin", "", at("a", 0, "a:1")))
		connectAll(f)
		result, _, err := f.pick()
		xdstest.NoError(t, err)
		result.Done(balancer.DoneInfo{})
		if a := lbtest.Picked(result).Address; a.Attributes != nil {
			t.Errorf("a connection was made with %v", a)
		}
	})
}

// gRFC A78, "Optional xDS Locality Label" and "WRR"; gRFC A89, "Add grpc.lb.backend_service to WRR
// metrics". A policy with endpoints of several localities has no locality.
func TestLabelsOfWeightedRoundRobin(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		across bool
		in     []string
	}{
		"by locality":       {false, []string{inA, inB}},
		"across localities": {true, []string{""}},
	} {
		t.Run(name, subtest(func(t *testing.T, f *fixture) {
			meter := f.Record()
			c := by("weighted_round_robin", `{"weightUpdatePeriod":"1s"}`, at("a", 0, "a:1", "a:2"), at("b", 0, "b:1", "b:2"))
			c.Cluster.AcrossLocalities = tc.across
			f.update(c)
			time.Sleep(time.Second)
			synctest.Wait()
			seen := meter.Counts("grpc.lb.wrr.")
			got := make(map[string]bool)
			for key := range seen {
				got[key] = true
			}
			want := make(map[string]bool)
			for _, in := range tc.in {
				for _, metric := range []string{"rr_fallback", "endpoint_weight_not_yet_usable", "endpoint_weights"} {
					want["grpc.lb.wrr."+metric+" grpc.target=:/// grpc.lb.locality="+in+" grpc.lb.backend_service=backend"] = true
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("recorded %v, want each of %v", seen, want)
			}
			f.Close() // Its scheduler would keep the bubble.
		}))
	}
}

// gRFC A78, "Per-Call Metrics", and gRFC A94: a connection that only sessions use is labelled with
// the locality that its endpoint has.
func TestLabelsOfSessionConnections(t *testing.T) {
	test(t, func(t *testing.T, f *fixture) {
		f.Record()
		c := sticky(healthy|draining, at("a", 0, "a:1"), drain(at("b", 0, "b:1"), "b:1"))
		f.update(c)
		f.expectFor("draining", []string{"b:1"}, "b:1")
		if !f.CC.Labelled("b:1", "backend", inB) {
			t.Errorf("no connection to b:1 is labelled as of %s", inB)
		}
		got, _, err := labelsOfPick(f, "b:1")
		xdstest.NoError(t, err)
		wantLabels(t, got, "unknown", "unknown", inB)

		f.update(sticky(healthy|draining, at("a", 0, "a:1"), drain(at("c", 0, "b:1"), "b:1")))
		if got, _, err = labelsOfPick(f, "b:1"); err != nil {
			t.Fatal(err)
		}
		wantLabels(t, got, "unknown", "unknown", `{region="", zone="c", sub_zone=""}`)

		// A connection of a policy's that is kept for sessions when its endpoint begins to drain.
		f.expectFor("healthy", []string{"a:1"}, "a:1")
		f.update(sticky(healthy|draining, drain(at("b", 0, "a:1"), "a:1"), at("b", 0, "d:1")))
		f.ExpectOpen("after a:1 was drained", "a:1", "d:1")
		if got, _, err = labelsOfPick(f, "a:1"); err != nil {
			t.Fatal(err)
		}
		wantLabels(t, got, "unknown", "unknown", inB)
	})
}
