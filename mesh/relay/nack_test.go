package relay_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/relay"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// sendNACK rejects a response with Clusters.
func sendNACK(d *deltaStream, nonce, text string) {
	d.send(&discoverypb.DeltaDiscoveryRequest{
		TypeUrl: clusterType, ResponseNonce: nonce,
		ErrorDetail: &statuspb.Status{Code: int32(codes.InvalidArgument), Message: text},
	})
}

// nacks is the number of NACKs that the control plane was sent.
func (r *rig) nacks() (n int) {
	for _, req := range r.up.Requests() {
		if req.Err != nil {
			n++
		}
	}
	return n
}

// NACKs of clients are counted and reported with the client, and the control plane is sent none, even if all
// clients reject what it has sent.
func TestRejectionsAreCounted(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		heard := make(chan string, 10)
		r := newRig(t, func(o *relay.Options) {
			o.Server.OnNACK = func(n controlplane.Rejection) { heard <- n.Node.GetId() + ": " + n.NACK.Err.Message() }
		}, features...)
		r.up.Set(t, xdsmsg.EDSCluster("c", ""))
		clients := make([]*deltaStream, 3)
		for i := range clients {
			clients[i] = r.client(node(fmt.Sprint(i)), "c")
			resp := clients[i].receive()
			only(t, resp, "c")
			sendNACK(clients[i], resp.GetNonce(), `"c": no use`)
			select {
			case got := <-heard:
				if want := fmt.Sprint(i, `: "c": no use`); got != want {
					t.Errorf("the relay reported %q, want %q", got, want)
				}
			case <-r.ctx.Done():
				t.Fatal("the rejection was not reported")
			}
		}
		if got := r.Stats().Rejections; got != 3 {
			t.Errorf("%d rejections were counted, want 3", got)
		}
		// The ACK of the next version comes after any NACK of this one.
		first := r.up.MustWait(r.ctx, t, xdstest.ACKOf(clusterType)).Nonce
		r.up.Set(t, xdsmsg.EDSCluster("c", "changed"))
		wantOnly(clients[0], "c")
		r.up.MustWait(r.ctx, t, func(req xdstest.Request) bool {
			return xdstest.ACKOf(clusterType)(req) && req.Nonce != first
		})
		if n := r.nacks(); n != 0 {
			t.Errorf("the control plane was sent %d NACKs, want none", n)
		}
	})
}

// The text of a NACK is not kept, however long it is and however many resources it names.
func TestRejectionOfManyResourcesKeepsNothing(t *testing.T) {
	r := newRig(t, nil, "delta")
	addr := r.serve(r.Relay, grpc.MaxRecvMsgSize(64<<20))
	const resources, size = 200, 10 << 20
	names := make([]string, resources)
	clusters := make([]proto.Message, resources)
	for i := range names {
		names[i] = fmt.Sprint("c", i)
		clusters[i] = xdsmsg.EDSCluster(names[i], "")
	}
	r.up.Set(t, clusters...)
	d := r.deltaTo(addr)
	subscribe(d, node("a"), clusterType, names...)
	nonce := ""
	for got := 0; got < resources; {
		resp := d.receive()
		got += len(resp.GetResources())
		nonce = resp.GetNonce()
	}
	heap := func() uint64 {
		var m runtime.MemStats
		for range 3 { // gRPC's buffers are in a pool, which the second one empties
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	sendNACK(d, nonce, `"`+strings.Join(names, `" "`)+`"`+strings.Repeat("x", size))
	r.await("the NACK is counted", func(s relay.Stats) bool { return s.Rejections == 1 })
	subscribe(d, nil, clusterType, "unknown") // shows that the relay is done with the NACK
	d.receive()
	if after := heap(); after > before+size/4 {
		t.Errorf("the heap grew from %d to %d bytes, want a small part of the text of %d bytes", before, after, size)
	}
}
