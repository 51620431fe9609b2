package relay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/relay"
)

// A client that never reads holds up neither the others nor the control plane.
func TestClientThatNeverReads(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "delta")
	set := func(n int) {
		c := xdsmsg.EDSCluster("c", "")
		c.AltStatName = fmt.Sprint(n, strings.Repeat("x", 1<<20)) // more than flow control lets through
		r.up.Set(t, c)
	}
	set(0)
	deaf, other := r.delta(), r.delta()
	subscribe(deaf, node("deaf"), clusterType, "c")
	subscribe(other, node("other"), clusterType, "c")
	wantOnly(other, "c")
	for n := range 20 {
		set(n + 1)
		for v := ""; v != r.version(clusterType, "c"); { // what lies between may be left out
			v = wantOnly(other, "c").GetVersion()
		}
	}
	if s := r.Stats(); s.Cached != 1 {
		t.Errorf("got %+v, want one version of one resource", s)
	}
}

// What clients may make the relay keep has limits: subscriptions, types, streams upstream.
func TestLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *relay.Options) {
		o.Server.MaxSubscriptions, o.MaxGroups = 600, 1
	}, "delta")
	r.up.Set(t, xdsmsg.EDSCluster("c", ""))
	greedy := r.delta()
	names := make([]string, 601)
	for i := range names {
		names[i] = fmt.Sprint("name", i)
	}
	subscribe(greedy, node("greedy"), clusterType, names...)
	if _, err := greedy.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v, want RESOURCE_EXHAUSTED", err)
	}
	inventive := r.delta()
	for i := range 270 {
		subscribe(inventive, node("inventive"), fmt.Sprintf("type.googleapis.com/t%d", i), "x")
	}
	for refused := false; !refused; {
		for _, e := range inventive.receive().GetResourceErrors() {
			refused = refused || codes.Code(e.GetErrorDetail().GetCode()) == codes.ResourceExhausted
		}
	}
	subscribe(inventive, nil, xdsmsg.RouteType, "x") // is no invention
	for known := false; !known; {
		known = len(inventive.receive().GetRemovedResources()) > 0
	}
	stranger := r.client(node("stranger", "ENV", "other"), "c")
	if _, err := stranger.Recv(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "--fold-by") {
		t.Errorf("got %v, want RESOURCE_EXHAUSTED and the way out", err)
	}
	// Others are served.
	r.subscriber("d", "c")
}

// A client whose own stream upstream was refused gets it when another one has left.
func TestOwnStreamsMakeRoom(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *relay.Options) { o.MaxGroups = 2 }, "delta", variants)
	r.rewrap(func(m *discoverypb.Resource) { m.CacheControl = &discoverypb.Resource_CacheControl{DoNotCache: true} })
	r.up.Set(t, xdsmsg.EDSCluster("c", ""), xdsmsg.EDSCluster("d", ""))
	first, second := r.delta(), r.delta()
	subscribe(first, node("first"), clusterType, "c")
	wantOnly(first, "c")
	subscribe(second, node("second"), clusterType, "c", "d")
	refused := 0
	for refused < 2 {
		for _, e := range second.receive().GetResourceErrors() {
			if code := codes.Code(e.GetErrorDetail().GetCode()); code != codes.ResourceExhausted {
				t.Fatalf("got %v, want RESOURCE_EXHAUSTED", code)
			}
			refused++
		}
	}
	first.stop()
	for got := 0; got < 2; {
		got += len(second.receive().GetResources())
	}
}

// A reply with a nonce that the relay has not sent, and one to a response of another type, change
// nothing.
func TestLyingNonces(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "delta")
	r.up.Set(t, xdsmsg.EDSCluster("c", ""))
	d := r.subscriber("d", "c")
	for range 100 {
		d.send(&discoverypb.DeltaDiscoveryRequest{
			TypeUrl: clusterType, ResponseNonce: "made up", ErrorDetail: status.New(codes.InvalidArgument, `"c" is bad`).Proto(),
		})
	}
	r.up.Set(t, xdsmsg.EDSCluster("c", "changed"))
	wantOnly(d, "c")
	if n := r.nacks(); n != 0 {
		t.Errorf("the control plane was sent %d NACKs, want none", n)
	}
	r.up.MustWait(r.ctx, t, xdstest.ACKOf(clusterType))
}

// Types that differ from those of xDS in the prefix of their URL are inventions too.
func TestInventedPrefixesOfTypes(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "delta")
	d := r.delta()
	for i := range 270 {
		subscribe(d, node("inventive"), fmt.Sprintf("p%d/envoy.config.cluster.v3.Cluster", i), "x")
	}
	for refused := false; !refused; {
		for _, e := range d.receive().GetResourceErrors() {
			refused = refused || codes.Code(e.GetErrorDetail().GetCode()) == codes.ResourceExhausted
		}
	}
}

// A group without clients makes room for others, rather than keep them out until it has lingered.
func TestGroupsThatLingerMakeRoom(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *relay.Options) { o.Linger, o.MaxGroups = time.Hour, 2 }, "delta")
	r.up.Set(t, xdsmsg.EDSCluster("c", ""))
	stays := r.client(node("stays", "ENV", "stays"), "c")
	wantOnly(stays, "c")
	for i := range 10 {
		for { // the relay may still see the client before
			d := r.client(node("a", "ENV", fmt.Sprint(i)), "c")
			resp, err := d.Recv()
			d.stop()
			if err == nil {
				only(t, resp, "c")
				break
			}
			if status.Code(err) != codes.ResourceExhausted {
				t.Fatal(err)
			}
		}
	}
	if got := r.Stats(); got.Groups > 2 || got.Upstreams > 2 {
		t.Errorf("got %+v, want two groups", got)
	}
	r.up.Set(t, xdsmsg.EDSCluster("c", "changed"))
	wantOnly(stays, "c")
}
