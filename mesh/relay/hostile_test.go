package relay_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/mesh/relay"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
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

// What clients may make the relay keep has limits: subscriptions, streams upstream.
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
	r.subscriber("c", "c")
	stranger := r.client(node("stranger", "ENV", "other"), "c")
	if _, err := stranger.Recv(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "--one-group") {
		t.Errorf("got %v, want RESOURCE_EXHAUSTED and the way out", err)
	}
	// Others are served.
	r.subscriber("d", "c")
}

// A client whose own stream upstream was refused gets it when another one has left.
func TestOwnStreamsMakeRoom(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *relay.Options) { o.MaxGroups = 4 }, "delta", variants)
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

// invent subscribes to a resource of each of n types that a client invents. It returns how many of them are
// refused, once all are answered.
func (r *rig) invent(d *deltaStream, id, format string, n int) (refused int) {
	r.t.Helper()
	for i := range n {
		subscribe(d, node(id), fmt.Sprintf(format, i), "x")
	}
	for answers := 0; answers < n; {
		resp := d.receive()
		answers += len(resp.GetRemovedResources()) + len(resp.GetResourceErrors())
		for _, e := range resp.GetResourceErrors() {
			if code := codes.Code(e.GetErrorDetail().GetCode()); code != codes.ResourceExhausted {
				r.t.Fatalf("got %v, want RESOURCE_EXHAUSTED", e)
			}
			refused++
		}
	}
	return refused
}

// A client that invents types of resources is refused more than a number of them, and does not use up those of
// others. Types that differ from those of xDS in the prefix of their URL are inventions too. Of a client
// that has left nothing is left.
func TestInventedTypes(t *testing.T) {
	t.Parallel()
	for name, format := range map[string]string{"names": "type.googleapis.com/t%d", "prefixes": "p%d/envoy.config.cluster.v3.Cluster"} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			r := newRig(t, nil, "delta")
			r.up.Set(t, xdsmsg.EDSCluster("c", ""))
			stays := r.subscriber("stays", "c")
			inventive := r.delta()
			if refused := r.invent(inventive, "inventive", format, 300); refused != 300-2*128 {
				t.Errorf("%d types were refused, want %d", refused, 300-2*128)
			}
			subscribe(inventive, nil, xdsmsg.RouteType, "x") // is no invention
			for known := false; !known; {
				known = len(inventive.receive().GetRemovedResources()) > 0
			}
			for round := range 3 {
				other := r.delta()
				if refused := r.invent(other, "other", fmt.Sprint("type.googleapis.com/other", round, ".%d"), 100); refused != 0 {
					t.Errorf("%d types of another client were refused, want none", refused)
				}
				other.stop()
				r.await("nothing of the other client is left", func(s relay.Stats) bool { return s.Upstreams == 2 })
			}
			inventive.stop()
			r.await("nothing of the client is left", func(s relay.Stats) bool { return s.Upstreams == 1 && s.Subscriptions == 1 })
			r.up.Set(t, xdsmsg.EDSCluster("c", "changed"))
			wantOnly(stays, "c")
		})
	}
}

// A client that has invented all types that the stream of a group may have, and has left, does not make each other client
// have a stream of its own for a new type: they share one, which ends with the last of them.
func TestInventedTypesOfAClientThatHasLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *relay.Options) { o.Linger = -1 }, "delta")
	r.up.Set(t, xdsmsg.EDSCluster("c", ""))
	r.subscriber("stays", "c")
	inventive := r.delta()
	r.invent(inventive, "inventive", "type.googleapis.com/t%d", 300)
	inventive.stop()
	r.await("nothing of the client is left", func(s relay.Stats) bool { return s.Upstreams == 1 && s.Subscriptions == 1 })
	for range 2 {
		others := make([]*deltaStream, 3)
		for i := range others {
			others[i] = r.delta()
			subscribe(others[i], node("other"), "type.googleapis.com/new", fmt.Sprint(i))
			wantRemoved(others[i], fmt.Sprint(i))
		}
		if got := r.Stats(); got.Upstreams != 2 || got.Subscriptions != 4 {
			t.Errorf("got %+v, want one more stream upstream", got)
		}
		for _, d := range others {
			d.stop()
		}
		r.await("the stream that they shared ends", func(s relay.Stats) bool { return s.Upstreams == 1 && s.Subscriptions == 1 })
	}
	second := r.delta()
	if refused := r.invent(second, "second", "type.googleapis.com/second%d", 300); refused != 300-2*128 {
		t.Errorf("%d types of the next client were refused, want %d", refused, 300-2*128)
	}
}

// many returns n names.
func many(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(prefix, i)
	}
	return names
}

// answers receives until so many names are answered, and returns how many of them were refused.
func answers(d *deltaStream, n int) (refused int) {
	d.t.Helper()
	for got := 0; got < n; {
		resp := d.receive()
		got += len(resp.GetResources()) + len(resp.GetResourceErrors())
		for _, e := range resp.GetResourceErrors() {
			if code := codes.Code(e.GetErrorDetail().GetCode()); code != codes.ResourceExhausted || !strings.Contains(e.GetErrorDetail().GetMessage(), "--max-group-subscriptions") {
				d.t.Fatalf("got %v, want RESOURCE_EXHAUSTED and the way out", e)
			}
			refused++
		}
	}
	return refused
}

// The clients of a group share a stream upstream, which the control plane ends if they subscribe to too much
// together. Each has a share, so that greedy ones neither end the stream nor use it up: others get new names and
// changes, also names that a greedy one was refused. When one leaves, the next gets what it was refused.
func TestClientsShareTheSubscriptionsOfAGroup(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		up := meshtest.StartServer(t, meshtest.ControlPlaneOptions(controlplane.Options{MaxSubscriptions: 100}))
		r := newRigOver(t, up, func(o *relay.Options) {
			o.Linger, o.MaxGroupSubscriptions, o.Server.MaxSubscriptions = -1, 90, 1000
		}, features...)
		clusters := []proto.Message{xdsmsg.EDSCluster("c", "")}
		for _, name := range append(many("first", 60), many("second", 60)...) {
			clusters = append(clusters, xdsmsg.EDSCluster(name, ""))
		}
		r.up.Set(t, clusters...)
		stays := r.subscriber("stays", "c")
		first, second := r.client(node("first"), many("first", 60)...), r.delta()
		if refused := answers(first, 60); refused != 60-44 {
			t.Errorf("a greedy client was refused %d names, want %d", refused, 60-44)
		}
		subscribe(second, node("second"), clusterType, many("second", 60)...)
		if refused := answers(second, 60); refused != 60-22 {
			t.Errorf("another greedy client was refused %d names, want %d", refused, 60-22)
		}
		if s := r.Stats(); s.Refused != 16+38 || s.Subscriptions > 90 {
			t.Errorf("got %+v, want at most 90 subscriptions upstream", s)
		}
		third := r.client(node("third"), many("first", 60)[50:]...)
		for got := 0; got < 10; { // of some it may get first what the greedy one got
			got += len(third.receive().GetResources())
		}
		r.up.Set(t, xdsmsg.EDSCluster("c", "changed"))
		wantOnly(stays, "c")
		first.stop()
		third.stop()
		if refused := answers(second, 22); refused != 0 { // its share is 44 now
			t.Errorf("%d names were refused again", refused)
		}
		if s := r.Stats(); s.Refused != 60-44 {
			t.Errorf("got %+v, want %d refused names", s, 60-44)
		}
		if n := r.up.Attempts(); n != 1 {
			t.Errorf("the stream upstream was opened %d times, want once", n)
		}
	})
}

// A group whose clients have streams upstream of their own leaves room for other groups.
func TestGroupsShareTheUpstreams(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *relay.Options) { o.MaxGroups = 20 }, "delta")
	r.rewrap(func(m *discoverypb.Resource) { m.CacheControl = &discoverypb.Resource_CacheControl{DoNotCache: true} })
	r.up.Set(t, xdsmsg.EDSCluster("c", ""))
	clients, served := make([]*deltaStream, 22), 0
	for i := range clients {
		clients[i] = r.client(node(fmt.Sprint(i)), "c")
		served += len(clients[i].receive().GetResources())
	}
	if served != 9 { // and one stream that the group shares
		t.Errorf("%d clients of a group have a stream of their own, want 9 of 20", served)
	}
	// When one leaves, the next has its turn.
	before := r.Stats().Refused
	clients[0].stop()
	r.await("another one has its turn", func(s relay.Stats) bool { return s.Refused == before-1 })
	d := r.elsewhere()
	subscribe(d, node("other", "ENV", "other"), clusterType, "c")
	wantOnly(d, "c")
}

// elsewhere opens a stream from another address.
func (r *rig) elsewhere() *deltaStream {
	r.t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", addr)
		}))
	xdstest.NoError(r.t, err)
	r.t.Cleanup(func() { conn.Close() })
	return openOn[discoverypb.DeltaDiscoveryRequest, discoverypb.DeltaDiscoveryResponse](r.ctx, r.t, conn, "DeltaAggregatedResources")
}

// A peer that claims many nodes leaves room for the groups of others.
func TestPeersShareTheGroups(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *relay.Options) { o.MaxGroups = 20 }, "delta")
	r.up.Set(t, xdsmsg.EDSCluster("c", ""))
	refused := 0
	for i := range 22 {
		d := r.client(node("a", "ENV", fmt.Sprint(i)), "c")
		switch resp, err := d.Recv(); {
		case err == nil:
			only(t, resp, "c")
		case status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "--one-group"):
			refused++
		default:
			t.Fatal(err)
		}
	}
	if refused != 22-10 {
		t.Errorf("%d groups of a peer were refused, want all but half of 20", refused)
	}
	d := r.elsewhere()
	subscribe(d, node("b", "ENV", "b"), clusterType, "c")
	wantOnly(d, "c")
}

// A group without clients makes room for others, rather than keep them out until it has lingered.
func TestGroupsThatLingerMakeRoom(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *relay.Options) { o.Linger, o.MaxGroups = time.Hour, 4 }, "delta")
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

// Groups that linger keep their nodes, which may be large. They make room for others.
func TestNodesOfGroupsThatLingerAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *relay.Options) { o.Linger = time.Hour }, "delta")
	r.LimitNodes(2 << 20)
	r.up.Set(t, xdsmsg.EDSCluster("c", ""))
	large := strings.Repeat("x", 100<<10)
	for i := range 20 {
		d := r.client(node("a", "ENV", fmt.Sprint(i), "PAD", large), "c")
		wantOnly(d, "c")
		d.stop()
		r.await("the client has left", func(relay.Stats) bool { return len(r.Clients()) == 0 })
	}
	if got := r.Stats(); got.Groups == 0 || got.Groups > 10 { // 2 MiB, of twice 100 KiB each
		t.Errorf("got %+v, want at most 10 groups", got)
	}
}
