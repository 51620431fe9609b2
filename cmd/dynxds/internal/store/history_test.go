package store

import (
	"compress/gzip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/cmdtest"
	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	before, after := "kind: Service\nname: a\n", strings.Repeat("kind: Service\nname: b\n---\n", 1000)
	edits := []Edit{{Name: "a.yaml", Before: &before}, {Name: "b.yaml", After: &after}}
	want := recordWith(t, Record{
		Number: 12, Author: "ada@host", Time: time.Unix(1e9, 0).UTC(), Command: "apply", Message: "two\nlines",
	}, edits)
	text, err := want.encode()
	xdstest.NoError(t, err)
	if head, _, _ := strings.Cut(text, "\n"); !strings.Contains(head, `"author":"ada@host"`) {
		t.Errorf("the first line is %q, want JSON with the author", head)
	}
	if len(text) > len(after)/10 {
		t.Errorf("%d bytes of documents take %d bytes, want them compressed", len(after), len(text))
	}
	want.Revision, want.key = 99, "/p/history/0000000012"
	got, err := decodeRecord("/p/history/0000000012", []byte(text), 99)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Record{})); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	gotEdits, err := got.Edits()
	if diff := cmp.Diff(edits, gotEdits); diff != "" || err != nil {
		t.Errorf("edits: error %v (-want +got):\n%s", err, diff)
	}
}

func recordWith(t *testing.T, r Record, edits []Edit) Record {
	t.Helper()
	r, err := r.With(edits)
	xdstest.NoError(t, err)
	return r
}

// What anybody may have written under a record's key is refused, and costs little.
func TestFaultyRecords(t *testing.T) {
	t.Parallel()
	r := recordWith(t, Record{Number: 12}, nil)
	text, err := r.encode()
	xdstest.NoError(t, err)
	last := recordWith(t, Record{Number: 99999999999}, nil)
	tooLate, err := last.encode()
	xdstest.NoError(t, err)
	a := ""
	// with is a record with these edits.
	with := func(edits ...Edit) string {
		r := recordWith(t, r, edits)
		text, err := r.encode()
		xdstest.NoError(t, err)
		return text
	}
	bomb := func(bytes int) string {
		var b strings.Builder
		b.WriteString(`{"number":12}` + "\n")
		w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
		_, _ = w.Write([]byte(`[{"name":"a.yaml","after":"`)) // which has no errors
		chunk := make([]byte, 1<<20)
		for i := range chunk {
			chunk[i] = 'x'
		}
		for range bytes >> 20 {
			_, _ = w.Write(chunk)
		}
		_, _ = w.Write([]byte(`"}]`))
		_ = w.Close()
		return b.String()
	}
	const key = "/p/history/0000000012"
	for _, test := range []struct{ name, key, value, want string }{
		{"nothing", key, "", "JSON"},
		{"no JSON", key, "x\n", "invalid character"},
		{"no edits", key, `{"number":12}` + "\n", "EOF"},
		{"cut", key, text[:len(text)-9], "unexpected EOF"},
		{"another number", "/p/history/0000000013", text, "its number is 12"},
		{"no number", "/p/history/x", text, "ten digits"},
		{"another spelling of the number", "/p/history/12", text, "ten digits"},
		{"a number that is not in order", "/p/history/99999999999", tooLate, "ten digits"},
		{"more than can be a record", key, bomb(maxEdits), "more than 64 MiB"},
		{"a key that is no document", key, with(Edit{Name: "../replicas/x", After: &a}), `"../replicas/x" is not a valid document name`},
		{"a document twice", key, with(Edit{Name: "a.yaml", After: &a}, Edit{Name: "a.yaml", Before: &a}), `"a.yaml" is not in order`},
		{"an edit of nothing", key, with(Edit{Name: "a.yaml"}), `does not change "a.yaml"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r, err := decodeRecord(test.key, []byte(test.value), 1)
			if err == nil {
				_, err = r.Edits()
			}
			cmdtest.ErrorHas(t, "decodeRecord", err, strconv.Quote(test.key)+" is no record of dynxds; delete it", test.want)
		})
	}
	// What cannot be read is not written.
	large := strings.Repeat("x", maxEdits)
	_, err = r.With([]Edit{{Name: "a.yaml", After: &large}})
	cmdtest.ErrorHas(t, "too large a record", err, "apply fewer documents")
}
