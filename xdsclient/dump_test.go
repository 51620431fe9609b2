package xdsclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// The dump names the bootstrap, and lists what is watched and no more.
func TestDumpListsWhatIsWatched(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		const newStyle = "xdstp://au%2Fth/envoy.config.cluster.v3.Cluster/a"
		listen(t, c, types.endpoints, "a")
		listen(t, c, types.clusters, newStyle)
		_, stop := listen(t, c, types.clusters, "b")
		server.stream().request()
		stop()

		d := c.Dump()
		if !proto.Equal(d.Node, c.Bootstrap().Node) || d.BootstrapSource != "test" || d.BootstrapFingerprint != c.Bootstrap().Fingerprint() {
			t.Errorf("the dump is of another bootstrap: %+v", d)
		}
		var got []string
		for _, r := range d.Resources {
			got = append(got, fmt.Sprint(r.TypeURL[strings.LastIndexByte(r.TypeURL, '.')+1:], " ", r.Authority, " ", r.Name))
		}
		want := []string{"Cluster au/th " + newStyle, "ClusterLoadAssignment #old a"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}, testutils.Authority("au/th", "passthrough:///script", nil))
}

func TestClosedClientIsEmptyAndNotListed(t *testing.T) {
	t.Parallel()
	types := newTestTypes()
	server := xdstest.StartServer(t)
	server.Set(t, cluster("a", "1"))
	c := quickClient(t, server)
	a, _ := listen(t, c, types.clusters, "a")
	a.cluster("1")
	if !slices.Contains(Clients(), c) {
		t.Error("Clients() does not have the client")
	}
	c.Close()
	if slices.Contains(Clients(), c) {
		t.Error("Clients() has the closed client")
	}
	if d := c.Dump(); len(d.Resources)+len(d.Servers) != 0 {
		t.Errorf("the closed client holds %+v", d)
	}
}

// Clients are listed the oldest first, so that dumps can be compared.
func TestClientsAreInOrder(t *testing.T) {
	t.Parallel()
	var made []*XDSClient
	for range 3 {
		c, err := New(parseBootstrap(t, "passthrough:///nowhere"))
		xdstest.NoError(t, err)
		defer c.Close()
		made = append(made, c)
	}
	got := slices.DeleteFunc(Clients(), func(c *XDSClient) bool { return !slices.Contains(made, c) })
	if !slices.Equal(got, made) {
		t.Error("Clients() are in another order than they were made")
	}
}

// changeLog compares the changes that are recorded for the process. Tests that use it do not run
// in parallel with others.
type changeLog struct {
	t    *testing.T
	seen uint64
}

func newChangeLog(t *testing.T) *changeLog {
	l := &changeLog{t: t}
	l.expectNumber()
	return l
}

func (l *changeLog) expectNumber() {
	if all := changes.Recent(); len(all) > 0 {
		l.seen = all[0].Number
	}
}

// expect checks what was recorded since the last call, the first first.
func (l *changeLog) expect(moment string, want ...string) {
	l.t.Helper()
	synctest.Wait()
	var got []string
	for _, c := range changes.Recent() {
		if c.Number <= l.seen {
			break
		}
		text := string(c.Kind)
		if c.Name != "" {
			text += fmt.Sprintf(" %s %s %q→%q", c.Type, c.Name, c.From, c.To)
		}
		if c.Detail != "" {
			text += ": " + c.Detail
		}
		if c.Server != "passthrough:///script" {
			text += " by " + c.Server
		}
		got = append([]string{text}, got...)
	}
	l.expectNumber()
	if diff := cmp.Diff(want, got); diff != "" {
		l.t.Errorf("%s: changes (-want +got):\n%s", moment, diff)
	}
}

// What becomes of a resource is recorded once for each change, and nothing for a response that
// changes nothing.
func TestChangesOfAResourceAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		types, server := newTestTypes(), newScript(t)
		c := server.client(testutils.ServerFeatures("ignore_resource_deletion"))
		l, start := newChangeLog(t), time.Now()
		listen(t, c, types.clusters, "a")
		_, stop := listen(t, c, types.clusters, "b")
		s := server.asked()
		l.expect("watched")
		pass(time.Second)
		s.send(types.clusters, "1", "n1", cluster("a", "x"))
		l.expect("the first version", `accepted Cluster a ""→"1"`)
		if got := changes.Recent()[0].Time.Sub(start); got != time.Second {
			t.Errorf("the change is of %v after the start, want 1s: the time of the response", got)
		}
		s.send(types.clusters, "2", "n2", cluster("a", "x"))
		l.expect("the same bytes under another version")
		s.send(types.clusters, "3", "n3", cluster("a", "y"), badCluster("b", "no good"))
		l.expect("one is new, one invalid", `accepted Cluster a "2"→"3"`, `NACKed Cluster b ""→"3": no good`)
		s.send(types.clusters, "4", "n4", cluster("a", "y"), badCluster("b", "no good"))
		l.expect("the same again")
		s.send(types.clusters, "5", "n5", badCluster("a", "bad too"), cluster("b", "z"))
		l.expect("the other one is invalid", `NACKed Cluster a "4"→"5": bad too`, `accepted Cluster b ""→"5"`)
		s.send(types.clusters, "6", "n6", cluster("a", "y"), cluster("b", "z"))
		l.expect("back to the version in use", `accepted Cluster a "4"→"6"`)
		s.send(types.clusters, "7", "n7", cluster("b", "z"))
		l.expect("deleted", `removed Cluster a "6"→"7": does not exist: the server deleted it`)
		s.respond(&discoveryv3.DiscoveryResponse{TypeUrl: types.clusters.TypeURL, VersionInfo: "8", Nonce: "n8",
			ResourceErrors: []*discoveryv3.ResourceError{resourceError("b", codes.Internal, "oops")}})
		l.expect("an error in its place", `error Cluster b "7"→"8": oops`)
		stop()
		l.expect("not watched any more")
	})
}

func TestLossOfAServerIsRecordedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		types, server := newTestTypes(), newScript(t)
		c := server.client()
		l := newChangeLog(t)
		listen(t, c, types.clusters, "a")
		server.stream().breakOff()
		l.expect("broken off", "server lost: Unavailable: off for lunch")
		s := server.stream()
		s.breakOff()
		l.expect("again, for the same reason")
		server.stream().send(types.clusters, "1", "n1", cluster("a", "1"))
		l.expect("an answer", "server restored", `accepted Cluster a ""→"1"`)
	})
}

// A version is recorded with the server that sent it. What a server sends that no watch follows
// is not recorded.
func TestChangesAreOfTheServerInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		types, f := newTestTypes(), newFleet(t, 2)
		f[0].setRefuse(errRefused)
		c := f.client()
		l := newChangeLog(t)
		listen(t, c, types.clusters, "a")
		_, stop := listen(t, c, types.clusters, "b")
		low := f[1].asked()
		low.send(types.clusters, "1", "n1", cluster("a", "low"))
		synctest.Wait()
		l.expect("a fallback", "server lost: Unavailable: no more streams by "+uri(0), `accepted Cluster a ""→"1" by `+uri(1))
		stop()
		low.send(types.clusters, "2", "n2", cluster("a", "low"), cluster("b", "low"))
		l.expect("a resource that nobody watches")
	})
}
