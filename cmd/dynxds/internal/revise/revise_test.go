package revise

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/cmdtest"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// world is a store in memory: what the rules of undoing see of it.
type world struct {
	texts    texts
	revision map[string]int64 // of etcd
	now      int64
	records  []store.Record
	// states are the documents after each record, the first one before all.
	states []texts
}

func newWorld() *world {
	return &world{texts: texts{}, revision: map[string]int64{}, states: []texts{{}}}
}

// put changes documents, "a=text" that of a.yaml, or deletes them, "a"; with a record if it is by dynxds.
func (w *world) put(t *testing.T, byUs bool, documents ...string) {
	t.Helper()
	after := maps.Clone(w.texts)
	for _, d := range documents {
		if name, text, ok := strings.Cut(d, "="); ok {
			after[name+".yaml"] = text
		} else {
			delete(after, name+".yaml")
		}
	}
	list := edits(w.texts, after)
	w.now++
	for _, e := range list {
		w.revision[e.Name] = w.now
	}
	w.texts = after
	if byUs {
		r, err := store.Record{Number: int64(len(w.records) + 1), Revision: w.now}.With(list)
		xdstest.NoError(t, err)
		w.records = append(w.records, r)
		w.states = append(w.states, maps.Clone(after))
	}
}

func (w *world) snapshot() *store.Snapshot {
	s := &store.Snapshot{Head: store.Head{Revision: w.now}, Documents: map[string]store.Document{}}
	for name, text := range w.texts {
		s.Documents[name] = store.Document{Data: []byte(text), ModRevision: w.revision[name]}
	}
	return s
}

func TestRestore(t *testing.T) {
	t.Parallel()
	const us, others = true, false
	type step struct {
		us        bool
		documents []string
	}
	for _, test := range []struct {
		name   string
		steps  []step
		number int64
		keep   int
		// err is in the error; without one, the documents are those after the record.
		err string
	}{
		{"before all", []step{{us, []string{"a=1"}}, {us, []string{"a=2", "b=1"}}}, 0, 9, ""},
		{"created again", []step{{us, []string{"a=1", "b=1"}}, {us, []string{"a"}}, {us, []string{"b=2", "c=1"}}}, 1, 9, ""},
		{"the last one", []step{{us, []string{"a=1"}}, {us, []string{"a=2"}}}, 2, 9, ""},
		{"no such one", []step{{us, []string{"a=1"}}}, 2, 9, "the last one is 1"},
		{"a negative one", []step{{us, []string{"a=1"}}}, -1, 9, "the last one is 1"},
		{"no history", nil, 0, 9, "has no history"},
		{"too old", []step{{us, []string{"a=1"}}, {us, []string{"a=2"}}, {us, []string{"a=3"}}}, 1, 2, "revision 1 is no longer in the history, which begins with 2"},
		{"before all, which is too old", []step{{us, []string{"a=1"}}, {us, []string{"a=2"}}}, 0, 1, "revision 0 is no longer in the history, which begins with 2"},
		{"the oldest one", []step{{us, []string{"a=1"}}, {us, []string{"a=2"}}, {us, []string{"a=3"}}}, 2, 2, ""},
		{"changed by others since", []step{{us, []string{"a=1"}}, {us, []string{"a=2"}}, {others, []string{"a=x"}}}, 1, 9, "modified outside dynxds since revision 1, so that their texts of that time are unknown: a"},
		{"changed by others in between", []step{{us, []string{"a=1"}}, {others, []string{"a=x"}}, {us, []string{"a=3"}}}, 0, 9, "of that time are unknown: a"},
		{"another one changed since", []step{{us, []string{"a=1", "b=1"}}, {us, []string{"a=2"}}, {others, []string{"b=x"}}}, 1, 9, "of that time are unknown: b"},
		{"another one created since", []step{{us, []string{"a=1"}}, {us, []string{"a=2"}}, {others, []string{"b=x"}}}, 1, 9, "of that time are unknown: b"},
		{"another one deleted", []step{{us, []string{"a=1", "b=1"}}, {us, []string{"a=2"}}, {others, []string{"b"}}}, 1, 9, "of that time are unknown: b"},
		{"created by others before", []step{{us, []string{"a=1"}}, {others, []string{"b=x"}}, {us, []string{"a=2"}}, {us, []string{"a=3"}}}, 2, 9, ""},
		{"there before the first record", []step{{others, []string{"b=x"}}, {us, []string{"a=1"}}}, 0, 9, ""},
		{"changed and put back by others", []step{{us, []string{"a=1", "b=1"}}, {us, []string{"a=2"}}, {others, []string{"b=x"}}, {others, []string{"b=1"}}}, 1, 9, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			for _, s := range test.steps {
				w.put(t, s.us, s.documents...)
			}
			if len(w.states) > 0 && test.name == "there before the first record" {
				w.states[0] = texts{"b.yaml": "x"}
			}
			records := w.records[max(0, len(w.records)-test.keep):]
			got, err := restore(w.snapshot(), records, test.number)
			if test.err != "" {
				cmdtest.ErrorHas(t, fmt.Sprint(got), err, test.err)
				return
			}
			if diff := cmp.Diff(w.states[test.number], got); diff != "" || err != nil {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestRestoreWithAGap(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for i := range 4 {
		w.put(t, true, fmt.Sprintf("a=%d", i))
	}
	records := slices.Delete(w.records, 2, 3)
	_, err := restore(w.snapshot(), records, 1)
	cmdtest.ErrorHas(t, "before the gap", err, "revision 3 is missing")
	if got, err := restore(w.snapshot(), records, 4); err != nil || got["a.yaml"] != "3" {
		t.Errorf("got %v and error %v, want what is after the gap", got, err)
	}
}
