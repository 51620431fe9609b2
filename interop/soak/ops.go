package soak

import (
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/testutils"
)

// An op is an operation on a mesh. do reports whether it could be done; it may draw
// random numbers either way.
type op struct {
	name   string
	weight int
	do     func(r *run) bool
}

// honestRound and lyingRound are the operations of the two kinds of rounds. Weights are relative. DPDS moves no
// client in a round with lies: one that moves subscribes again, and a lie in the response withdraws what it had.
var (
	honestRound = slices.Concat(honestOps, policyOps, certificateOps, networkOps, dpdsOps)
	lyingRound  = slices.Concat(honestOps, policyOps, certificateOps, networkOps, spoilingOps, lies)
)

// spoilingOps spoil resources in the store, in rounds with lies.
var spoilingOps = []op{
	{"resources are deleted", 3, func(r *run) bool {
		return r.spoil(func(tx *controlplane.Tx, k key) { tx.Delete(k.typeURL, k.name) })
	}},
	{"resources are replaced by errors", 4, (*run).putErrors},
}

// honestOps are those of every round.
var honestOps = []op{
	{"routes change", 10, func(r *run) bool {
		return r.changeRoutes(r.reroute)
	}},
	{"a cluster is added", 6, (*run).addCluster},
	{"a cluster is removed", 4, (*run).dropCluster},
	{"endpoints change", 12, changeCluster(func(s *clusterSpec, drawn clusterSpec) { s.placements = drawn.placements })},
	{"a cluster's policy changes", 4, changeCluster(func(s *clusterSpec, drawn clusterSpec) { s.policy = drawn.policy })},
	{"a cluster's ClusterLoadAssignment gets another name", 4, changeCluster(func(s *clusterSpec, drawn clusterSpec) { s.service = drawn.service })},
	{"routes move inline, or back", 2, func(r *run) bool {
		return r.changeRoutes(func(c *config) { c.inline = !c.inline })
	}},
	{"routes get another name", 2, func(r *run) bool {
		return r.changeRoutes(func(c *config) { c.routeName = routeNames[r.IntN(len(routeNames))] })
	}},
	{"filters change", 6, func(r *run) bool {
		return r.changeRoutes(func(c *config) {
			chosen := r.Perm(len(filterNames))[:r.IntN(len(filterNames)+1)]
			c.filters = nil
			for _, i := range chosen {
				c.filters = append(c.filters, filterNames[i])
			}
		})
	}},
	{"retries change", 2, func(r *run) bool {
		return r.changeRoutes(func(c *config) { c.retry = !c.retry })
	}},
	{"a backend stops gracefully", 4, func(r *run) bool { return r.stopBackend((*backend).GracefulStop) }},
	{"a backend crashes", 2, func(r *run) bool { return r.stopBackend((*backend).crash) }},
	{"the control plane restarts", 3, func(r *run) bool { return r.stop(r.control, r.control.Stop) }},
	{"the control plane restarts gracefully", 2, func(r *run) bool { return r.stop(r.control, r.control.GracefulStop) }},
	{"the control plane breaks streams", 2, func(r *run) bool {
		r.control.BreakStreams(status.Error(codes.Internal, "on purpose"))
		return true
	}},
	{"the control plane refuses streams", 2, func(r *run) bool {
		return r.disrupt(r.control, func() func() {
			r.control.RefuseStreams(status.Error(codes.Unavailable, "on purpose"))
			r.control.BreakStreams(errOnPurpose)
			return func() { r.control.RefuseStreams(nil) }
		})
	}},
	{"the control plane stops sending", 3, func(r *run) bool { return r.disrupt(r.control, r.control.StallSends) }},
	{"the control plane stops reading", 3, func(r *run) bool { return r.disrupt(r.control, r.control.StallReads) }},
	{"a relay is killed, and restarts", 6, func(r *run) bool {
		relay := r.relays[relaying[r.IntN(len(relaying))]]
		return r.stop(relay, relay.Stop)
	}},
	{"a channel is opened and closed", 2, (*run).passingChannel},
}

// passingChannel opens a channel, makes an RPC and closes it. It needs a control plane
// that works, since it waits for the same resources as the other channels.
func (r *run) passingChannel() bool {
	who := r.clients[r.IntN(len(r.clients))]
	for _, needed := range []any{who.name, who.via.host(), r.control, r.dpdsServer(who.dpds), r.relays[who.via]} {
		if r.disrupted[needed] {
			return false
		}
	}
	if r.within > settling { // Its client may have a connection that was lost, and not have noticed.
		return false
	}
	cc := r.dial(r.t, who)
	defer cc.Close()
	ctx := testutils.Context(r.t)
	if _, err := testpb.NewTestServiceClient(cc).UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.WaitForReady(true)); err != nil {
		r.t.Errorf("a channel opened in round %d, %s: %v", r.rounds, who.name, err)
	}
	return true
}
