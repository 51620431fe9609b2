package store

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	before, after := "kind: Service\nname: a\n", strings.Repeat("kind: Service\nname: b\n---\n", 1000)
	want := Record{
		Number: 12, Author: "ada@host", Time: time.Unix(1e9, 0).UTC(), Command: "apply", Message: "two\nlines",
		Edits: []Edit{{Name: "a.yaml", Before: &before}, {Name: "b.yaml", After: &after}},
	}
	text, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	if head, _, _ := strings.Cut(text, "\n"); !strings.Contains(head, `"author":"ada@host"`) {
		t.Errorf("the first line is %q, want JSON with the author", head)
	}
	if len(text) > len(after)/10 {
		t.Errorf("%d bytes of documents take %d bytes, want them compressed", len(after), len(text))
	}
	want.Revision = 99
	got, err := decodeRecord("/p/history/0000000012", []byte(text), 99)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

func TestFaultyRecords(t *testing.T) {
	t.Parallel()
	r := Record{Number: 12}
	text, err := r.encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, key, value string }{
		{"nothing", "0000000012", ""},
		{"no JSON", "0000000012", "x\n"},
		{"no edits", "0000000012", `{"number":12}` + "\n"},
		{"cut", "0000000012", text[:len(text)-9]},
		{"another number", "0000000013", text},
		{"no number", "x", text},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := decodeRecord("/p/history/"+test.key, []byte(test.value), 1)
			if err == nil || !strings.Contains(err.Error(), "/p/history/"+test.key+" is no record of dynxds") {
				t.Errorf("got error %v, want one with the key", err)
			}
		})
	}
}
