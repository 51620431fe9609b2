package relay_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/relay"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient"
)

const clusterType = xdsmsg.ClusterType

// Clients that are one node share a subscription upstream, over either protocol on either side, and
// get the bytes and the version that the control plane has.
func TestClientsShareASubscription(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, nil, features...)
		c := xdsmsg.EDSCluster("c", "endpoints")
		r.up.Set(t, c)
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
		xdstest.NoError(t, err)

		a, b, s := r.delta(), r.delta(), r.sotw()
		subscribe(a, node("a"), clusterType, "c")
		first := wantOnly(a, "c")
		subscribe(b, node("b"), clusterType, "c")
		second := wantOnly(b, "c")
		if !proto.Equal(first, second) || string(first.GetResource().GetValue()) != string(want) {
			t.Errorf("got %v and %v, want %q twice", first, second, want)
		}
		if v := r.version(clusterType, "c"); first.GetVersion() != v {
			t.Errorf("got version %q, want that of the control plane, %q", first.GetVersion(), v)
		}
		s.send(&discoverypb.DiscoveryRequest{Node: node("s"), TypeUrl: clusterType, ResourceNames: []string{"c"}})
		if got := s.receive().GetResources(); len(got) != 1 || string(got[0].GetValue()) != string(want) {
			t.Errorf("got %v over SotW, want %q", got, want)
		}
		requests := r.up.Requests()
		if n := requests[0].Node; r.up.Attempts() != 1 || n.GetId() != "relay" || n.GetCluster() != "test" {
			t.Errorf("got %d streams upstream, the first of %v, want one of the node of the clients with the id of the relay", r.up.Attempts(), n)
		}
		for _, req := range requests {
			if len(req.Names)+len(req.Subscribe) > 1 {
				t.Errorf("the relay asked for more than one: %v", req)
			}
		}
		// A change reaches all.
		r.up.Set(t, xdsmsg.EDSCluster("c", "others"))
		changed, again := wantOnly(a, "c"), wantOnly(b, "c")
		if !proto.Equal(changed, again) || changed.GetVersion() != r.version(clusterType, "c") {
			t.Errorf("got %v and %v, want the change twice", changed, again)
		}
		s.receive()
		// So does a removal, by name or by omission.
		r.up.Delete(t, clusterType, "c")
		for _, d := range []*deltaStream{a, b} {
			wantRemoved(d, "c")
		}
		if got := s.receive(); len(got.GetResources()) != 0 {
			t.Errorf("got %v after the removal, want nothing", got)
		}
	})
}

// Nodes that differ in more than the id are not one, or in what the client can understand, unless told so.
func TestNodesAreKeptApart(t *testing.T) {
	t.Parallel()
	for one, groups := range map[bool]int{false: 3, true: 1} {
		xdstest.Parallel(t, fmt.Sprint("one group: ", one), func(t *testing.T) {
			r := newRig(t, func(o *relay.Options) { o.OneGroup = one }, "delta")
			r.up.Set(t, xdsmsg.EDSCluster("c", ""))
			old := node("d", "ENV", "prod")
			old.ClientFeatures = []string{"old"}
			for _, n := range []*corepb.Node{node("a", "ENV", "prod"), node("b", "ENV", "test"), node("c", "ENV", "prod"), old} {
				wantOnly(r.client(n, "c"), "c")
			}
			if got := r.Stats().Groups; got != groups {
				t.Errorf("got %d groups, want %d", got, groups)
			}
			if got := r.up.Attempts(); got != groups {
				t.Errorf("got %d streams upstream, want %d", got, groups)
			}
		})
	}
}

// What has no subscriber stays subscribed to for a while, and a group without clients too.
func TestSubscriptionsLinger(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, func(o *relay.Options) { o.Linger = time.Hour }, features...)
		r.up.Set(t, xdsmsg.EDSCluster("c", ""))
		d := r.subscriber("a", "c")
		d.stop()
		r.await("the subscription lingers", func(s relay.Stats) bool { return s.Lingering == 1 })
		before := len(r.up.Requests())
		r.up.Set(t, xdsmsg.EDSCluster("c", "changed meanwhile"))
		r.up.MustWait(r.ctx, t, xdstest.ACKOf(clusterType))
		d = r.client(node("b"), "c")
		if got := wantOnly(d, "c"); got.GetVersion() != r.version(clusterType, "c") {
			t.Logf("got version %q first", got.GetVersion())
			wantOnly(d, "c")
		}
		for _, req := range r.up.Requests()[before:] {
			if req.Nonce == "" {
				t.Errorf("the relay asked again: %v", req)
			}
		}
		if s := r.Stats(); s.Lingering != 0 || s.Subscriptions != 1 {
			t.Errorf("got %+v, want one subscription that does not linger", s)
		}
	})
}

// Without lingering the relay unsubscribes, and its stream ends with the last client.
func TestSubscriptionsEnd(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, func(o *relay.Options) { o.Linger = -1 }, features...)
		r.up.Set(t, xdsmsg.EDSCluster("c", ""), xdsmsg.EDSCluster("d", ""))
		d := r.client(node("a"), "c", "d")
		for got := 0; got < 2; {
			got += len(d.receive().GetResources())
		}
		d.send(&discoverypb.DeltaDiscoveryRequest{TypeUrl: clusterType, ResourceNamesUnsubscribe: []string{"c"}})
		if len(features) > 0 {
			r.up.MustWait(r.ctx, t, xdstest.Unsubscribing(clusterType, "c"))
		} else {
			r.up.MustWait(r.ctx, t, xdstest.ForNames(clusterType, "d"))
		}
		d.stop()
		xdstest.NoError(t, r.up.WaitOpen(r.ctx, 0))
		r.await("everything has ended", func(s relay.Stats) bool { return s == relay.Stats{} })
	})
}

// While the control plane is away, clients get what the relay has, and for the rest an error that
// leaves in use what they have.
func TestControlPlaneIsAway(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, func(o *relay.Options) { o.AwayDelay = -1 }, features...)
		r.up.Set(t, xdsmsg.EDSCluster("c", ""))
		old := r.client(node("a"), "c")
		had := wantOnly(old, "c")
		stopped := time.Now()
		r.up.Stop()
		r.await("the control plane is gone", func(s relay.Stats) bool {
			since := s.UnreachableSince
			return s.Unreachable == 1 && !since.Before(stopped) && !since.After(time.Now()) && s.ServedAway == 0
		})
		young := r.client(node("b"), "c", "unknown")
		var got *discoverypb.Resource
		var failed *discoverypb.ResourceError
		for got == nil || failed == nil {
			resp := young.receive()
			if len(resp.GetResources()) > 0 {
				got = only(t, resp, "c")
			}
			if len(resp.GetResourceErrors()) > 0 {
				failed = resp.GetResourceErrors()[0]
			}
		}
		if !proto.Equal(got, had) {
			t.Errorf("got %v, want %v", got, had)
		}
		if code := codes.Code(failed.GetErrorDetail().GetCode()); failed.GetResourceName().GetName() != "unknown" || code != codes.Unavailable {
			t.Errorf("got the error %v, want UNAVAILABLE for the other", failed)
		}
		if r.log.Count("the control plane is unreachable") != 1 {
			t.Errorf("want one line in the log: %v", r.log.String())
		}
		r.up.Set(t, xdsmsg.EDSCluster("unknown", ""))
		xdstest.NoError(t, r.up.Restart())
		wantOnly(young, "unknown")
		r.await("the control plane is back", func(s relay.Stats) bool {
			return s.Unreachable == 0 && s.UnreachableSince.IsZero() && s.ServedAway == 1
		})
		xdstest.NoError(t, r.log.Wait(r.ctx, "the control plane answers again"))
		r.up.Set(t, xdsmsg.EDSCluster("c", "changed"))
		wantOnly(old, "c") // nothing came before, as nothing had changed
		wantOnly(young, "c")
	})
}

// A short absence of the control plane is no error: those for whom there is nothing wait.
func TestControlPlaneRestarts(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, func(o *relay.Options) { o.AwayDelay = time.Hour }, features...)
		r.up.Set(t, xdsmsg.EDSCluster("c", ""))
		r.up.Stop()
		d := r.client(node("a"), "c")
		r.awaitUnreachable()
		xdstest.NoError(t, r.up.Restart())
		wantOnly(d, "c")
	})
	late := newRig(t, func(o *relay.Options) { o.AwayDelay = 100 * time.Millisecond }, "delta")
	late.up.Stop()
	d := late.delta()
	subscribe(d, node("a"), clusterType, "c")
	wantError(d, "c", codes.Unavailable)
}

// That a client leaves is not taken for an answer of the control plane, by the log either.
func TestClientLeavesWhileTheControlPlaneIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *relay.Options) { o.AwayDelay = -1 }, "delta")
	r.up.Stop()
	d := r.client(node("a"), "c")
	wantError(d, "c", codes.Unavailable)
	d.stop()
	r.await("the subscription has ended", func(s relay.Stats) bool { return s.Subscriptions == 0 && s.Unreachable == 0 })
	xdstest.NoError(t, r.log.Wait(r.ctx, "no subscriptions left on the unreachable control plane"))
	if r.log.Count("answers again") != 0 {
		t.Errorf("the control plane never answered, and the log says: %s", r.log.String())
	}
	again := r.client(node("a"), "c")
	wantError(again, "c", codes.Unavailable)
	r.up.Set(t, xdsmsg.EDSCluster("c", ""))
	xdstest.NoError(t, r.up.Restart())
	wantOnly(again, "c")
	xdstest.NoError(t, r.log.Wait(r.ctx, "answers again"))
}

// The control plane is one, however many groups of clients there are: it is lost once, and found once.
func TestGroupsLoseTheControlPlaneOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "delta")
	r.up.Set(t, xdsmsg.EDSCluster("c", ""))
	const groups = 5
	for i := range groups {
		wantOnly(r.client(node("a", "ENV", fmt.Sprint(i)), "c"), "c")
	}
	r.up.Stop()
	r.await("the control plane is gone", func(s relay.Stats) bool { return s.Unreachable == groups })
	xdstest.NoError(t, r.up.Restart())
	r.await("the control plane is back", func(s relay.Stats) bool { return s.Unreachable == 0 })
	xdstest.NoError(t, r.log.Wait(r.ctx, "answers again"))
	for _, line := range []string{"is unreachable", "answers again"} {
		if got := r.log.Count(line); got != 1 {
			t.Errorf("%d lines %q, want one: %s", got, line, r.log.String())
		}
	}
}

// Behind another relay it is the same: that its control plane is away is what it says by UNAVAILABLE, with the
// detail of xdsclient.Error.Status.
func TestControlPlaneIsAwayBehindAnotherRelay(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		away, _ := (&xdsclient.Error{Kind: xdsclient.KindUnreachable, Code: codes.Unavailable, Err: errors.New("away")}).Status()
		r := newRig(t, func(o *relay.Options) { o.AwayDelay = -1 }, features...)
		r.up.Set(t, xdsmsg.EDSCluster("c", ""))
		old := r.subscriber("old", "c")
		// The other relay was started again, and has nothing.
		_, err := r.up.Store().Update(func(tx *controlplane.Tx) {
			tx.SetError(clusterType, "c", away)
			tx.SetError(clusterType, "unknown", away)
		})
		xdstest.NoError(t, err)
		r.awaitUnreachable()
		young := r.subscriber("young", "c")
		subscribe(young, nil, clusterType, "unknown")
		details := wantError(young, "unknown", codes.Unavailable).GetDetails()
		if len(details) != 1 || !proto.Equal(details[0], away.Proto().GetDetails()[0]) {
			t.Errorf("got the details %v, want %v", details, away.Proto().GetDetails())
		}
		r.up.Set(t, xdsmsg.EDSCluster("c", "changed"), xdsmsg.EDSCluster("unknown", ""))
		wantOnly(old, "c") // nothing came before, as nothing had changed
		r.await("the control plane is back", func(s relay.Stats) bool { return s.Unreachable == 0 })
	})
}

// That a resource does not exist is known as well while the control plane is away.
func TestAbsenceIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *relay.Options) { o.AwayDelay = -1 }, "delta")
	d := r.client(node("a"), "c")
	wantRemoved(d, "c")
	r.up.Stop()
	r.awaitUnreachable()
	other := r.client(node("b"), "c")
	wantRemoved(other, "c")
}

// Versions are those of the control plane: a client that moves from it to a relay, to another relay,
// or back is sent nothing that it has.
func TestClientsMove(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		soon := func(o *relay.Options) {
			if len(features) == 0 { // SotW says nothing of a name that does not exist.
				o.Client = append(o.Client, xdsclient.WithResourceTimeout(100*time.Millisecond))
			}
		}
		r := newRig(t, soon, features...)
		_, other := r.start(soon, features...)
		r.up.Set(t, xdsmsg.EDSCluster("c", ""), xdsmsg.EDSCluster("d", ""))
		versions := map[string]string{}
		for i, addr := range []string{r.up.Addr(), r.addr, other, r.up.Addr()} {
			if i > 0 { // The server has both first: the short timeout is for the name that does not exist alone.
				first, has := r.deltaTo(addr), map[string]string{}
				first.send(&discoverypb.DeltaDiscoveryRequest{Node: node("a"), TypeUrl: clusterType, ResourceNamesSubscribe: []string{"c", "d"}})
				for !maps.Equal(has, versions) {
					for _, res := range first.receive().GetResources() {
						has[res.GetName()] = res.GetVersion()
					}
				}
			}
			d := r.deltaTo(addr)
			d.send(&discoverypb.DeltaDiscoveryRequest{
				Node: node("a"), TypeUrl: clusterType, ResourceNamesSubscribe: []string{"c", "d", "missing"}, InitialResourceVersions: versions,
			})
			// The answer for the name that does not exist shows that the others were looked at.
			for answered := false; !answered; {
				resp := d.receive()
				for _, res := range resp.GetResources() {
					if i > 0 {
						t.Errorf("move %d: %q was sent again, version %q after %q", i, res.GetName(), res.GetVersion(), versions[res.GetName()])
					}
					versions[res.GetName()] = res.GetVersion()
				}
				answered = len(resp.GetRemovedResources())+len(resp.GetResourceErrors()) > 0
			}
			if i == 0 {
				for len(versions) < 2 {
					for _, res := range d.receive().GetResources() {
						versions[res.GetName()] = res.GetVersion()
					}
				}
			}
			r.up.Set(t, xdsmsg.EDSCluster("c", addr+string(rune('0'+i))))
			versions["c"] = wantOnly(d, "c").GetVersion()
			d.stop()
		}
	})
}

// What the control plane says in place of a resource is passed on with its details, once for all.
func TestErrorsArePassedOn(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, nil, features...)
		st, err := status.New(codes.Internal, "out of order").WithDetails(xdsmsg.EDSCluster("detail", ""))
		xdstest.NoError(t, err)
		r.up.Update(t, func(tx *controlplane.Tx) { tx.SetError(clusterType, "c", st) })
		for _, id := range []string{"a", "b"} {
			d := r.client(node(id), "c")
			if got := wantError(d, "c", codes.Internal); !proto.Equal(got, st.Proto()) {
				t.Errorf("got %v, want %v", got, st)
			}
		}
		if r.up.Attempts() != 1 {
			t.Errorf("got %d streams upstream, want 1", r.up.Attempts())
		}
	})
}

// What was deleted, or replaced, and is back as it was reaches clients again.
func TestVersionsThatComeBack(t *testing.T) {
	t.Parallel()
	overEach(t, func(t *testing.T, features ...string) {
		r := newRig(t, nil, features...)
		d, s := r.delta(), r.sotw()
		r.up.Set(t, xdsmsg.EDSCluster("c", "A"))
		subscribe(d, node("d"), clusterType, "c")
		first := wantOnly(d, "c")
		s.send(&discoverypb.DiscoveryRequest{Node: node("s"), TypeUrl: clusterType, ResourceNames: []string{"c"}})
		s.receive()
		for range 3 {
			r.up.Delete(t, clusterType, "c")
			wantRemoved(d, "c")
			wantCount(s, 0)
			r.up.Set(t, xdsmsg.EDSCluster("c", "A"))
			if again := wantOnly(d, "c"); again.GetVersion() != first.GetVersion() {
				t.Errorf("got version %q, want %q", again.GetVersion(), first.GetVersion())
			}
			wantCount(s, 1)
			r.up.Set(t, xdsmsg.EDSCluster("c", "B"))
			wantOnly(d, "c")
			s.receive()
			r.up.Update(t, func(tx *controlplane.Tx) { tx.SetError(clusterType, "c", status.New(codes.Internal, "broken")) })
			wantError(d, "c", codes.Internal)
			s.receive()
			r.up.Set(t, xdsmsg.EDSCluster("c", "A"))
			wantOnly(d, "c")
			s.receive()
		}
	})
}
