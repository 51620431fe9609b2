package changes_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/changes"
)

// The tests share the changes of the process, and therefore do not run in parallel.

func TestRecentHasTheLastChangesOnly(t *testing.T) {
	for i := range changes.Max + 7 {
		changes.Add(changes.Change{Kind: changes.Accepted, Name: fmt.Sprint(i)})
	}
	all := changes.Recent()
	if len(all) != changes.Max {
		t.Fatalf("there are %d changes, want %d", len(all), changes.Max)
	}
	for i, c := range all {
		if want := fmt.Sprint(changes.Max + 7 - 1 - i); c.Name != want {
			t.Fatalf("change %d is of %q, want %q: the latest first", i, c.Name, want)
		}
		if c.Number != all[0].Number-uint64(i) || c.Time.IsZero() {
			t.Fatalf("change %d has number %d at %v; the latest has number %d", i, c.Number, c.Time, all[0].Number)
		}
	}
}

// Names and errors come from servers, so that what is kept of them is bounded.
func TestTextsAreBounded(t *testing.T) {
	long := strings.Repeat("ä", changes.MaxText)
	changes.Add(changes.Change{Name: long, From: long, To: long, Detail: long})
	c := changes.Recent()[0]
	for _, text := range []string{c.Name, c.From, c.To, c.Detail} {
		if len(text) > changes.MaxText+len("…") || !strings.HasSuffix(text, "ä…") {
			t.Errorf("a text has %d bytes and ends with %q", len(text), text[len(text)-5:])
		}
	}
}
