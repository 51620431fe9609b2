package feed

import (
	"log/slog"
	"testing"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
)

// All documents are read again whenever the watch cannot be relied upon, and only then.
func TestEvaluatePulse(t *testing.T) {
	head := func(revision int64, cluster, term uint64) store.Head {
		return store.Head{Revision: revision, Cluster: cluster, Term: term}
	}
	for name, test := range map[string]struct {
		heads  []store.Head
		outage bool
		want   bool
	}{
		"nothing changes":                        {heads: []store.Head{head(5, 1, 2), head(5, 1, 2), head(5, 1, 3), head(5, 1, 3), head(5, 1, 3)}},
		"the first answer is of another cluster": {heads: []store.Head{head(6, 2, 2)}, want: true},
		"it went back":                           {heads: []store.Head{head(4, 1, 2)}, want: true},
		"another cluster, as far":                {heads: []store.Head{head(5, 1, 2), head(5, 2, 2)}, want: true},
		"an older term, as far":                  {heads: []store.Head{head(5, 1, 4), head(5, 1, 2)}, want: true},
		"it did not answer":                      {heads: []store.Head{head(5, 1, 2)}, outage: true, want: true},
		"there is no watch, for some time":       {heads: []store.Head{head(6, 1, 2), head(6, 1, 2), head(6, 1, 2), head(6, 1, 2)}, want: true},
		"there is no watch, just now":            {heads: []store.Head{head(6, 1, 2), head(6, 1, 2)}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Feed{log: slog.New(slog.DiscardHandler), revision: 5, head: head(5, 1, 2)}
			if test.outage {
				f.outage.since = time.Now()
			}
			for _, h := range test.heads {
				f.evaluatePulse(answer{asked: f.head, head: h})
			}
			if got := f.missed && f.due; got != test.want {
				t.Errorf("all documents are read again: %v, want %v", got, test.want)
			}
		})
	}
}
