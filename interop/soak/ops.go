package soak

import (
	"errors"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/testutils"
)

// An op is an operation on a mesh. do reports whether it could be done; it may draw
// random numbers either way.
type op struct {
	name   string
	weight int
	do     func(r *run) bool
}

// ops are all operations. Weights are relative.
var ops = slices.Concat(honestOps, policyOps, certificateOps, networkOps, spoilingOps, lies, dpdsOps)

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
		return r.change(func(c *config) { c.version++; r.reroute(c) })
	}},
	{"a cluster is added", 6, (*run).addCluster},
	{"a cluster is removed", 4, (*run).dropCluster},
	{"endpoints change", 12, func(r *run) bool {
		return r.changeCluster(func(old clusterSpec, name string) clusterSpec {
			old.placements = r.placements()
			return old
		})
	}},
	{"a cluster's policy changes", 4, func(r *run) bool {
		return r.changeCluster(func(old clusterSpec, name string) clusterSpec {
			old.policy = r.cluster(name).policy
			return old
		})
	}},
	{"a cluster's ClusterLoadAssignment gets another name", 4, func(r *run) bool {
		return r.changeCluster(func(old clusterSpec, name string) clusterSpec {
			old.service = r.cluster(name).service
			return old
		})
	}},
	{"routes move inline, or back", 2, func(r *run) bool {
		return r.change(func(c *config) { c.version++; c.inline = !c.inline })
	}},
	{"routes get another name", 2, func(r *run) bool {
		return r.change(func(c *config) { c.version++; c.routeName = routeNames[r.IntN(len(routeNames))] })
	}},
	{"filters change", 6, func(r *run) bool {
		return r.change(func(c *config) {
			c.version++
			chosen := r.Perm(len(filterNames))[:r.IntN(len(filterNames)+1)]
			c.filters = nil
			for _, i := range chosen {
				c.filters = append(c.filters, filterNames[i])
			}
		})
	}},
	{"retries change", 2, func(r *run) bool {
		return r.change(func(c *config) { c.version++; c.retry = !c.retry })
	}},
	{"a backend stops gracefully", 4, func(r *run) bool { return r.stopBackend((*backend).GracefulStop) }},
	{"a backend crashes", 2, func(r *run) bool { return r.stopBackend((*backend).crash) }},
	{"the control plane restarts", 3, func(r *run) bool {
		return r.fault((*meshtest.Server).Stop, func(f *meshtest.Server) { r.must(f.Restart()) })
	}},
	{"the control plane restarts gracefully", 2, func(r *run) bool {
		return r.fault((*meshtest.Server).GracefulStop, func(f *meshtest.Server) { r.must(f.Restart()) })
	}},
	{"the control plane breaks streams", 2, func(r *run) bool {
		r.control.BreakStreams(status.Error(codes.Internal, "on purpose"))
		return true
	}},
	{"the control plane refuses streams", 2, func(r *run) bool {
		return r.fault(func(f *meshtest.Server) {
			f.RefuseStreams(status.Error(codes.Unavailable, "on purpose"))
			f.BreakStreams(errors.New("on purpose"))
		}, func(f *meshtest.Server) { f.RefuseStreams(nil) })
	}},
	{"the control plane stops sending", 3, func(r *run) bool {
		var resume func()
		return r.fault(func(f *meshtest.Server) { resume = f.StallSends() }, func(*meshtest.Server) { resume() })
	}},
	{"the control plane stops reading", 3, func(r *run) bool {
		var resume func()
		return r.fault(func(f *meshtest.Server) { resume = f.StallReads() }, func(*meshtest.Server) { resume() })
	}},
	{"a relay is killed, and restarts", 6, func(r *run) bool { return r.killRelay() }},
	{"a channel is opened and closed", 2, (*run).passingChannel},
}

// passingChannel opens a channel, makes an RPC and closes it. It needs a control plane
// that works, since it waits for the same resources as the other channels.
func (r *run) passingChannel() bool {
	who := r.clients[r.IntN(len(r.clients))]
	if r.cut[hostID(who.name)] > 0 || r.cut[hostID(who.via.host())] > 0 || r.faulty[r.control] || r.faulty[r.dpdsServer(who.dpds)] || who.via != noRelay && r.relays[who.via].stop == nil {
		return false
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
