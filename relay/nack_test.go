package relay_test

import (
	"fmt"
	"testing"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/relay"
)

// The control plane is told of a NACK once all who have the resource reject it. Until then the relay
// only counts, and reports who.
func TestRejections(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		heard := make(chan string, 10)
		r := newRig(t, func(o *relay.Options) {
			o.Server.OnNACK = func(n controlplane.Rejection) { heard <- n.Node.GetId() }
		}, features...)
		r.up.Set(t, xdsmsg.EDSCluster("c", ""), xdsmsg.EDSCluster("d", ""))
		clients := make([]*deltaStream, 3)
		nonces := make([]string, 3)
		for i := range clients {
			clients[i] = r.delta()
			subscribe(clients[i], node(fmt.Sprint(i)), clusterType, "c")
			resp := clients[i].receive()
			only(t, resp, "c")
			nonces[i] = resp.GetNonce()
		}
		// The third has another resource too, and no objection against it.
		subscribe(clients[2], nil, clusterType, "d")
		only(t, clients[2].receive(), "d")
		reject := func(i int, text string) {
			t.Helper()
			clients[i].send(&discoverypb.DeltaDiscoveryRequest{
				TypeUrl: clusterType, ResponseNonce: nonces[i],
				ErrorDetail: &statuspb.Status{Code: int32(codes.InvalidArgument), Message: text},
			})
			select {
			case got := <-heard:
				if got != fmt.Sprint(i) {
					t.Errorf("the client that rejects is %q, want %d", got, i)
				}
			case <-r.ctx.Done():
				t.Fatal("the rejection was not reported")
			}
		}
		reject(0, `Cluster "c": no use`)
		reject(1, "c: no use, 'unknown', d")
		for _, req := range r.up.Requests() {
			if req.Err != nil {
				t.Errorf("the control plane was told: %v", req)
			}
		}
		reject(2, `invalid: "c"`)
		nack := r.up.MustWait(r.ctx, t, xdstest.NACKOf(clusterType))
		if got := nack.Err.Message(); got != `Cluster "c": rejected by all clients of the relay: invalid: "c"` {
			t.Errorf("the control plane was told %q", got)
		}
		if got := r.Stats().Rejections; got != 3 {
			t.Errorf("%d rejections were counted, want 3", got)
		}
	})
}
