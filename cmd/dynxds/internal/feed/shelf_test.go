package feed

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// change is a document that is written, or deleted if the text is empty.
type change struct{ name, text string }

const dir = "etcd:/mesh/docs"

// bench is a shelf, and the history of the store behind it.
type bench struct {
	*shelf
	t        *testing.T
	revision int64
	history  map[string][]store.Document // oldest first
	// rejects is what publishing finds wrong, beyond what reading does.
	rejects func(*folder.Content) error
	log     bytes.Buffer
}

func newBench(t *testing.T, history ...change) *bench {
	b := &bench{t: t, history: map[string][]store.Document{}, rejects: func(*folder.Content) error { return nil }}
	b.start()
	for _, c := range history {
		b.write(c)
	}
	return b
}

// start replaces the shelf by that of a replica that has just started.
func (b *bench) start() {
	b.shelf = newShelf(dir, slog.New(slog.NewTextHandler(&b.log, nil)))
	b.older = func(_ context.Context, name string, revision int64) *store.Document {
		for _, d := range slices.Backward(b.history[name]) {
			if d.ModRevision < revision {
				return &d
			}
		}
		return nil
	}
	for name, versions := range b.history {
		if d := versions[len(versions)-1]; d.Data != nil {
			b.set(name, &d, d.ModRevision)
		}
	}
}

func (b *bench) write(c change) {
	b.revision++
	d := store.Document{ModRevision: b.revision, CreateRevision: 1}
	if c.text == "" {
		b.set(c.name, nil, b.revision)
	} else {
		d.Data = []byte(c.text)
		b.set(c.name, &d, b.revision)
	}
	b.history[c.name] = append(b.history[c.name], d)
}

// load publishes what the shelf has, as the reloader of package site does, and returns it: the texts of the
// services' source files, and their endpoints.
func (b *bench) load() []string {
	b.t.Helper()
	for range 20 {
		content, err := b.read(b.t.Context())
		if err == nil {
			err = b.rejects(content)
		}
		if err != nil && b.without(b.t.Context(), err) {
			continue
		}
		xdstest.NoError(b.t, err)
		b.published()
		if b.stale {
			continue
		}
		var got []string
		for _, s := range content.Services {
			text := strings.TrimPrefix(s.Source.File, dir+"/") + " " + s.Name
			for _, e := range s.Endpoints {
				text += " " + e.Address
			}
			got = append(got, text)
		}
		return got
	}
	b.t.Fatal("the shelf offers more and more versions")
	return nil
}

func service(name string, port int) string {
	return fmt.Sprintf("kind: Service\nname: %s\nendpoints: [{address: 'a:%d'}]\n", name, port)
}

// A faulty document counts with its last good text, whether it is faulty by itself or together with others,
// and a replica that starts later has the same.
func TestLastGood(t *testing.T) {
	t.Parallel()
	const faulty = "kind: Service\nnam: a\n"
	for _, test := range []struct {
		name    string
		first   []change
		then    []change
		want    []string
		refused []string // names
		// forgotten: a replica that starts later cannot have the same.
		forgotten bool
	}{
		{
			name:  "a faulty change",
			first: []change{{"a.yaml", service("a", 1)}, {"b.yaml", service("b", 1)}},
			then:  []change{{"a.yaml", faulty}, {"b.yaml", service("b", 2)}},
			want:  []string{"a.yaml a a:1", "b.yaml b a:2"}, refused: []string{"a.yaml"},
		},
		{
			name:  "a faulty change after a faulty change",
			first: []change{{"a.yaml", service("a", 1)}},
			then:  []change{{"a.yaml", faulty}, {"a.yaml", faulty + "# again\n"}},
			want:  []string{"a.yaml a a:1"}, refused: []string{"a.yaml"},
		},
		{
			name:  "a faulty new document",
			first: []change{{"a.yaml", service("a", 1)}},
			then:  []change{{"b.yaml", faulty}},
			want:  []string{"a.yaml a a:1"}, refused: []string{"b.yaml"},
		},
		{
			name:  "a document that is mended",
			first: []change{{"a.yaml", service("a", 1)}},
			then:  []change{{"a.yaml", faulty}, {"a.yaml", service("a", 2)}},
			want:  []string{"a.yaml a a:2"},
		},
		{
			name:  "a faulty document that is deleted",
			first: []change{{"a.yaml", service("a", 1)}, {"b.yaml", service("b", 1)}},
			then:  []change{{"a.yaml", faulty}, {"a.yaml", ""}},
			want:  []string{"b.yaml b a:1"},
		},
		{
			name:  "a new document that contradicts one before it",
			first: []change{{"b.yaml", service("a", 1)}},
			then:  []change{{"a.yaml", service("a", 2)}, {"c.yaml", service("c", 1)}},
			want:  []string{"b.yaml a a:1", "c.yaml c a:1"}, refused: []string{"a.yaml"},
		},
		{
			name:  "a change that contradicts another document",
			first: []change{{"a.yaml", service("a", 1)}, {"b.yaml", service("b", 1)}},
			then:  []change{{"a.yaml", service("b", 1)}},
			want:  []string{"a.yaml a a:1", "b.yaml b a:1"}, refused: []string{"a.yaml"},
		},
		{
			name:  "a contradiction that ends with a change of the other document",
			first: []change{{"a.yaml", service("a", 1)}, {"b.yaml", service("b", 1)}},
			then:  []change{{"a.yaml", service("b", 1)}, {"b.yaml", service("c", 1)}},
			want:  []string{"a.yaml b a:1", "b.yaml c a:1"},
		},
		{
			name:  "a change of the document that another one contradicts",
			first: []change{{"b.yaml", service("a", 1)}},
			then:  []change{{"a.yaml", service("a", 2)}, {"b.yaml", service("a", 3)}},
			want:  []string{"b.yaml a a:3"}, refused: []string{"a.yaml"},
		},
		{
			name: "the deletion of a document that another one needs",
			first: []change{
				{"a.yaml", "kind: Service\nname: a\nport: 80\n"},
				{"slice.yaml", `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: a-1, labels: {kubernetes.io/service-name: a}},
 addressType: IPv4, endpoints: [{addresses: [10.0.0.1]}], ports: [{name: x, port: 80}, {name: y, port: 81}]}`},
			},
			then: []change{{"a.yaml", ""}},
			want: []string{"a.yaml a 10.0.0.1:80"}, refused: []string{"a.yaml"}, forgotten: true,
		},
		{
			name:  "what only publishing finds",
			first: []change{{"a.yaml", service("a", 1)}, {"b.yaml", service("b", 1)}},
			then:  []change{{"a.yaml", service("a", 2)}, {"b.yaml", service("b", 13)}},
			want:  []string{"a.yaml a a:2", "b.yaml b a:1"}, refused: []string{"b.yaml"},
		},
		{
			name:  "what publishing says of no document is laid to the last change",
			first: []change{{"a.yaml", service("a", 1)}, {"b.yaml", service("b", 1)}},
			then:  []change{{"a.yaml", service("a", 2)}, {"b.yaml", service("b", 14)}},
			want:  []string{"a.yaml a a:2", "b.yaml b a:1"}, refused: []string{"b.yaml"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, test.first...)
			b.rejects = func(c *folder.Content) error {
				for _, s := range c.Services {
					for _, e := range s.Endpoints {
						if e.Address == "a:13" {
							return &document.Faults{List: []document.Fault{{File: s.Source.File, Line: s.Source.Line, Problem: "13"}}}
						}
						if e.Address == "a:14" {
							return &document.Faults{List: []document.Fault{{Problem: "14"}}}
						}
					}
				}
				return nil
			}
			b.load()
			var got []string
			for _, c := range test.then {
				b.write(c)
				got = b.load()
			}
			check := func(who string, got []string) {
				t.Helper()
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("%s: services (-want +got):\n%s\nlog:\n%s", who, diff, &b.log)
				}
				var refused []string
				for name, e := range b.pending {
					if e.held {
						refused = append(refused, name)
					}
				}
				xdstest.Equal(t, who+": refused", test.refused, refused)
			}
			check("a replica that runs", got)
			for _, name := range test.refused {
				if !strings.Contains(b.log.String(), "document="+name) {
					t.Errorf("the log does not name %s:\n%s", name, &b.log)
				}
			}
			logged := b.log.Len()
			b.release()
			if b.load(); b.log.Len() > logged {
				t.Errorf("the log says it again:\n%s", b.log.String()[logged:])
			}
			if !test.forgotten {
				b.start()
				check("a replica that starts", b.load())
			}
		})
	}
}

// Documents that were read again as they were are the same files, so that nothing is built.
func TestUnchangedDocuments(t *testing.T) {
	t.Parallel()
	b := newBench(t, change{"a.yaml", service("a", 1)}, change{"b.yaml", service("b", 1)})
	b.load()
	before := b.content
	snapshot := &store.Snapshot{Revision: 9, Documents: map[string]store.Document{
		"a.yaml": {Data: []byte(service("a", 1)), ModRevision: 1}, "b.yaml": {Data: []byte(service("b", 1)), ModRevision: 8},
	}}
	b.replace(snapshot)
	if b.load(); b.content != before {
		t.Error("all documents were read again, none was different, and there is another content")
	}
	b.write(change{"a.yaml", "kind: Nonsense"})
	b.load()
	b.write(change{"a.yaml", service("a", 1)})
	b.load()
	if before.Services[0] != b.content.Services[0] || before.Services[1] != b.content.Services[1] {
		t.Error("a document is what it was before a faulty one, and services are other ones")
	}
	delete(snapshot.Documents, "a.yaml")
	b.replace(snapshot)
	if got := b.load(); len(got) != 1 || len(b.entries) != 1 {
		t.Errorf("got services %v and %d documents after a deletion, want one", got, len(b.entries))
	}
}
