package xdsclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// entry is a ResourceDump in a form that can be compared.
type entry struct {
	Name, Server, Version, Text string
	State                       CacheState
	Updated                     time.Duration
	FailedVersion, FailedText   string
	Failed                      time.Duration
}

// entries returns the clusters of a dump. Times count from start.
func entries(t *testing.T, d *Dump, start time.Time) []entry {
	t.Helper()
	var all []entry
	for i := range d.Resources {
		r := &d.Resources[i]
		e := entry{Name: r.Name, Server: r.Server, Version: r.Version, State: r.State}
		if r.Cached() {
			m := cluster("", "")
			xdstest.NoError(t, r.Any().UnmarshalTo(m))
			e.Text, e.Updated = m.GetAltStatName(), r.LastUpdated.Sub(start)
			if r.Value() == nil {
				t.Errorf("%q has no value", r.Name)
			}
		} else if r.Any() != nil || r.Value() != nil || !r.LastUpdated.IsZero() {
			t.Errorf("%q is not cached, but has %v, %v, of %v", r.Name, r.Any(), r.Value(), r.LastUpdated)
		}
		if f := r.Failure; f != nil {
			e.FailedVersion, e.FailedText, e.Failed = f.Version, f.Err.Err.Error(), f.Time.Sub(start)
		}
		all = append(all, e)
	}
	return all
}

// gRFC A40: the dump follows a resource through its life, with the versions and
// times of the responses. gRFC A88, "Cache Entry States, CSDS, and XdsClient
// Metrics".
func TestDumpFollowsTheResource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const uri = "passthrough:///script"
		types, server := newTestTypes(), newScript(t)
		c := server.client(testutils.ServerFeatures("ignore_resource_deletion"))
		start := time.Now()
		expect := func(moment string, want ...entry) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, entries(t, c.Dump(), start)); diff != "" {
				t.Errorf("%s: %s", moment, diff)
			}
		}
		listen(t, c, types.clusters, "b")
		listen(t, c, types.clusters, "a")
		requested := entry{Name: "b", State: StateRequested}
		expect("watched", entry{Name: "a", State: StateRequested}, requested)

		s := server.asked()
		pass(time.Second)
		s.send(types.clusters, "1", "n1", cluster("a", "x"))
		acked := entry{Name: "a", State: StateACKed, Server: uri, Version: "1", Text: "x", Updated: time.Second}
		expect("accepted", acked, requested)

		// The same bytes under another version.
		pass(time.Second)
		s.send(types.clusters, "2", "n2", cluster("a", "x"))
		acked.Version, acked.Updated = "2", 2*time.Second
		expect("unchanged", acked, requested)

		// A valid resource of a rejected response is of that response.
		pass(time.Second)
		s.send(types.clusters, "3", "n3", cluster("a", "y"), badCluster("b", "no good"))
		acked.Version, acked.Updated, acked.Text = "3", 3*time.Second, "y"
		nacked := entry{Name: "b", State: StateNACKed, Server: uri, FailedVersion: "3", FailedText: "no good", Failed: 3 * time.Second}
		expect("the other one rejected", acked, nacked)

		// An error that comes again is as old as its last time.
		pass(time.Second)
		s.send(types.clusters, "4", "n4", badCluster("a", "bad too"), badCluster("b", "no good"))
		nacked.FailedVersion, nacked.Failed = "4", 4*time.Second
		rejected := acked
		rejected.State, rejected.FailedVersion, rejected.FailedText, rejected.Failed = StateNACKed, "4", "bad too", 4*time.Second
		expect("both rejected", rejected, nacked)

		// What is in use outlives a deletion that is ignored.
		pass(time.Second)
		s.send(types.clusters, "5", "n5", cluster("b", "z"))
		deleted := acked
		deleted.State, deleted.FailedVersion, deleted.FailedText, deleted.Failed = StateDoesNotExist, "5", "does not exist: the server deleted it", 5*time.Second
		other := entry{Name: "b", State: StateACKed, Server: uri, Version: "5", Text: "z", Updated: 5 * time.Second}
		expect("one deleted", deleted, other)

		pass(time.Second)
		s.send(types.clusters, "6", "n6", cluster("a", "y"), cluster("b", "z"))
		acked.Version, acked.Updated, other.Version, other.Updated = "6", 6*time.Second, "6", 6*time.Second
		expect("back", acked, other)
	})
}

// gRFC A88, "Support for Errors Provided by the xDS server": an xRFC TP3 error is
// RECEIVED_ERROR, whatever its code, and whether or not a resource is cached.
func TestDumpOfReceivedError(t *testing.T) {
	for _, code := range []codes.Code{codes.Internal, codes.NotFound, codes.PermissionDenied} {
		t.Run(code.String(), func(t *testing.T) {
			overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
				listen(t, c, types.clusters, "a")
				listen(t, c, types.clusters, "b")
				s := server.stream()
				s.send(types.clusters, "1", "n1", cluster("a", "x"))
				synctest.Wait()
				start := time.Now()
				s.say(types.clusters, "2", nil, resourceError("a", code, "oops"), resourceError("b", code, "oops"))
				synctest.Wait()
				text := "oops"
				if code == codes.NotFound {
					text = "does not exist: oops"
				}
				const uri = "passthrough:///script"
				want := []entry{
					{Name: "a", State: StateReceivedError, Server: uri, Version: "1", Text: "x", FailedVersion: "2", FailedText: text},
					{Name: "b", State: StateReceivedError, Server: uri, FailedVersion: "2", FailedText: text},
				}
				if diff := cmp.Diff(want, entries(t, c.Dump(), start)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// gRFC A88: what the resource timer makes of a resource, at its time, and whether that is a transient error.
func TestDumpOfOverdueResource(t *testing.T) {
	for name, test := range map[string]struct {
		features  []string
		transient bool
		want      entry
	}{
		"silent": {nil, false, entry{Name: "a", State: StateTimeout, Server: "passthrough:///script",
			FailedText: "the server did not send it within 15s, nor anything else of its type", Failed: 15 * time.Second}},
		"timeout": {[]string{"resource_timer_is_transient_error"}, true, entry{Name: "a", State: StateTimeout, Server: "passthrough:///script",
			FailedText: "the server did not send it within 30s, nor anything else of its type", Failed: 30 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
				a, _ := listen(t, c, types.clusters, "a")
				start := time.Now()
				server.stream().request()
				xdstest.Equal(t, "whether the error is transient", test.transient, a.fault(KindTimeout).Transient)
				if diff := cmp.Diff([]entry{test.want}, entries(t, c.Dump(), start)); diff != "" {
					t.Error(diff)
				}
			}, testutils.ServerFeatures(test.features...))
		})
	}
}

// gRFC A78, grpc.xds_client.connected: 1 "when the stream is initially created", 0
// "when we have a connectivity failure or when the ADS stream fails without seeing
// a response message", and again 1 "when we receive the first response".
func TestDumpSaysWhetherTheServerIsConnected(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		expect := func(moment string, connected bool, fault string, waits ...bool) {
			t.Helper()
			synctest.Wait()
			got := c.Dump().Servers
			if len(got) != 1 || got[0].URI != "passthrough:///script" || got[0].Connected != connected ||
				(got[0].Err != nil) != (fault != "") || fault != "" && !strings.Contains(got[0].Err.Error(), fault) {
				t.Errorf("%s: %+v, want one server, connected: %v, fault: %q", moment, got, connected, fault)
			}
			if next := got[0].NextAttempt; next.IsZero() == slices.Contains(waits, true) || !next.IsZero() && (next.Before(time.Now()) || time.Until(next) > steady.MaxDelay) {
				t.Errorf("%s: the next attempt is at %v, now is %v", moment, next, time.Now())
			}
		}
		if got := c.Dump().Servers; len(got) != 0 {
			t.Errorf("servers before the first watch: %+v", got)
		}
		listen(t, c, types.clusters, "a")
		expect("no stream yet", false, "")
		s := server.stream()
		expect("the first stream", true, "")
		s.breakOff()
		expect("it failed without an answer", false, "off for lunch", true)
		s = server.asked()
		expect("the next stream", false, "off for lunch")
		s.send(types.clusters, "1", "n1", cluster("a", "x"))
		expect("its first response", true, "")
		s.breakOff()
		expect("it failed after an answer", true, "")
	})
}

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

// BenchmarkDump lists 10,000 cached resources.
func BenchmarkDump(b *testing.B) {
	const n = 10_000
	types := newTestTypes()
	k := newCore(b)
	k.watchClusters(types, n)
	k.push(sotwPush(b, types.clusters, n, -1, ""))
	for name, dump := range map[string]func(){
		"locked": func() { k.c.list(&Dump{}) },
		"whole":  func() { k.c.Dump() },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				dump()
			}
		})
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
		s.say(types.clusters, "8", nil, resourceError("b", codes.Internal, "oops"))
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
