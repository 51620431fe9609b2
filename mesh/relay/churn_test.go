package relay_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/relay"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// Clients of several nodes and both protocols come and go, reject, and leave without reading, while the
// control plane changes, denies and restarts: nothing is left of them, and who comes after is
// served. A relay that closes amid all that ends too.
func TestChurn(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, func(o *relay.Options) { o.Linger, o.AwayDelay = -1, -1 }, append(features, variants)...)
		closing, addr := r.start(func(o *relay.Options) { o.Linger = 1 }, features...)
		ctx, stop := context.WithCancel(r.ctx)
		defer stop()
		var clients, others sync.WaitGroup
		var served atomic.Int64
		for i := range 50 {
			clients.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(i)))
				for range 4 {
					to := r.addr
					if random.IntN(3) == 0 {
						to = addr
					}
					served.Add(int64(r.visit(to, i, random)))
				}
			})
		}
		others.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				r.up.Update(t, func(tx *controlplane.Tx) {
					tx.Set(xdsmsg.EDSCluster(fmt.Sprint("c", n%5), fmt.Sprint(n)))
					tx.SetError(clusterType, fmt.Sprint("c", (n+1)%5), status.New(codes.PermissionDenied, "no"))
					tx.Delete(clusterType, fmt.Sprint("c", (n+2)%5))
				})
				if n%20 == 19 {
					r.up.Stop()
					if err := r.up.Restart(); err != nil {
						t.Error(err)
						return
					}
				}
				if n == 10 {
					closing.Close()
				}
				r.Stats()
				select {
				case <-time.After(5 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
		clients.Wait()
		stop()
		others.Wait()
		closing.Close()
		if served.Load() == 0 {
			t.Error("no client was served")
		}
		r.await("everything has ended", func(s relay.Stats) bool {
			s.ServedAway = 0
			return s == relay.Stats{}
		})
		r.up.Set(t, xdsmsg.EDSCluster("c", ""))
		r.subscriber("after", "c")
	})
}

// visit is one stream of a client, which ends at some point. It returns the number of responses.
func (r *rig) visit(addr string, i int, random *rand.Rand) (responses int) {
	n := node(fmt.Sprint(i), "ENV", fmt.Sprint(i%3))
	names := []string{fmt.Sprint("c", random.IntN(5)), fmt.Sprint("c", random.IntN(5))}
	if random.IntN(2) == 0 {
		s := open[discoverypb.DiscoveryRequest, discoverypb.DiscoveryResponse](r.ctx, r.t, addr, "StreamAggregatedResources")
		defer s.stop()
		s.Send(&discoverypb.DiscoveryRequest{Node: n, TypeUrl: clusterType, ResourceNames: names})
		for range random.IntN(4) {
			resp, err := s.Recv()
			if err != nil {
				return responses
			}
			responses++
			s.Send(&discoverypb.DiscoveryRequest{TypeUrl: clusterType, ResourceNames: names, ResponseNonce: resp.GetNonce(), VersionInfo: resp.GetVersionInfo()})
		}
		return responses
	}
	d := r.deltaTo(addr)
	defer d.stop()
	d.Send(&discoverypb.DeltaDiscoveryRequest{Node: n, TypeUrl: clusterType, ResourceNamesSubscribe: names})
	for range random.IntN(4) {
		resp, err := d.Recv()
		if err != nil {
			return responses
		}
		responses++
		d.Send(&discoverypb.DeltaDiscoveryRequest{
			TypeUrl: clusterType, ResponseNonce: resp.GetNonce(),
			ErrorDetail: status.New(codes.InvalidArgument, fmt.Sprintf("%q: no use", names[0])).Proto(),
		})
	}
	return responses
}
