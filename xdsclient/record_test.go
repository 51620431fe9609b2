package xdsclient

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/testutils"
)

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
