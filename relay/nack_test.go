package relay_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/relay"
)

// respoil has the control plane send other bytes for each resource, under the same version; the correct
// ones again if there are none.
func (r *rig) respoil(with []byte) {
	if with == nil {
		r.up.OnResponse(nil)
		r.up.OnDeltaResponse(nil)
		return
	}
	spoil := func(a *anypb.Any) *anypb.Any { return &anypb.Any{TypeUrl: a.GetTypeUrl(), Value: with} }
	r.up.OnResponse(func(_ uint64, resp *discoverypb.DiscoveryResponse) *discoverypb.DiscoveryResponse {
		for i, a := range resp.Resources {
			resp.Resources[i] = spoil(a)
		}
		return resp
	})
	r.rewrap(func(m *discoverypb.Resource) { m.Resource = spoil(m.Resource) })
}

// newNACKRig is newRig with a channel that has the node ID of the client of each NACK that the relay was sent.
func newNACKRig(t *testing.T, features ...string) (*rig, <-chan string) {
	t.Helper()
	heard := make(chan string, 100)
	return newRig(t, func(o *relay.Options) {
		o.Server.OnNACK = func(n controlplane.Rejection) { heard <- n.Node.GetId() }
	}, features...), heard
}

// sendNACK rejects a response with Clusters.
func sendNACK(d *deltaStream, nonce, text string) {
	d.send(&discoverypb.DeltaDiscoveryRequest{
		TypeUrl: clusterType, ResponseNonce: nonce,
		ErrorDetail: &statuspb.Status{Code: int32(codes.InvalidArgument), Message: text},
	})
}

// A resource is rejected upstream once all subscribers have rejected it. Until then the relay only counts
// the NACKs, and reports their clients.
func TestRejections(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r, heard := newNACKRig(t, features...)
		r.up.Set(t, xdsmsg.EDSCluster("c", ""), xdsmsg.EDSCluster("d", ""))
		clients := make([]*deltaStream, 3)
		nonces := make([]string, 3)
		for i := range clients {
			clients[i] = r.client(node(fmt.Sprint(i)), "c")
			resp := clients[i].receive()
			only(t, resp, "c")
			nonces[i] = resp.GetNonce()
		}
		// The third has another resource too, and no objection against it.
		subscribe(clients[2], nil, clusterType, "d")
		wantOnly(clients[2], "d")
		reject := func(i int, text string) {
			t.Helper()
			sendNACK(clients[i], nonces[i], text)
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
		if n := r.nacks(); n != 0 {
			t.Errorf("the control plane was sent %d NACKs while a client has the resource and does not reject it, want none", n)
		}
		reject(2, `invalid: "c"`)
		nack := r.up.MustWait(r.ctx, t, xdstest.NACKOf(clusterType))
		if got := nack.Err.Message(); got != `Cluster "c": rejected by all clients of the relay: invalid: "c"` {
			t.Errorf("the control plane was sent the NACK %q", got)
		}
		if got := r.Stats().Rejections; got != 3 {
			t.Errorf("%d rejections were counted, want 3", got)
		}
	})
}

// A NACK is for the version that the client has, and not for one that has replaced it.
func TestRejectionOfAReplacedVersion(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r, heard := newNACKRig(t, features...)
		r.up.Set(t, xdsmsg.EDSCluster("c", ""), xdsmsg.EDSCluster("d", ""))
		d := r.client(node("a"), "c")
		old := d.receive()
		only(t, old, "c")
		r.up.Set(t, xdsmsg.EDSCluster("c", "changed"))
		now := d.receive()
		only(t, now, "c")
		for i, nonce := range []string{old.GetNonce(), now.GetNonce()} {
			sendNACK(d, nonce, fmt.Sprintf("%q: no use %d", "c", i))
			<-heard
		}
		nack := r.up.MustWait(r.ctx, t, xdstest.NACKOf(clusterType))
		if !strings.Contains(nack.Err.Message(), "no use 1") {
			t.Errorf("the control plane was sent the NACK %q, of a version that it has replaced", nack.Err.Message())
		}
	})
}

// A heartbeat is for the resource that clients have rejected before.
func TestRejectionsOutliveAHeartbeat(t *testing.T) {
	t.Parallel()
	r, heard := newNACKRig(t, "delta")
	const ttl = time.Minute
	r.rewrap(func(m *discoverypb.Resource) { m.Ttl = durationpb.New(ttl) })
	r.up.Set(t, xdsmsg.EDSCluster("c", ""))
	a, b := r.delta(), r.delta()
	subscribe(a, node("a"), clusterType, "c")
	subscribe(b, node("b"), clusterType, "c")
	reject := func(d *deltaStream, nonce string) {
		sendNACK(d, nonce, `"c": no use`)
		<-heard
	}
	ofA, ofB := a.receive(), b.receive()
	reject(a, ofA.GetNonce())
	xdstest.NoError(t, r.up.Send(&discoverypb.DeltaDiscoveryResponse{
		TypeUrl: clusterType, Nonce: "heartbeat",
		Resources: []*discoverypb.Resource{{Name: "c", Version: only(t, ofA, "c").GetVersion(), Ttl: durationpb.New(ttl)}},
	}))
	wantOnly(b, "c")
	reject(b, ofB.GetNonce())
	r.up.MustWait(r.ctx, t, xdstest.NACKOf(clusterType))
}

// rejecter subscribes to a Cluster "c" and rejects it.
func (r *rig) rejecter(id string) *deltaStream {
	r.t.Helper()
	d := r.client(node(id), "c")
	r.reject(d, id)
	return d
}

func (r *rig) reject(d *deltaStream, id string) {
	r.t.Helper()
	resp := d.receive()
	only(r.t, resp, "c")
	sendNACK(d, resp.GetNonce(), `"c": no use for `+id)
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

// A client that has not rejected a resource counts while it is there: once it has left, all who stay reject
// it; one that comes takes that back.
func TestRejectionsOfThoseWhoStay(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r, heard := newNACKRig(t, features...)
		r.up.Set(t, xdsmsg.EDSCluster("c", ""), xdsmsg.EDSCluster("d", ""))
		accepts := r.subscriber("accepts", "c")
		r.rejecter("stays")
		<-heard
		for i := range 5 { // those who have left are not remembered in place of those who stay
			leaves := r.rejecter(fmt.Sprint("leaves", i))
			<-heard
			leaves.stop()
		}
		if n := r.nacks(); n != 0 {
			t.Errorf("the control plane was sent %d NACKs while there is a client that accepts, want none", n)
		}
		accepts.send(&discoverypb.DeltaDiscoveryRequest{TypeUrl: clusterType, ResourceNamesUnsubscribe: []string{"c"}})
		r.up.MustWait(r.ctx, t, xdstest.NACKOf(clusterType))
		// What is sent again is rejected again, while there is no other client.
		r.up.Stop()
		xdstest.NoError(t, r.up.Restart())
		r.up.MustWait(r.ctx, t, xdstest.NACKOf(clusterType))
		young := r.subscriber("young", "c")
		subscribe(young, nil, clusterType, "d") // shows that the relay has processed the first
		wantOnly(young, "d")
		before := r.nacks()
		r.up.Stop()
		xdstest.NoError(t, r.up.Restart())
		r.up.Set(t, xdsmsg.EDSCluster("d", "changed"))
		wantOnly(young, "d")
		if n := r.nacks(); n != before {
			t.Errorf("the control plane was sent %d NACKs since there is a client that has rejected nothing, want none", n-before)
		}
	})
}

// A NACK that waits for a control plane that does not read is not lost with the stream.
func TestRejectionOutlivesTheStream(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r, heard := newNACKRig(t, features...)
		r.up.Set(t, xdsmsg.EDSCluster("c", ""))
		d := r.client(node("a"), "c")
		r.up.MustWait(r.ctx, t, xdstest.ACKOf(clusterType))
		resume := r.up.StallReads()
		r.reject(d, "a")
		<-heard
		if n := r.nacks(); n != 0 {
			t.Fatalf("the control plane has read %d NACKs", n)
		}
		r.up.Stop()
		resume()
		xdstest.NoError(t, r.up.Restart())
		r.up.MustWait(r.ctx, t, xdstest.NACKOf(clusterType))
	})
}

// A control plane that sends a resource again gets the NACK again, on each stream, if all reject it; and if it
// corrects it without another version, the clients get that. Over SotW too, if all resources are sent.
func TestRejectionsOutliveTheStream(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, nil, features...)
		spoilt, err := proto.Marshal(xdsmsg.EDSCluster("c", "spoilt"))
		xdstest.NoError(t, err)
		r.respoil(spoilt)
		r.up.Set(t, xdsmsg.EDSCluster("c", "correct"))
		version := r.version(clusterType, "c")
		d := r.client(node("a"), "c")
		first := d.receive()
		if got := only(t, first, "c"); !bytes.Equal(got.GetResource().GetValue(), spoilt) {
			t.Fatalf("got %v, want the spoilt one", got)
		}
		sendNACK(d, first.GetNonce(), `"c": no use`)
		r.up.MustWait(r.ctx, t, xdstest.NACKOf(clusterType))
		for range 2 {
			before := r.up.Attempts()
			r.up.BreakStreams(nil)
			xdstest.NoError(t, r.up.WaitAttempts(r.ctx, before+1))
			nack := r.up.MustWait(r.ctx, t, func(req xdstest.Request) bool {
				return req.Stream > uint64(before) && xdstest.NACKOf(clusterType)(req)
			})
			if got := nack.Err.Message(); got != `Cluster "c": rejected by all clients of the relay: "c": no use` {
				t.Errorf("the control plane was sent the NACK %q", got)
			}
		}
		r.respoil(nil)
		r.up.BreakStreams(nil)
		got := wantOnly(d, "c")
		m := new(clusterpb.Cluster)
		xdstest.NoError(t, got.GetResource().UnmarshalTo(m))
		if m.GetEdsClusterConfig().GetServiceName() != "correct" {
			t.Errorf("got %v after the correction", m)
		}
		if len(features) > 0 && got.GetVersion() != version {
			t.Errorf("got version %q, want %q", got.GetVersion(), version)
		}
	})
}
