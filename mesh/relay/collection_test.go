package relay_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"google.golang.org/grpc/backoff"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// A member of a collection that must not be cached is the relay's alone: its clients, whose nodes may
// differ, get an error that asks them to subscribe to it by its name.
func TestMembersThatMustNotBeCached(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "delta", variants)
	r.rewrap(func(m *discoverypb.Resource) {
		if m.GetName() == member("secret") {
			m.CacheControl = &discoverypb.Resource_CacheControl{DoNotCache: true}
		}
	})
	r.up.Set(t, xdsmsg.EDSCluster(member("secret"), ""), xdsmsg.EDSCluster(member("open"), ""))
	d := r.client(node("a"), member("*"))
	for seen, refused := false, false; !seen || !refused; {
		resp := d.receive()
		for _, res := range resp.GetResources() {
			if res.GetName() != member("open") {
				t.Fatalf("got %v, which must not be cached", res)
			}
			seen = true
		}
		for _, e := range resp.GetResourceErrors() {
			if e.GetResourceName().GetName() != member("secret") || !strings.Contains(e.GetErrorDetail().GetMessage(), "by its name") {
				t.Errorf("got %v, want the way out", e)
			}
			refused = true
		}
	}
	subscribe(d, nil, clusterType, member("secret"))
	for asked := false; !asked; {
		for _, res := range d.receive().GetResources() {
			asked = asked || res.GetName() == member("secret") && res.GetCacheControl().GetDoNotCache()
		}
	}
}

// A wildcard has the old-style names that upstream has for it, whatever collections others subscribe to,
// and what the client itself subscribes to goes when that ends.
func TestWildcardsHaveNoMembersOfOtherCollections(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "delta", variants)
	r.up.Set(t, xdsmsg.EDSCluster(member("a"), ""), xdsmsg.EDSCluster("old", ""))
	globber := r.client(node("globber"), member("*"))
	wantOnly(globber, member("a"))
	d, s := r.delta(), r.sotw()
	d.send(&discoverypb.DeltaDiscoveryRequest{Node: node("d"), TypeUrl: clusterType})
	wantOnly(d, "old")
	s.send(&discoverypb.DiscoveryRequest{Node: node("s"), TypeUrl: clusterType})
	wantCount(s, 1)
	r.up.Set(t, xdsmsg.EDSCluster(member("b"), ""))
	wantOnly(globber, member("b"))
	r.up.Set(t, xdsmsg.EDSCluster("new", ""))
	wantOnly(d, "new")
	wantCount(s, 2)
	subscribe(d, nil, clusterType, member("*"))
	if got := d.receive().GetResources(); len(got) != 2 {
		t.Errorf("got %v, want the two members", got)
	}
	d.send(&discoverypb.DeltaDiscoveryRequest{TypeUrl: clusterType, ResourceNamesUnsubscribe: []string{member("*")}})
	if got := d.receive().GetRemovedResources(); len(got) != 2 {
		t.Errorf("got %v removed, want both members", got)
	}
}

// Upstream may answer for a wildcard in several responses. If its stream ends after the first, the wildcard
// gets the rest on the next one, also what the relay already had for a client that subscribes to it by name.
func TestWildcardIsCompletedAfterItsAnswerWasCutShort(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "delta")
	r.up.Set(t, xdsmsg.EDSCluster("a", ""), xdsmsg.EDSCluster("b", ""))
	named, d := r.delta(), r.delta()
	subscribe(named, node("named"), clusterType, "a")
	wantOnly(named, "a")
	var cut atomic.Bool
	r.up.OnDeltaResponse(func(_ uint64, resp *discoverypb.DeltaDiscoveryResponse) *discoverypb.DeltaDiscoveryResponse {
		if len(resp.GetResources()) == 2 && cut.CompareAndSwap(false, true) {
			resp.Resources = slices.DeleteFunc(slices.Clone(resp.Resources), func(res *discoverypb.Resource) bool { return res.GetName() == "a" })
		}
		return resp
	})
	subscribe(d, node("wild"), clusterType, "*")
	wantOnly(d, "b")
	if !cut.Load() {
		t.Fatal("upstream never sent both resources for the wildcard")
	}
	r.up.BreakStreams(errors.New("broken"))
	wantOnly(d, "a")
}

// Heartbeats for the members of a collection are passed on as well, and without these they expire.
func TestHeartbeatsOfMembers(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "delta", variants)
	const ttl = 2 * time.Second
	r.rewrap(func(m *discoverypb.Resource) { m.Ttl = durationpb.New(ttl) })
	r.up.Set(t, xdsmsg.EDSCluster(member("a"), ""))
	d := r.client(node("a"), member("*"))
	first := wantOnly(d, member("a"))
	r.heartbeat(member("a"), first.GetVersion(), ttl)
	if beat := wantOnly(d, member("a")); beat.GetResource() != nil || beat.GetTtl().AsDuration() != ttl {
		t.Errorf("got %v, want a heartbeat", beat)
	}
	late := r.delta()
	wantRemoved(d, member("a"))
	subscribe(late, node("late"), clusterType, member("*"))
	if got := late.receive().GetResources(); len(got) != 0 {
		t.Errorf("got %v, want nothing of what has expired", got)
	}
}

// A wildcard cannot be had from a server that speaks SotW only, also if its bootstrap entry promises
// delta. The client gets an error, and the log a line.
func TestWildcardsNeedDeltaUpstream(t *testing.T) {
	t.Parallel()
	xdstest.Parallel(t, "SotW upstream", func(t *testing.T) { wildcardsAreRefused(t) })
	xdstest.Parallel(t, "delta promised", func(t *testing.T) { wildcardsAreRefused(t, "delta") })
}

func wildcardsAreRefused(t *testing.T, features ...string) {
	r := newRig(t, nil, features...)
	r.up.RefuseDelta(true)
	r.up.Set(t, xdsmsg.EDSCluster("c", ""))
	s, d := r.sotw(), r.delta()
	s.send(&discoverypb.DiscoveryRequest{Node: node("s"), TypeUrl: clusterType})
	d.send(&discoverypb.DeltaDiscoveryRequest{Node: node("d"), TypeUrl: clusterType, ResourceNamesSubscribe: []string{"*"}})
	_, errS := s.Recv()
	_, errD := d.Recv()
	for _, err := range []error{errS, errD} {
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `"delta"`) {
			t.Errorf("got %v, want FAILED_PRECONDITION and the way out", err)
		}
	}
	if got := strings.Count(r.log.String(), "level=WARN"); got != 1 {
		t.Errorf("the log has it %d times, want once: %s", got, r.log.String())
	}
	r.subscriber("n", "c")
}

// memberNames are the members of a collection that a client has, in order.
type memberNames struct {
	xdstest.State
	have map[string]bool
	err  error
	// left counts the members that left.
	left int
}

func (m *memberNames) MemberChanged(member xdsclient.Member, _ any, err error, done func()) {
	m.Change(func() {
		if m.have[member.Name] && err != nil {
			m.left++
		}
		m.have[member.Name] = err == nil
	})
	done()
}

func (m *memberNames) CollectionChanged(err error, done func()) {
	m.Change(func() {
		if m.err = err; err != nil {
			clear(m.have)
		}
	})
	done()
}

func (m *memberNames) AmbientError(_ xdsclient.Member, _ error, done func()) { done() }

// await waits until the client has these members.
func (m *memberNames) await(t *testing.T, what string, names ...string) {
	t.Helper()
	m.Await(t, what, func() bool {
		var have []string
		for name, is := range m.have {
			if is {
				have = append(have, name)
			}
		}
		slices.Sort(have)
		return m.err == nil && slices.Equal(have, names)
	})
}

// UNIMPLEMENTED of upstream's delta, be it an ingress's that has lost the way or that of a control plane that was
// downgraded, ends collections for as long as it lasts. Neither relay nor clients have to be restarted.
func TestCollectionsComeBackWithDelta(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "delta", variants)
	r.up.RefuseDelta(true)
	r.up.Set(t, xdsmsg.EDSCluster(member("a"), "e"), xdsmsg.EDSCluster("old", ""))
	cfg, err := bootstrap.Parse("test", testutils.Bootstrap("client", r.addr, testutils.ServerFeatures("delta", variants), testutils.Authority("authority", "", nil)))
	xdstest.NoError(t, err)
	client, err := xdsclient.New(cfg, xdsclient.WithBackoff(backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond}))
	xdstest.NoError(t, err)
	t.Cleanup(client.Close)
	glob, wildcard := &memberNames{have: make(map[string]bool)}, &memberNames{have: make(map[string]bool)}
	defer client.WatchCollection(xdsresource.ClusterType, member("*"), glob)()
	glob.Await(t, "the error in place of the collection", func() bool { return glob.err != nil })

	r.up.RefuseDelta(false)
	glob.await(t, "the members, once the control plane implements delta", member("a"))
	defer client.WatchCollection(xdsresource.ClusterType, "*", wildcard)()
	wildcard.await(t, "the members of the wildcard", "old")

	// The control plane is downgraded for a while. What clients have stays in use.
	r.subscriber("named", "old")
	wild := r.client(node("wild"), "*")
	wantOnly(wild, "old")
	r.up.RefuseDelta(true)
	r.up.BreakStreams(status.Error(codes.Unavailable, "restart"))
	r.up.MustWait(r.ctx, t, func(req xdstest.Request) bool {
		return !req.Delta && xdstest.ForNames(clusterType, "old")(req)
	})
	r.up.RefuseDelta(false)
	r.up.Set(t, xdsmsg.EDSCluster(member("b"), "e"), xdsmsg.EDSCluster("new", ""))
	glob.await(t, "a member that is new since then", member("a"), member("b"))
	wildcard.await(t, "a member of the wildcard that is new since then", "new", "old")
	wantOnly(wild, "new")
	for _, m := range []*memberNames{glob, wildcard} {
		m.Change(func() {
			if m.left > 0 {
				t.Errorf("%d members left, want all to stay", m.left)
			}
		})
	}
}
