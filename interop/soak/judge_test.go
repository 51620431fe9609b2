package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

const method = "/a/b"

// lead is a configuration in which the method leads to a cluster of the given
// backends.
func lead(version int, cluster string, backends ...int) *config {
	return &config{version: version, routes: map[lane]map[string][]string{unlaned: {method: {cluster}}},
		clusters: map[string]clusterSpec{cluster: {placements: map[lane]placement{unlaned: {priorities: [][]int{backends}}}}}}
}

// answered is an RPC that was routed by a version in a lane and answered by a
// backend.
func answered(version int, l lane, backend int) outcome {
	header := metadata.Pairs(versionHeader, fmt.Sprint(version), testutils.BackendIDHeader, fmt.Sprint(backend))
	if l != unlaned {
		header.Set(laneHeader, string(l))
	}
	return outcome{method: method, header: header}
}

// An RPC may follow the routes of one configuration that clients may have, and the endpoints of any.
func TestWhereAnRPCMayGo(t *testing.T) {
	t.Parallel()
	live := []*config{lead(2, "blue", 0), lead(2, "blue", 1), lead(3, "amber", 2)}
	for _, test := range []struct {
		version, backend int
		fault            string
	}{
		{2, 0, ""},
		{2, 1, ""},
		{3, 2, ""},
		{2, 2, ""}, // blue was removed
		{2, 3, "does not lead to backend 3"},
		{3, 0, "does not lead to backend 0"},
		{1, 0, "no client may have"},
		{4, 0, "no client may have"},
		{-1, 0, "no client may have"},
		{2, -1, "does not lead to"},
	} {
		xdstest.Parallel(t, fmt.Sprintf("version %d, backend %d", test.version, test.backend), func(t *testing.T) {
			checkFault(t, allowed(live, client{}, answered(test.version, unlaned, test.backend)), test.fault)
		})
	}
}

// An RPC may be secured as its cluster was in any of the configurations, and in no other way.
func TestWhetherAnRPCMayBeSecured(t *testing.T) {
	t.Parallel()
	secured := func(s security, version int, cluster string) *config {
		c := lead(version, cluster, 0)
		c.clusters[cluster] = clusterSpec{security: s, placements: c.clusters[cluster].placements}
		return c
	}
	rpc := answered(2, unlaned, 0)
	for _, test := range []struct {
		name           string
		live           []*config
		plain, overTLS string
	}{
		{"plaintext", []*config{secured(plaintext, 2, "blue")}, "", "does not lead to backend 0 (TLS: true)"},
		{"mTLS", []*config{secured(mutual, 2, "blue")}, "does not lead to backend 0 (TLS: false)", ""},
		{"first the one, then the other", []*config{secured(plaintext, 2, "blue"), secured(named, 2, "blue")}, "", ""},
		{"another cluster", []*config{secured(plaintext, 1, "amber"), secured(named, 2, "blue")}, "does not lead to backend 0 (TLS: false)", ""},
	} {
		rpc.secured = false
		checkFault(t, allowed(test.live, client{}, rpc), test.plain)
		rpc.secured = true
		checkFault(t, allowed(test.live, client{}, rpc), test.overTLS)
	}
}

// After its cluster has begun to ask for stricter security, a stream may end a while later, if it is on a connection; and an RPC
// may fail on none, if the cluster also names another ClusterLoadAssignment, as long as that is missing.
func TestExcusedByStricterSecurity(t *testing.T) {
	t.Parallel()
	began := time.Now()
	const (
		ends    = `error reading from server: cluster "blue" asks for stricter security than this connection has`
		hand    = `no endpoint of cluster "blue" can be reached: authentication handshake failed: TLS of cluster "blue": connection reset by peer`
		missing = `xDS ClusterLoadAssignment "blue-a": the management server is unreachable`
		peer    = "10.0.0.1:443"
	)
	secured := func(all ...security) (specs []clusterSpec) {
		for _, s := range all {
			specs = append(specs, clusterSpec{security: s})
		}
		return specs
	}
	moves := secured(mutual, named)
	moves[1].service = "blue-a"
	for _, test := range []struct {
		name    string
		cluster []clusterSpec
		peer    string
		lasted  time.Duration
		text    string
		broke   bool
		fault   bool
	}{
		{"stricter", secured(mutual, named), peer, time.Second, ends, false, false},
		{"stricter, after a GOAWAY", secured(mutual, named), peer, time.Second, `connection error: desc = "` + strings.ReplaceAll(ends, `"`, `\"`) + `", received prior goaway`, false, false},
		{"too soon", secured(mutual, named), peer, time.Second - 1, ends, false, true},
		{"on no connection", secured(mutual, named), "", time.Second, ends, false, true},
		{"for another reason", secured(mutual, named), peer, time.Second, "error reading from server: EOF", false, true},
		{"of another cluster", secured(mutual, named), peer, time.Second, strings.ReplaceAll(ends, "blue", "amber"), false, true},
		{"looser", secured(mutual, plaintext), peer, time.Second, ends, false, true},
		{"looser and back", secured(mutual, plaintext, mutual), peer, time.Second, ends, false, false},
		{"other endpoints are missing", moves, "", 0, missing, false, false},
		{"other endpoints are missing, on a connection", moves, peer, time.Second, missing, false, true},
		{"other endpoints are there", moves, "", 0, "connection refused", false, true},
		{"the same endpoints are missing", secured(mutual, named), "", 0, missing, false, true},
		{"a backend broke the handshake", secured(mutual, named), "", 0, hand, true, false},
		{"a handshake failed", secured(mutual, named), "", 0, hand, false, true},
	} {
		var h history
		for version, s := range test.cluster {
			h.publish(&config{version: version, clusters: map[string]clusterSpec{"blue": s}})
		}
		m := new(mesh)
		if test.broke {
			m.backends = []*backend{{crashes: []time.Time{began}}}
		}
		err := m.verdict(client{}, outcome{
			method: method, began: began, ended: began.Add(test.lasted), peer: test.peer, err: status.Error(codes.Unavailable, test.text),
		}, &h)
		if (err != nil) != test.fault {
			t.Errorf("%s: fault %v", test.name, err)
		}
	}
}

// A configuration counts until every client is known to have a newer one, and for RPCs that began before.
func TestHistory(t *testing.T) {
	t.Parallel()
	var h history
	now := time.Now()
	h.publish(lead(1, "blue", 0))
	h.publish(lead(2, "blue", 0))
	h.settle(now)
	h.publish(lead(3, "blue", 0))
	versions := func(live []*config) (all []int) {
		for _, c := range live {
			all = append(all, c.version)
		}
		return all
	}
	xdstest.Equal(t, "what an RPC that began after the settling may have followed", []int{2, 3}, versions(h.since(now.Add(time.Second))))
	xdstest.Equal(t, "what an RPC that began before the settling may have followed", []int{1, 2, 3}, versions(h.since(now.Add(-time.Second))))
	h.settle(now.Add(3 * patience))
	xdstest.Equal(t, "what is kept", []int{2, 3}, versions(h.since(time.Time{})))
}

// An RPC may fail only if its own backend broke the connection that it was on.
func TestExcusedFailures(t *testing.T) {
	t.Parallel()
	m := &mesh{backends: []*backend{
		{Backend: testutils.StartBackend(t, "0")}, {Backend: testutils.StartBackend(t, "1")},
	}}
	m.backends[0].crash()
	crash := m.backends[0].crashes[0]
	unavailable := fmt.Errorf("wrapped: %w", status.Error(codes.Unavailable, "broken"))
	for _, test := range []struct {
		name       string
		peer       string
		began, end time.Duration // from the crash
		err        error
		fault      string
	}{
		{"under way", m.addr(0), -time.Second, time.Second, unavailable, ""},
		{"just after", m.addr(0), time.Millisecond, time.Second, unavailable, ""},
		{"long after", m.addr(0), 5 * time.Second, 6 * time.Second, unavailable, "broken"},
		{"before", m.addr(0), -2 * time.Second, -time.Second, unavailable, "broken"},
		{"on another backend", m.addr(1), -time.Second, time.Second, unavailable, "broken"},
		{"on none", "", -time.Second, time.Second, unavailable, "broken"},
		{"with another status", m.addr(0), -time.Second, time.Second, status.Error(codes.Internal, "odd"), "odd"},
		{"hanging", m.addr(0), -time.Second, patience, status.Error(codes.DeadlineExceeded, "hang"), "hang"},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			checkFault(t, m.verdict(client{}, outcome{
				method: method, began: crash.Add(test.began), ended: crash.Add(test.end), peer: test.peer, err: test.err,
			}, &history{}), test.fault)
		})
	}
}

// Once an RPC followed a version of a resource, none that begins later follows an older one.
func TestOrderOfVersions(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(version int, began, ended time.Duration) outcome {
		return outcome{method: method, began: now.Add(began), ended: now.Add(ended),
			header: metadata.Pairs(versionHeader, fmt.Sprint(version))}
	}
	other := at(1, 21, 30)
	other.header.Set(laneHeader, string(lanes[0]))
	var h history
	for version, c := range []*config{{routeName: "routes"}, {routeName: "routes"}, {routeName: "routes"}, {inline: true}, {routeName: "routes"}, {routeName: "others"}} {
		c.version = version
		h.publish(c)
	}
	c := &channel{}
	c.judgeOrder(true)
	for _, step := range []struct {
		outcome
		fault string
	}{
		{at(2, 0, 10), ""},
		{at(1, 5, 20), ""}, // had begun before
		{at(1, 11, 20), "after an RPC that followed version 2"},
		{at(3, 11, 20), ""},
		{at(2, 21, 30), ""}, // what it still has of another resource
		{at(1, 21, 30), "after an RPC that followed version 2"},
		{other, ""},
		{at(5, 31, 40), ""},
		{at(4, 41, 50), ""},
		{at(2, 51, 60), "after an RPC that followed version 4"},
	} {
		checkFault(t, c.inOrder(step.outcome, h.routes(step.version())), step.fault)
	}
	c.judgeOrder(false)
	checkFault(t, c.inOrder(at(1, 70, 80), h.routes(1)), "")
}

// The drawn operations depend on the seed alone.
func TestSameSeedSameOperations(t *testing.T) {
	t.Parallel()
	drawn := func(seed uint64) string {
		d := draw{Rand: rand.New(rand.NewPCG(seed, 0)), sure: []int{0, 3}, clients: clients}
		var b strings.Builder
		for range 50 {
			fmt.Fprintln(&b, pick(d.Rand, honestRound).name, d.cluster("blue"), d.drawLanes(), d.drawClient().name)
		}
		return b.String()
	}
	if first, again := drawn(1), drawn(1); first != again {
		t.Error("the same seed gives other operations")
	}
	if drawn(1) == drawn(2) {
		t.Error("another seed gives the same operations")
	}
}

// A drawn cluster has a backend that is up in every lane.
func TestEveryClusterHasASureBackend(t *testing.T) {
	t.Parallel()
	d := draw{Rand: rand.New(rand.NewPCG(1, 0)), sure: []int{2}}
	for range 1000 {
		s := d.cluster("blue")
		for _, l := range allLanes {
			p := s.placements[l]
			if !slices.Contains(p.backends(), 2) || slices.Contains(p.sick, 2) {
				t.Fatalf("%+v has no use of backend 2 in lane %q", p, l)
			}
			if slices.ContainsFunc(p.priorities, func(p []int) bool { return len(p) == 0 }) {
				t.Fatalf("%+v has an empty priority in lane %q", p, l)
			}
		}
	}
}

func checkFault(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("fault %v, want none", err)
	case want != "" && err == nil:
		t.Errorf("no fault, want one with %q", want)
	case err != nil && !strings.Contains(err.Error(), want):
		t.Errorf("fault %v, want one with %q", err, want)
	}
}

// A message that is cut short is malformed wherever its fields end: clients would have to use
// a ClusterLoadAssignment without its last localities.
func TestCutShortIsMalformed(t *testing.T) {
	t.Parallel()
	for length := 1; length <= 100; length++ {
		for endpoints := 1; endpoints <= 5; endpoints++ {
			message := xdsmsg.SimpleEndpoints(strings.Repeat("n", length), strings.Split(strings.Repeat("127.0.0.1:50051,", endpoints)[:16*endpoints-1], ",")...)
			whole, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
			xdstest.NoError(t, err)
			cut := cutShort(whole)
			if err := proto.Unmarshal(cut, new(endpointpb.ClusterLoadAssignment)); err == nil {
				t.Errorf("a name of %d bytes and %d endpoints: %d of %d bytes are a message", length, endpoints, len(cut), len(whole))
			}
			if len(cut) < len(whole)/2-1 {
				t.Errorf("a name of %d bytes and %d endpoints: only %d of %d bytes are left", length, endpoints, len(cut), len(whole))
			}
		}
	}
}
