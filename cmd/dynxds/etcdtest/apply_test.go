package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/cmdtest"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/meshdiff"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/revise"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// writer has a store of one test, and a folder to apply.
type writer struct {
	*testing.T
	*store.Store
	dir string
}

func newWriter(t *testing.T, etcd *cluster) *writer {
	t.Helper()
	return &writer{T: t, Store: etcd.open("/"+url.PathEscape(t.Name()), time.Minute), dir: t.TempDir()}
}

// folder makes the folder have just these files, by name and text.
func (m *writer) folder(files map[string]string) {
	m.Helper()
	xdstest.NoError(m, os.RemoveAll(m.dir))
	xdstest.NoError(m, os.MkdirAll(m.dir, 0o700))
	for name, text := range files {
		cmdtest.Write(m, m.dir, name, text)
	}
}

// plan plans to apply files.
func (m *writer) plan(prune bool, files map[string]string) *revise.Plan {
	m.Helper()
	m.folder(files)
	p, err := revise.Apply(m.Context(), m.Store, m.dir, prune, "")
	xdstest.NoError(m, err)
	return p
}

func (m *writer) commit(p *revise.Plan, author string) store.Record {
	m.Helper()
	r, err := p.Commit(m.Context(), revise.Author{Name: author, Time: time.Now(), Message: "by " + author}, 100)
	xdstest.NoError(m, err)
	return r
}

func (m *writer) apply(files map[string]string) store.Record {
	m.Helper()
	return m.commit(m.plan(false, files), "ada@host")
}

// has fails the test unless the store has these documents.
func (m *writer) has(want map[string]string) {
	m.Helper()
	snapshot, err := m.Load(m.Context())
	xdstest.NoError(m, err)
	got := map[string]string{}
	for name, d := range snapshot.Documents {
		got[name] = string(d.Data)
	}
	xdstest.Equal(m, "the store's documents", want, got)
}

// text returns a document of a snapshot, or nil.
func (m *writer) text(s *store.Snapshot, name string) *string {
	d, ok := s.Documents[name]
	if !ok {
		return nil
	}
	text := string(d.Data)
	return &text
}

// client is what others write with.
func (m *writer) client() *clientv3.Client {
	m.Helper()
	c, err := m.Client()
	xdstest.NoError(m, err)
	return c
}

func (m *writer) put(name, text string) {
	m.Helper()
	if _, err := m.client().Put(m.Context(), m.Key(name), text); err != nil {
		m.Fatal(err)
	}
}

func (m *writer) remove(name string) {
	m.Helper()
	if _, err := m.client().Delete(m.Context(), m.Key(name)); err != nil {
		m.Fatal(err)
	}
}

// notApplied fails the test unless the folder cannot be applied, for a reason with these texts.
func (m *writer) notApplied(what string, prune bool, texts ...string) {
	m.Helper()
	_, err := revise.Apply(m.Context(), m.Store, m.dir, prune, "")
	cmdtest.ErrorHas(m, what, err, texts...)
}

// notRolledBack fails the test unless a rollback is refused, for a reason with these texts.
func (m *writer) notRolledBack(what string, number int64, texts ...string) {
	m.Helper()
	_, err := revise.Rollback(m.Context(), m.Store, number, "")
	cmdtest.ErrorHas(m, what, err, texts...)
}

// rollback rolls back to a revision.
func (m *writer) rollback(number int64) (*revise.Plan, store.Record) {
	m.Helper()
	p, err := revise.Rollback(m.Context(), m.Store, number, "")
	xdstest.NoError(m, err)
	return p, m.commit(p, "ada@host")
}

func TestApply(t *testing.T) {
	t.Parallel()
	etcd := newCluster(t, 1)
	a, b, b2 := service("a", "10.0.0.1:80"), service("b", "10.0.0.2:80"), service("b", "10.0.0.3:80")
	first := map[string]string{"a.yaml": a, "b.yaml": b}

	t.Run("prune", func(t *testing.T) {
		t.Parallel()
		m := newWriter(t, etcd)
		r := m.apply(first)
		if edits, err := r.Edits(); err != nil || r.Number != 1 || len(edits) != 2 {
			t.Errorf("got record %d with %d documents and error %v, want 1 with 2", r.Number, len(edits), err)
		}
		p := m.plan(false, map[string]string{"b.yaml": b2})
		if got, want := meshdiff.Text(p.Changes), "~ ClusterLoadAssignment b: all clients\n"+
			"    + no locality, priority 0: endpoint 10.0.0.3:80: {\"health_status\":\"HEALTHY\",\"load_balancing_weight\":1}\n"+
			"    - no locality, priority 0: endpoint 10.0.0.2:80: {\"health_status\":\"HEALTHY\",\"load_balancing_weight\":1}\n"; got != want {
			t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
		}
		m.commit(p, "bob@host")
		m.has(map[string]string{"a.yaml": a, "b.yaml": b2})
		m.commit(m.plan(true, map[string]string{"b.yaml": b2}), "bob@host")
		m.has(map[string]string{"b.yaml": b2})
		if p := m.plan(true, map[string]string{"b.yaml": b2}); len(p.Edits)+len(p.Changes) > 0 {
			t.Errorf("a second time there are %d edits and %d changes, want none", len(p.Edits), len(p.Changes))
		}
		records, err := m.History(t.Context(), 0)
		if err != nil || len(records) != 3 || records[1].Author != "bob@host" || records[2].Command != "apply --prune" {
			t.Errorf("got history %+v and error %v, want 3 records", records, err)
		}
	})

	// The whole is checked: a fault in the folder, or between it and what is there, is named; nothing is
	// written, and nothing is left of it.
	t.Run("faults", func(t *testing.T) {
		t.Parallel()
		m := newWriter(t, etcd)
		m.apply(first)
		for _, test := range []struct{ file, text, want string }{
			{"c.yaml", "kind: Service\nname: c\nendpoint: []\n", m.dir + `/c.yaml:3: unknown field "endpoint"`},
			{"c.yaml", "# twice\n" + a, m.dir + "/c.yaml:2: duplicate service a; the first is at etcd:" + m.Prefix() + "/docs/a.yaml:1"},
		} {
			m.folder(map[string]string{test.file: test.text, "b.yaml": b2})
			_, err := revise.Apply(t.Context(), m.Store, m.dir, false, "")
			var found *faults.Faults
			if !errors.As(err, &found) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want faults with %q", err, test.want)
			}
		}
		p := m.plan(false, map[string]string{"c.yaml": `kind: Resource
name: c
resource: {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: d}
`})
		if _, err := p.Commit(t.Context(), revise.Author{}, 1); err == nil || p.Err() == nil {
			t.Errorf("got error %v for a resource that clients reject", err)
		}
		m.has(first)
	})

	// Documents that came by other means do not hinder those who correct them.
	t.Run("faulty documents in the store", func(t *testing.T) {
		t.Parallel()
		m := newWriter(t, etcd)
		m.apply(first)
		m.put("b.yaml", "kind: Nonsense\n")
		// Also if there is nothing else to do.
		for _, files := range []map[string]string{{"c.yaml": service("c", "10.0.0.4:80")}, {"a.yaml": a}} {
			m.folder(files)
			m.notApplied("a faulty document in the store", false, "etcd:"+m.Prefix()+"/docs/b.yaml:1: kind: unknown value")
		}
		p := m.plan(false, map[string]string{"b.yaml": b2})
		if len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "b.yaml") {
			t.Errorf("got notes %q, want one about b.yaml", p.Notes)
		}
		m.commit(p, "ada@host")
		m.has(map[string]string{"a.yaml": a, "b.yaml": b2})
	})

	t.Run("an empty mesh", func(t *testing.T) {
		t.Parallel()
		m := newWriter(t, etcd)
		m.apply(first)
		m.folder(nil)
		m.notApplied("an empty folder", true, "has no .yaml")
		m.notRolledBack("to nothing", 0, "no document would be left")
	})

	t.Run("a history of two", func(t *testing.T) {
		t.Parallel()
		m := newWriter(t, etcd)
		for i := range 5 {
			p := m.plan(false, map[string]string{"a.yaml": service("a", fmt.Sprintf("10.0.0.%d:80", i+1))})
			if _, err := p.Commit(t.Context(), revise.Author{Name: "x"}, 2); err != nil {
				t.Fatal(err)
			}
		}
		records, err := m.History(t.Context(), 0)
		if err != nil || len(records) != 2 || records[0].Number != 4 || records[1].Number != 5 {
			t.Errorf("got %d records, error %v; want 4 and 5", len(records), err)
		}
		if _, err := m.plan(false, map[string]string{"a.yaml": a + "#"}).Commit(t.Context(), revise.Author{}, 0); err == nil {
			t.Error("a history of nothing was accepted")
		}
	})
}

// Those that write different documents at the same time all write; of those that write the same one, one does, and the
// others are told who.
func TestConflicts(t *testing.T) {
	t.Parallel()
	etcd := newCluster(t, 1)
	a, b := service("a", "10.0.0.1:80"), service("b", "10.0.0.2:80")
	start := map[string]string{"a.yaml": a, "b.yaml": b}
	edit := map[string]string{"a.yaml": service("a", "10.0.0.9:80")}

	// race has several writers commit plans that were made of the same revision.
	race := func(t *testing.T, file func(i int) (name, text string)) (m *writer, errs []error) {
		m = newWriter(t, etcd)
		m.apply(start)
		const writers = 8
		plans := make([]*revise.Plan, writers)
		for i := range plans {
			name, text := file(i)
			plans[i] = m.plan(false, map[string]string{name: text})
		}
		errs = make([]error, writers)
		var running sync.WaitGroup
		for i, p := range plans {
			running.Go(func() {
				_, errs[i] = p.Commit(t.Context(), revise.Author{Name: fmt.Sprintf("writer%d@host", i), Time: time.Unix(1e9, 0).UTC()}, 100)
			})
		}
		running.Wait()
		return m, errs
	}

	t.Run("different documents", func(t *testing.T) {
		t.Parallel()
		text := func(i int) (name, text string) {
			name = fmt.Sprintf("s%d", i)
			return name + ".yaml", service(name, "10.0.1.1:80")
		}
		m, errs := race(t, text)
		want := maps.Clone(start)
		for i, err := range errs {
			xdstest.NoError(t, err)
			name, text := text(i)
			want[name] = text
		}
		m.has(want)
		records, err := m.History(t.Context(), 0)
		if err != nil || len(records) != 1+len(errs) {
			t.Errorf("got %d records, %v; want one for each writer", len(records), err)
		}
	})

	t.Run("the same document", func(t *testing.T) {
		t.Parallel()
		_, errs := race(t, func(i int) (name, text string) { return "a.yaml", service("a", fmt.Sprintf("10.0.1.%d:80", i+1)) })
		winner := -1
		for i, err := range errs {
			if err == nil {
				if winner >= 0 {
					t.Fatalf("writers %d and %d both wrote", winner, i)
				}
				winner = i
			}
		}
		if winner < 0 {
			t.Fatalf("nobody wrote: %v", errs)
		}
		for i, err := range errs {
			want := fmt.Sprintf("writer%d@host wrote revision 2 at 2001-09-09T01:46:40Z", winner)
			var conflict *store.Conflict
			if i != winner && (!errors.As(err, &conflict) || !strings.Contains(err.Error(), want)) {
				t.Errorf("writer %d got error %v, want a conflict with %q", i, err, want)
			}
		}
	})

	// What is good with the documents that were read need not be with those that are there now.
	t.Run("documents that contradict each other", func(t *testing.T) {
		t.Parallel()
		m, errs := race(t, func(i int) (name, text string) { return fmt.Sprintf("s%d.yaml", i), service("one", "10.0.1.1:80") })
		failed := 0
		for _, err := range errs {
			if err != nil {
				failed++
				cmdtest.ErrorHas(t, "a second document with the service", err, "It conflicts with what was written meanwhile", "duplicate service one")
			}
		}
		if failed != len(errs)-1 {
			t.Errorf("%d of %d writers failed, want all but one", failed, len(errs))
		}
		snapshot, err := m.Load(t.Context())
		if err != nil || len(snapshot.Documents) != 3 {
			t.Errorf("got %v, %v, want three documents", snapshot, err)
		}
	})

	// Compaction while a plan waits makes no difference.
	t.Run("compaction", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, 1)
		m := newWriter(t, c)
		m.apply(start)
		p := m.plan(false, edit)
		r, err := m.client().Put(t.Context(), "/other", "")
		xdstest.NoError(t, err)
		_, err = m.client().Compact(t.Context(), r.Header.Revision)
		xdstest.NoError(t, err)
		m.commit(p, "ada@host")
		m.has(map[string]string{"a.yaml": edit["a.yaml"], "b.yaml": b})
	})

	for _, test := range []struct {
		name  string
		other func(*writer)
		want  string
	}{
		{"the same document changed by etcdctl", func(m *writer) { m.put("a.yaml", a+"#") }, "modified outside dynxds: a.yaml"},
		{"a document created by etcdctl that is faulty", func(m *writer) { m.put("c.yaml", "kind: Nonsense") }, "modified outside dynxds: c.yaml"},
		{"the same document deleted by etcdctl", func(m *writer) { m.remove("a.yaml") }, "modified outside dynxds: a.yaml"},
		{"the same document written by dynxds", func(m *writer) {
			m.commit(m.plan(false, map[string]string{"a.yaml": a + "# eve\n"}), "eve@host")
		}, "eve@host wrote revision 2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := newWriter(t, etcd)
			m.apply(start)
			p := m.plan(false, edit)
			test.other(m)
			before, err := m.Load(t.Context())
			xdstest.NoError(t, err)
			_, err = p.Commit(t.Context(), revise.Author{Name: "x"}, 100)
			var conflict *store.Conflict
			if !errors.As(err, &conflict) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want a conflict with %q", err, test.want)
			}
			after, err := m.Load(t.Context())
			if diff := cmp.Diff(before.Documents, after.Documents); diff != "" || err != nil {
				t.Errorf("error %v; the documents changed:\n%s", err, diff)
			}
		})
	}
}

func TestRollback(t *testing.T) {
	t.Parallel()
	etcd := newCluster(t, 1)
	m := newWriter(t, etcd)
	a, b, b2 := service("a", "10.0.0.1:80"), service("b", "10.0.0.2:80"), service("b", "10.0.0.3:80")
	m.apply(map[string]string{"a.yaml": a, "b.yaml": b})
	m.apply(map[string]string{"b.yaml": b2, "c.yaml": service("c", "10.0.0.4:80")})
	m.commit(m.plan(true, map[string]string{"b.yaml": b2}), "bob@host")

	// What etcd has compacted makes no difference.
	snapshot, err := m.Load(t.Context())
	xdstest.NoError(t, err)
	if _, err := m.client().Compact(t.Context(), snapshot.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	p, r := m.rollback(1)
	if text := meshdiff.Text(p.Changes); !strings.Contains(text, "+ Listener a: all clients") || !strings.Contains(text, "endpoint 10.0.0.2:80") {
		t.Errorf("got changes %s", text)
	}
	if r.Number != 4 || r.Command != "rollback 1" {
		t.Errorf("got record %d %q, want 4, rollback 1", r.Number, r.Command)
	}
	m.has(map[string]string{"a.yaml": a, "b.yaml": b})

	// And back.
	m.rollback(3)
	m.has(map[string]string{"b.yaml": b2})

	entry, err := revise.Show(t.Context(), m.Store, 2)
	if err != nil || len(entry.Notes) > 0 || !strings.HasPrefix(meshdiff.Text(entry.Changes), "+ Listener c: all clients\n") {
		t.Errorf("revision 2 was %+v, error %v; want that it added c", entry, err)
	}

	m.put("b.yaml", b+"# by hand\n")
	m.notRolledBack("b.yaml was changed by hand", 1, "modified outside dynxds")
	if entry, err = revise.Show(t.Context(), m.Store, 2); err != nil || len(entry.Notes) != 1 || !strings.Contains(entry.Notes[0], "b.yaml") {
		t.Errorf("revision 2 was %+v, error %v; want a note about b.yaml", entry, err)
	}
}

// A history longer than one response of etcd is read as a whole; an entry that is no record is named, with what to do.
func TestLongHistory(t *testing.T) {
	t.Parallel()
	m := newWriter(t, newCluster(t, 1))
	const records = 250
	a := service("a", "10.0.0.1:80")
	for i := range records {
		snapshot, err := m.Load(t.Context())
		xdstest.NoError(t, err)
		text := fmt.Sprintf("%s# %d\n", a, i+1)
		if _, err := m.Commit(t.Context(), snapshot, store.Record{Command: "apply"}, []store.Edit{{Name: "a.yaml", Before: m.text(snapshot, "a.yaml"), After: &text}}, records); err != nil {
			t.Fatal(err)
		}
	}
	if _, r := m.rollback(1); r.Number != records+1 {
		t.Errorf("the rollback is revision %d, want %d", r.Number, records+1)
	}
	m.has(map[string]string{"a.yaml": a + "# 1\n"})

	// hostile writes what is no record, and returns what is said of it.
	hostile := func(number int64) string {
		key := fmt.Sprintf("%s/history/%010d", m.Prefix(), number)
		if _, err := m.client().Put(t.Context(), key, fmt.Sprintf(`{"number":%d}`+"\n", number)); err != nil {
			t.Fatal(err)
		}
		return strconv.Quote(key) + " is no record of dynxds; delete it"
	}
	m.notRolledBack("an entry that is no record", records, hostile(records+2))
	want := hostile(9999999999)
	_, err := m.plan(false, map[string]string{"a.yaml": a}).Commit(t.Context(), revise.Author{Name: "x"}, 100)
	cmdtest.ErrorHas(t, "a write after an entry that has the last number", err, want)
}

// The limits of etcd are named, with the way out.
func TestLimits(t *testing.T) {
	t.Parallel()
	etcd := newCluster(t, 1)
	for _, test := range []struct {
		name   string
		number int
		size   int
		want   string
	}{
		{"operations", 128, 10, "raise etcd's --max-txn-ops"},
		{"bytes", 2, 1 << 20, "raise etcd's --max-request-bytes"},
		{"many bytes", 4, 4 << 20, "raise etcd's --max-request-bytes"},
		{"as many as fit", 126, 10, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := newWriter(t, etcd)
			files := map[string]string{}
			for i := range test.number {
				name := fmt.Sprintf("s%03d", i)
				files[name+".yaml"] = service(name, "10.0.0.1:80") + "#" + strings.Repeat("x", test.size)
			}
			_, err := m.plan(false, files).Commit(t.Context(), revise.Author{Name: "x"}, 100)
			if test.want == "" {
				xdstest.NoError(t, err)
				return
			}
			cmdtest.ErrorHas(t, test.name, err, test.want)
			m.has(map[string]string{})
		})
	}
}

// An etcd that is full refuses to write, with the way out, and serves what it has.
func TestFullEtcd(t *testing.T) {
	t.Parallel()
	etcd := newCluster(t, 1)
	m := newWriter(t, etcd)
	first := map[string]string{"a.yaml": service("a", "10.0.0.1:80")}
	m.apply(first)
	alarm := func(action pb.AlarmRequest_AlarmAction) {
		t.Helper()
		request := &pb.AlarmRequest{Action: action, MemberID: uint64(etcd.members[0].etcd.Server.MemberID()), Alarm: pb.AlarmType_NOSPACE}
		if _, err := pb.NewMaintenanceClient(etcd.client.ActiveConnection()).Alarm(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	alarm(pb.AlarmRequest_ACTIVATE)
	p := m.plan(false, map[string]string{"b.yaml": service("b", "10.0.0.2:80")})
	_, err := p.Commit(t.Context(), revise.Author{Name: "x"}, 100)
	cmdtest.ErrorHas(t, "a write into a full etcd", err, "--quota-backend-bytes")
	if strings.Contains(fmt.Sprint(err), "may have been written") {
		t.Errorf("a write into a full etcd: the error %v leaves open whether it was written", err)
	}
	m.has(first)
	follow(t, m.Store).has(map[string]string{"a": "10.0.0.1:80"})
	err = m.Announce(t.Context(), store.Replica{ID: "r"})
	cmdtest.ErrorHas(t, "an announcement in a full etcd", err, "--quota-backend-bytes")
	alarm(pb.AlarmRequest_DEACTIVATE)
	m.commit(p, "ada@host")
}

// Without etcd the error names the members, and does not take long.
func TestNoEtcd(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "localhost:0")
	xdstest.NoError(t, err)
	address := listener.Addr().String()
	listener.Close()
	s, err := store.Open(store.Options{URL: "etcd://" + address, Timeout: 100 * time.Millisecond})
	xdstest.NoError(t, err)
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = s.History(ctx, 0)
	cmdtest.ErrorHas(t, "without etcd", err, address)
	if ctx.Err() != nil {
		t.Error("the error took more than a minute")
	}
}
