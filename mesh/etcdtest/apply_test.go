package etcdtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/store"
	"github.com/dynxds/dynxds/testutils"
)

// set is documents by name.
type set = map[string]string

// documentsOf returns what the store has.
func documentsOf(t *testing.T, s *store.Store) set {
	t.Helper()
	snapshot, err := s.Load(testutils.Context(t))
	xdstest.NoError(t, err)
	return snapshot.Documents
}

// write makes the store have a set, and returns the edits.
func write(t *testing.T, s *store.Store, want set) (edits []string) {
	t.Helper()
	before, err := s.Write(testutils.Context(t), want)
	xdstest.NoError(t, err)
	xdstest.Equal(t, "the store's documents", want, documentsOf(t, s))
	for _, e := range before.Edits(want) {
		edits = append(edits, e.String())
	}
	return edits
}

// The store has what was written last, as a whole, by one transaction; other keys stay as they are.
func TestWrite(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	s := c.open(prefix, 0)
	c.put(key("notes.txt"), "nothing")
	watch := c.client.Watch(testutils.Context(t), prefix, clientv3.WithPrefix())
	// revision waits for the changes of one revision, and returns them.
	changes := func() (list []string) {
		t.Helper()
		r := <-watch
		for _, e := range r.Events {
			if list = append(list, e.Type.String()+" "+strings.TrimPrefix(string(e.Kv.Key), key(""))); e.Kv.ModRevision != r.Header.Revision {
				t.Errorf("the change %v is of revision %d, want all of %d", e, e.Kv.ModRevision, r.Header.Revision)
			}
		}
		slices.Sort(list)
		return list
	}
	xdstest.Equal(t, "edits of an empty store", []string{"+ a.yaml", "+ b.yaml"}, write(t, s, set{"a.yaml": "1", "b.yaml": "1"}))
	xdstest.Equal(t, "the first transaction", []string{"PUT a.yaml", "PUT b.yaml"}, changes())
	xdstest.Equal(t, "edits", []string{"- a.yaml", "~ b.yaml", "+ c.yaml"}, write(t, s, set{"b.yaml": "2", "c.yaml": "1"}))
	xdstest.Equal(t, "the second transaction", []string{"DELETE a.yaml", "PUT b.yaml", "PUT c.yaml"}, changes())

	before := c.put("/other", "")
	xdstest.Equal(t, "edits of the same set", nil, write(t, s, set{"b.yaml": "2", "c.yaml": "1"}))
	xdstest.Equal(t, "the revision of etcd after the same set was written", before+1, c.put("/other", ""))
	got, err := c.client.Get(testutils.Context(t), key("notes.txt"))
	if err != nil || len(got.Kvs) != 1 {
		t.Errorf("another key of the store was deleted: %v, %v", got, err)
	}
}

// A transaction whose snapshot is not the present one any more does not count as done.
func TestCommitOfAnOldSnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	for name, test := range map[string]struct {
		other func(docs string)
		// written says that the transaction took place: the deletion of a document is only seen afterwards.
		written bool
	}{
		"changed":           {func(docs string) { c.put(docs+"a.yaml", "theirs") }, false},
		"created":           {func(docs string) { c.put(docs+"c.yaml", "theirs") }, false},
		"deleted":           {func(docs string) { c.delete(docs + "a.yaml") }, true},
		"deleted, and mine": {func(docs string) { c.delete(docs + "b.yaml") }, true},
		"no document":       {func(docs string) { c.put(docs+"notes.txt", "") }, false},
		"created and gone":  {func(docs string) { c.put(docs+"c.yaml", ""); c.delete(docs + "c.yaml") }, true},
		"of another store":  {func(string) { c.put("/elsewhere/docs/a.yaml", "") }, true},
		"compacted meanwhile": {func(string) {
			_, err := c.client.Compact(testutils.Context(t), c.put("/other", ""))
			xdstest.NoError(t, err)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testutils.Context(t)
			here := "/" + strings.ReplaceAll(name, " ", "-")
			s := c.open(here, 0)
			write(t, s, set{"a.yaml": "1", "b.yaml": "1"})
			old, err := s.Load(ctx)
			xdstest.NoError(t, err)
			want := set{"a.yaml": "1", "b.yaml": "2"}
			test.other(here + "/docs/")
			ok, err := s.Commit(ctx, old, old.Edits(want))
			xdstest.NoError(t, err)
			now := documentsOf(t, s)
			if ok != maps.Equal(now, want) {
				t.Errorf("the transaction reports %t, and the store has %v", ok, now)
			}
			if written := now["b.yaml"] == "2"; written != test.written {
				t.Errorf("written: %t, want %t", written, test.written)
			}
			write(t, s, want)
		})
	}
}

// Of those who write at the same time one is the last, and the store has all that it wrote and nothing of others.
func TestWritersAtTheSameTime(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	const writers = 8
	sets := make([]set, writers)
	var running sync.WaitGroup
	for i := range sets {
		sets[i] = set{"all.yaml": fmt.Sprint(i), fmt.Sprintf("%d.yaml", i): "mine", fmt.Sprintf("%d.yaml", (i+1)%writers): "of two"}
		s := c.open(prefix, time.Minute)
		running.Go(func() {
			if _, err := s.Write(testutils.Context(t), sets[i]); err != nil {
				t.Errorf("writer %d: %v", i, err)
			}
		})
	}
	running.Wait()
	got := documentsOf(t, c.open(prefix, 0))
	if !slices.ContainsFunc(sets, func(s set) bool { return maps.Equal(s, got) }) {
		t.Errorf("the store has %v, which nobody wrote", got)
	}
}

// The limits of etcd are named, with the way out, and nothing is written.
func TestLimits(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	for _, test := range []struct {
		name         string
		number, size int
		want         string
	}{
		{"operations", 128, 10, "128 files change at once, and etcd takes --max-txn-ops of them, less one; that is 128 by default"},
		{"bytes", 2, 1 << 20, "raise it"},
		{"many bytes", 4, 4 << 20, "etcd's --max-request-bytes"},
		{"as many as fit", 127, 10, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := c.open("/"+strings.ReplaceAll(test.name, " ", "-"), time.Minute)
			files := set{}
			for i := range test.number {
				files[fmt.Sprintf("%03d.yaml", i)] = strings.Repeat("x", test.size)
			}
			if test.want == "" {
				write(t, s, files)
				delete(files, "000.yaml") // of a large set, a small change
				write(t, s, files)
				return
			}
			_, err := s.Write(testutils.Context(t), files)
			cmdtest.ErrorHas(t, test.name, err, "nothing was written", test.want)
			xdstest.Equal(t, "the store's documents", set{}, documentsOf(t, s))
		})
	}
}

// An etcd that is full refuses to write, with the way out, and serves what it has.
func TestFullEtcd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	s := c.open(prefix, time.Minute)
	first := set{"a.yaml": service("a", "10.0.0.1:80")}
	write(t, s, first)
	alarm := func(action pb.AlarmRequest_AlarmAction) {
		t.Helper()
		request := &pb.AlarmRequest{Action: action, MemberID: uint64(c.members[0].etcd.Server.MemberID()), Alarm: pb.AlarmType_NOSPACE}
		_, err := pb.NewMaintenanceClient(c.client.ActiveConnection()).Alarm(t.Context(), request)
		xdstest.NoError(t, err)
	}
	alarm(pb.AlarmRequest_ACTIVATE)
	second := set{"b.yaml": service("b", "10.0.0.2:80")}
	_, err := s.Write(testutils.Context(t), second)
	cmdtest.ErrorHas(t, "a write into a full etcd", err, "--quota-backend-bytes")
	if strings.Contains(fmt.Sprint(err), "may have been written") {
		t.Errorf("a write into a full etcd: the error %v leaves open whether it was written", err)
	}
	xdstest.Equal(t, "the store's documents", first, documentsOf(t, s))
	follow(t, s).has(set{"a": "10.0.0.1:80"})
	err = s.Announce(t.Context(), store.Replica{ID: "r"})
	cmdtest.ErrorHas(t, "an announcement in a full etcd", err, "--quota-backend-bytes")
	alarm(pb.AlarmRequest_DEACTIVATE)
	write(t, s, second)
}
